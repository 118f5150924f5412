"""One evaluation run: a system over questions, a line of JSON for each as it finishes, resumable, then a summary."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dspy

from cirag_dspy.benchmarks.draw import told
from cirag_dspy.content import same_content
from cirag_dspy.errors import RunError
from cirag_dspy.evaluate.compare import RULES, score_intervals
from cirag_dspy.evaluate.metrics import answer_rule
from cirag_dspy.evaluate.rows import Row, answer_one, summarise
from cirag_dspy.files import read_text, write_json
from cirag_dspy.modules.threads import each_in_threads
from cirag_dspy.plain import dump, plain

WARM_UP = "What is this corpus about?"
# What a manifest says of a run whose seconds compare with those of others.
LATENCY = "one question at a time, no cache, after a question that warms up"


class RunFolder:
    """Where a run is kept: ``run.json`` (all that its numbers depend on), ``questions.jsonl`` (a row a question)
    and ``results.json`` (the summary). Rows are appended and flushed, so a kill loses only what was in flight.
    """

    # What may differ between the parts of one run: none of it changes an answer. A draw is what its questions' ids are.
    FREE = ("machine", "versions", "threads", "started", "judge", "dataset.draw", "dataset.notes.warnings")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows_file = path / "questions.jsonl"

    def start(self, manifest: Mapping[str, Any], *, resume: bool) -> dict[str, Row]:
        """Claim the folder for a run and return the rows it has already, by question id, failed ones left out.

        Raises:
            RunError: The folder can't be written, holds a run and ``resume`` is off, or holds one of other settings.
        """
        manifest_file = self.path / "run.json"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not resume:
                self.require_free()
            if resume and manifest_file.exists():
                self._check_same(manifest_file, manifest)
            write_json(manifest_file, manifest)
        except OSError as error:
            raise RunError(f"{self.path} can't be written: {error.strerror}; choose another --out") from None
        return {row["id"]: row for row in self.rows() if not row["error"]}

    def require_free(self) -> None:
        """Raise RunError if the folder holds a run."""
        if self.rows_file.exists():
            raise RunError(f"{self.path} already holds a run; --resume goes on with it, or choose another --out")

    def require_same(self, part: Mapping[str, Any]) -> None:
        """Raise RunError if the folder holds a run whose manifest says something else than this part of one."""
        file = self.path / "run.json"
        if file.exists():
            self._check_same(file, part, only=part.keys())

    def _check_same(self, file: Path, manifest: Mapping[str, Any], only: Collection[str] = ()) -> None:
        try:
            was = dict(json.loads(read_text(file)))
        except (ValueError, TypeError):
            raise RunError(f"{file} is damaged, so the run can't be resumed; choose another --out") from None
        if only:
            was = {name: value for name, value in was.items() if name in only}
        before, now = (dict(_leaves(whole)) for whole in (was, plain(dict(manifest))))
        changed = [
            f"{name} {str(before.get(name))[:60]} -> {str(now.get(name))[:60]}"
            for name in sorted(before.keys() | now.keys())
            if not same_content(before.get(name), now.get(name)) and not self._is_free(name, before)
        ]
        if any(line.startswith("dataset.ids_sha256 ") for line in changed):
            self._refuse_draw(was.get("dataset", {}), manifest["dataset"])
        if changed:
            more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
            details = "; ".join(changed[:4])
            raise RunError(f"{self.path} holds a run of other settings ({details}{more}); choose another --out")

    def _is_free(self, name: str, before: Mapping[str, str]) -> bool:
        """Whether a value may differ, also from a run of a version that did not record it."""
        unknown = name == "index.embedder.content" and name not in before
        return unknown or f"{name}.".startswith(tuple(f"{one}." for one in self.FREE))

    def _refuse_draw(self, was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        """Raise RunError where a run of the same file is gone on with by other questions."""
        if was.get("source") != now.get("source"):
            return
        try:
            held = told(was["draw"])
        except (KeyError, TypeError, AttributeError):  # an older version took the first, unless there was a seed
            held = f"{was.get('n')} questions that an older version chose: without --seed, the first; add --first"
        draw = f"; this command takes {told(now['draw'])}" if now.get("draw") else ""
        raise RunError(f"{self.path} holds a run of {held}{draw}; choose another --out, or give that draw")

    def rows(self) -> list[Row]:
        """The last row of each question, in order of first arrival; a torn last line is passed over."""
        rows: dict[str, Row] = {}
        if self.rows_file.exists():
            for line in read_text(self.rows_file, "replace").split("\n"):
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                if isinstance(row, dict) and "id" in row:
                    rows[row["id"]] = row
        return list(rows.values())

    @contextmanager
    def writer(self) -> Iterator[Callable[[Row], None]]:
        """A function that appends a row and flushes it."""
        with self.rows_file.open("a+", encoding="utf-8", errors="replace") as file:
            # After a kill the file may end within a line; what follows must not be glued to it.
            file.seek(0, os.SEEK_END)
            if file.tell():
                with self.rows_file.open("rb") as tail:
                    tail.seek(-1, os.SEEK_END)
                    torn = tail.read(1) != b"\n"
                if torn:
                    file.write("\n")

            def write(row: Row) -> None:
                file.write(dump(row) + "\n")
                file.flush()

            yield write


def run(
    system: Any,
    examples: Sequence[dspy.Example],
    folder: RunFolder,
    manifest: Mapping[str, Any],
    *,
    threads: int = 1,
    resume: bool = False,
    latency: bool = False,
    abstain: bool = False,
    on_row: Callable[[Row], None] = lambda row: None,
) -> dict[str, Any]:
    """Ask ``system`` every question and score it; returns the summary, also written to ``results.json``.

    A question that raises is a row with an ``error``: counted apart from wrong answers, scored 0 as the official
    scripts score a missing answer, and asked again by ``resume``.

    Args:
        system: Called with ``question``.
        examples: Questions as ``cirag_dspy.benchmarks`` makes them.
        folder: Where to keep the run.
        manifest: What the numbers depend on; ``resume`` refuses a folder with another one.
        threads: Questions at a time.
        resume: Go on with a run that was interrupted.
        latency: Measure seconds: one question at a time, after one that does not count. DSPy's cache is the LM's
            matter; what is extracted or embedded should be so before. Only such rows' seconds get into summaries.
        abstain: Score a guess that the system does not stand by as no answer.
        on_row: Called with each row as it is written.

    Raises:
        RunError: No questions, or the folder belongs to another run.
        DataError: A question is of a data set without a metric, or has no gold answer.
        dspy.utils.exceptions.LMError: No LM call can succeed (key, billing or configuration); rows so far are kept.
        ModelError: The LM cannot do what the system needs of it; rows so far are kept.
    """
    if not examples:
        raise RunError("no examples to evaluate")
    if len({example.id for example in examples}) < len(examples):
        raise RunError("two examples have one id, so their rows could not be told apart")
    for dataset in {example.dataset for example in examples}:
        answer_rule(dataset)  # said before a question is paid for
    done = folder.start(manifest, resume=resume)
    todo = [example for example in examples if example.id not in done]
    if latency:
        threads = 1
        if todo:
            answer_one(system, todo[0].copy(question=WARM_UP))
    with folder.writer() as write:
        ask = partial(answer_one, system, latency=latency, abstain=abstain)
        for _, row in each_in_threads(ask, todo, threads):
            write(row)
            on_row(row)
    return conclude(folder, examples, manifest)


def conclude(folder: RunFolder, examples: Sequence[dspy.Example], manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Sum up the rows of ``examples``, with intervals; returns the summary, also written to ``results.json``."""
    kept = {row["id"]: row for row in folder.rows()}
    # Not in the order they were finished in: bootstrap intervals go by position, and threads and kills change that.
    rows = [kept[example.id] for example in examples if example.id in kept]
    summary = summarise(rows)
    if rows:
        summary |= {"intervals": score_intervals(rows), "interval": RULES["interval"]}
    write_json(folder.path / "results.json", {"summary": summary, "manifest": dict(manifest)})
    return summary


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Dotted names and values of nested dictionaries, each value as text."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else key)
    else:
        yield name, str(value)
