"""A teacher's runs over a training set, kept call by call (CIRAG section 3.5, equation 7).

One line of JSON a question, written as it finishes; a second run reads them and calls nobody.
"""

from __future__ import annotations

import copy
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import dspy
from dspy.adapters.utils import format_field_value

from cirag_dspy.advice import lm_advice
from cirag_dspy.errors import DataError, RunError
from cirag_dspy.files import read_text, write_lines
from cirag_dspy.modules.extract import FATAL
from cirag_dspy.modules.threads import each_in_threads
from cirag_dspy.text import one_line

Metric = Callable[..., Any]
Turn = dict[str, str]


@dataclass(frozen=True)
class Call:
    """One call of a predictor whose reply could be read: its name in the program, inputs, outputs, earlier turns.

    Values are texts as an adapter writes them. ``history`` holds the turns of a ``dspy.History`` input, each with that
    turn's inputs and outputs.
    """

    predictor: str
    inputs: Turn
    outputs: Turn
    history: list[Turn] = field(default_factory=list)


@dataclass(frozen=True)
class Trajectory:
    """A question's run. ``score`` is the metric's, 0 to 1; ``reason`` says why one that is not ``kept`` was dropped."""

    id: str
    question: str
    answer: str
    score: float
    kept: bool
    reason: str
    calls: list[Call]


def collect(
    program: dspy.Module,
    examples: Sequence[dspy.Example],
    file: Path,
    *,
    metric: Metric,
    threshold: float = 1.0,
    threads: int = 1,
    manifest: Mapping[str, Any] | None = None,
    on_done: Callable[[Trajectory], None] = lambda trajectory: None,
) -> list[Trajectory]:
    """Run ``program`` with its teacher LM over ``examples`` and keep every call.

    Args:
        program: A system whose LM is the teacher, by ``set_lm`` or ``dspy.context``.
        examples: With ``id`` (each its own), ``question`` and what the metric needs.
        file: JSONL: the manifest, then a line a question. Those that it has, failed ones aside, are not asked again.
        metric: ``metric(example, prediction)``, a score of 0 to 1 or a boolean. The official one of the data set.
        threshold: A trajectory is kept if its score is at least this.
        threads: Questions at a time.
        manifest: What the trajectories depend on; a file of another one is refused.
        on_done: Called with each trajectory as it is written.

    Returns:
        The trajectories in the order of ``examples``.

    Raises:
        DataError: An example has no id or no question, or two have the same id.
        RunError: The file belongs to other settings, or can't be written.
        dspy.utils.exceptions.LMError: No call can succeed (key, billing, configuration); what there was is kept.
    """
    if not examples:
        raise RunError("no examples to collect trajectories from")
    _check(examples)
    manifest = json.loads(json.dumps({**(manifest or {}), "threshold": threshold}))
    done = _resume(file, manifest)
    todo = [e for e in examples if e.id not in done or done[e.id].question != e.question]
    if getattr(program, "min_hops", 1) > 1:  # a teacher that asks for nothing has all it needs
        program = copy.copy(program)
        program.min_hops = 1

    def work(example: dspy.Example) -> Trajectory:
        return trajectory_of(program, example, metric, threshold)

    with file.open("a", encoding="utf-8", errors="replace") as out:
        for example, trajectory in each_in_threads(work, todo, threads):
            out.write(json.dumps(asdict(trajectory), ensure_ascii=False) + "\n")
            out.flush()
            done[example.id] = trajectory
            on_done(trajectory)
    return [done[example.id] for example in examples]


def trajectory_of(program: dspy.Module, example: dspy.Example, metric: Metric, threshold: float) -> Trajectory:
    """One question's run, with what was asked and answered on the way; an error of the question is its ``reason``.

    Raises:
        dspy.utils.exceptions.LMError: No call can succeed (key, billing, configuration).
    """
    names = {id(predictor): name for name, predictor in program.named_predictors()}
    trace: list[Any] = []
    answer, score, reason = "", 0.0, ""
    try:
        with dspy.context(trace=trace, max_trace_size=100_000):
            prediction = program(**example.inputs())
        answer = str(prediction.get("answer") or "")
        score = float(metric(example, prediction))
        if math.isnan(score):
            score = 0.0
            raise ValueError("the metric gave NaN")
        if any(getattr(hop, "error", "") for hop in prediction.get("hops") or ()):
            reason = "unreadable reply"
        elif score < threshold:
            reason = "below threshold"
    except FATAL:
        raise
    except Exception as error:  # a question that fails is a line of the file, not the end of the run
        reason = f"error: {one_line(f'{type(error).__name__}: {lm_advice(error)}')[:300]}"
    calls = _calls(trace, names)
    return Trajectory(example.get("id", ""), example.get("question", ""), answer, score, not reason, reason, calls)


def read_trajectories(file: Path) -> tuple[dict[str, Any], list[Trajectory]]:
    """The manifest and the trajectories of a file, the last of each question; a torn last line is passed over.

    Raises:
        DataError: It is no file of trajectories.
    """
    try:
        lines = [line for line in read_text(file, "replace").split("\n") if line]
    except OSError as error:
        raise DataError(f"{file} can't be read: {error.strerror}") from None
    found: dict[str, Trajectory] = {}
    try:
        manifest = json.loads(lines[0])["manifest"]
        for number, line in enumerate(lines[1:], 2):
            try:
                row = json.loads(line)
            except ValueError:
                if number == len(lines):
                    continue
                raise
            trajectory = Trajectory(**{**row, "calls": [Call(**call) for call in row["calls"]]})
            found[trajectory.id] = trajectory
    except (ValueError, KeyError, TypeError, IndexError):
        raise DataError(f"{file} holds no trajectories, or is damaged; cirag-dspy traces writes such a file") from None
    return manifest, list(found.values())


def write_trajectories(file: Path, manifest: Mapping[str, Any], trajectories: Sequence[Trajectory]) -> None:
    """Write a whole file of trajectories, as ``read_trajectories`` reads it."""
    write_lines(file, [{"manifest": manifest}, *map(asdict, trajectories)])


def reasons(trajectories: Sequence[Trajectory]) -> dict[str, int]:
    """How many were kept, and how many dropped for each reason."""
    return dict(Counter(t.reason.split(":")[0] or "kept" for t in trajectories).most_common())


def _resume(file: Path, manifest: Mapping[str, Any]) -> dict[str, Trajectory]:
    try:
        if not file.exists() or not file.stat().st_size:
            write_trajectories(file, manifest, [])
            return {}
        was, found = read_trajectories(file)
        changed = sorted(k for k in was.keys() | manifest.keys() if was.get(k) != manifest.get(k))
        if changed:
            drawn = "; questions are drawn by the recipe's seed, data.first=true takes the first ones"
            raise RunError(
                f"{file} was made with other settings ({', '.join(changed)}); remove it, or choose another file"
                + (drawn if "questions" in changed else "")
            )
        written = file.read_bytes()
        if not written.endswith(b"\n"):  # a kill left the beginning of a line
            os.truncate(file, written.rfind(b"\n") + 1)
            return _resume(file, manifest)
    except OSError as error:
        raise RunError(f"{file} can't be written: {error.strerror}") from None
    return {t.id: t for t in found if not t.reason.startswith("error")}


def _check(examples: Sequence[dspy.Example]) -> None:
    seen: set[Any] = set()
    for number, example in enumerate(examples, 1):
        if missing := [name for name in ("id", "question") if example.get(name) in (None, "")]:
            raise DataError(f"example {number} has no {' and no '.join(missing)}")
        if example.id in seen:
            raise DataError(f"example {number}: another one has the id {example.id!r} too")
        seen.add(example.id)


def _calls(trace: Sequence[Any], names: Mapping[int, str]) -> list[Call]:
    """The calls of a trace, by the predictor that made them; of a call that had to be repeated, the repetition.

    A reply that could be parsed and still was of no use is in the trace as well, before the call with ``problem``.
    """
    calls: list[Call] = []
    for predictor, inputs, prediction in trace:
        if id(predictor) not in names:
            continue
        name, fields = names[id(predictor)], predictor.signature.fields
        histories = [value for value in inputs.values() if isinstance(value, dspy.History)]
        turns = [_texts(turn, fields) for history in histories[:1] for turn in history.messages]  # adapters show one
        plain = _texts({k: value for k, value in inputs.items() if not isinstance(value, dspy.History)}, fields)
        replied = {k: prediction.get(k) for k in predictor.signature.output_fields}
        outputs = _texts({k: value for k, value in replied.items() if value is not None}, fields)
        if "problem" not in fields and plain.pop("problem", ""):
            calls = [known for known in calls if (known.predictor, known.inputs) != (name, plain)]
        calls.append(Call(name, plain, outputs, turns))
    return calls


def _texts(values: Mapping[str, Any], fields: Mapping[str, Any]) -> Turn:
    """Values as adapters write them, lists and numbers too, in valid Unicode."""
    texts = {}
    for key, value in values.items():
        text = format_field_value(fields[key], value) if key in fields else str(value)
        texts[key] = text.encode("utf-8", "replace").decode("utf-8")
    return texts
