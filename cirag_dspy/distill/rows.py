"""Trajectories -> chat rows, the data a student is trained on: ``{"messages": [...], "predictor": ..., "id": ...}``,
and ``evidence``, what may go of a row that is too long (``distill.evidence``).

The prompt of a row is the one the program will send: same adapter, same signature, no demonstrations. A conversation is
one row, with every reply of it a target (CIRAG equation 8: loss on the decisions, observations are context).
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import dspy

from cirag_dspy.adapter import LineAdapter
from cirag_dspy.distill.evidence import evidence_of, fact_of
from cirag_dspy.distill.trajectories import Call, Trajectory, Turn
from cirag_dspy.errors import DataError
from cirag_dspy.files import digest, read_json, read_text, write_json, write_lines
from cirag_dspy.modules.integrate import read_query, write_decision
from cirag_dspy.modules.parse import parse_core, parse_triples, says_nothing
from cirag_dspy.modules.reader import read_answer
from cirag_dspy.schema import Passage, Triple
from cirag_dspy.signatures import REFUSAL
from cirag_dspy.text import fact_lines, is_refusal, one_line

Row = dict[str, Any]
JOINT = "joint"
EVIDENCE = "evidence.json"
_KNOWN = ("id", "predictor", "evidence")
_ANSWERS = ("AnswerIfSufficient", "AnswerAnyway")


def chat_rows(program: dspy.Module, trajectories: Iterable[Trajectory]) -> list[Row]:
    """The rows of the trajectories that were kept, by the predictors that ``program`` has; each distinct row once.

    Args:
        program: Its signatures are the prompts; its demonstrations are left out.
        trajectories: Calls of predictors that the program lacks, and replies that were of no use, are passed over.
    """
    signatures = {name: predictor.signature for name, predictor in program.named_predictors()}
    rows: list[Row] = []
    for trajectory in trajectories:
        calls = [call for call in trajectory.calls if call.predictor in signatures] if trajectory.kept else []
        for call in _conversations(calls):
            rows += _rows(call, signatures[call.predictor], trajectory.id)
    return distinct(rows)


def extraction_rows(program: dspy.Module, extracted: Iterable[tuple[Passage, Sequence[Triple]]]) -> list[Row]:
    """Rows that teach ``program`` the triples that someone has extracted, say those of an index.

    Where it finds the entities in a call of their own, they are what the triples name.
    """
    rows: list[Row] = []
    for name, predictor in program.named_predictors():
        fields = predictor.signature.input_fields, predictor.signature.output_fields
        if not {"title", "passage"} <= fields[0].keys() or not fields[1].keys() & {"triples", "entities"}:
            continue
        for passage, triples in extracted:
            named = dict.fromkeys(one_line(name) for triple in triples for name in (triple.head, triple.tail))
            told = {
                "title": one_line(passage.title),
                "passage": one_line(passage.text),
                "entities": "; ".join(named) or "none",
                "triples": "\n".join(one_line(triple.text) for triple in triples) or "none",
            }
            inputs, outputs = ({key: told[key] for key in side if key in told} for side in fields)
            rows += _rows(Call(name, inputs, outputs), predictor.signature, passage.id)
    return rows


def distinct(rows: Sequence[Row]) -> list[Row]:
    """Each conversation once."""
    return list({json.dumps(row["messages"]): row for row in reversed(rows)}.values())[::-1]


def sample(rows: Sequence[Row], most: Mapping[str, int], seed: int = 0) -> list[Row]:
    """At most so many rows of a predictor, drawn at random; predictors that ``most`` does not name are kept whole."""
    order = random.Random(seed).sample(range(len(rows)), len(rows))
    taken: Counter[str] = Counter()
    chosen = []
    for place in order:
        name = rows[place]["predictor"]
        if name not in most or taken[name] < most[name]:
            taken[name] += 1
            chosen.append(place)
    return [rows[place] for place in sorted(chosen)]


def write_rows(folder: Path, rows: Sequence[Row], fit: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Write ``joint.jsonl`` and a file a predictor, each line ``{"messages": [...]}`` and nothing else.

    So any trainer of chat data takes them as they are; ``datasets.load_dataset("json", ...)`` too. Beside them stands
    ``evidence.json``: of each row, by a hash of its messages, its id, predictor, and what may go where it is too long.

    Args:
        folder: Where to.
        rows: What to write.
        fit: What a student's tokenizer makes of them (``encode.fit_report``), for the report.

    Returns:
        The report of ``check_rows``, with ``fit``; also written to ``report.json``.

    Raises:
        DataError: A row is not fit for training.
    """
    report = check_rows(rows) | ({"fit": dict(fit)} if fit else {})
    for old in _written(folder):
        old.unlink(missing_ok=True)
    for name in [JOINT, *report["by_predictor"]]:
        lines = ({"messages": row["messages"]} for row in rows if name in (JOINT, row["predictor"]))
        write_lines(folder / f"{name}.jsonl", lines)
    known = {_key(row["messages"]): {key: row[key] for key in _KNOWN if key in row} for row in rows}
    write_lines(folder / EVIDENCE, [known])
    write_json(folder / "report.json", report)
    return report


def read_rows(file: Path) -> list[Row]:
    """The rows of a JSONL file, also one of another tool.

    What ``write_rows`` noted of them beside the file is read too; else a row's ``id`` is the number of its line, and
    nothing of it may go.

    Raises:
        DataError: It can't be read, or a line is no chat row.
    """
    try:
        lines = read_text(file).split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} can't be read: {error}") from None
    rows, known = [], _noted(file.parent / EVIDENCE)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            messages = json.loads(line)["messages"]
        except (ValueError, KeyError, TypeError):
            raise DataError(f'{file} line {number} is no row: expected {{"messages": [...]}}') from None
        rows.append({"messages": messages, "predictor": "", "id": f"line {number}"} | known.get(_key(messages), {}))
    check_rows(rows)
    return rows


def check_rows(rows: Sequence[Row]) -> dict[str, Any]:
    """Check roles and targets, and report counts and lengths (characters) by predictor.

    Raises:
        DataError: There is no row, roles don't alternate as system?, (user, assistant)+, or a message is empty.
    """
    if not rows:
        raise DataError("no rows to train on")
    by_name: dict[str, list[Row]] = {}
    for number, row in enumerate(rows, 1):
        if problem := _problem(row["messages"]):
            raise DataError(f"row {number} ({row['predictor'] or 'joint'}, {row['id']}): {problem}")
        by_name.setdefault(row["predictor"], []).append(row)
    return {"rows": len(rows), "by_predictor": {name: _lengths(group) for name, group in sorted(by_name.items())}}


def _key(messages: Any) -> str:
    return digest(messages)[:16]


def _noted(file: Path) -> dict[str, Row]:
    """What stands in an ``evidence.json``, by row; nothing where there is none."""
    if not file.is_file():
        return {}
    noted = read_json(file, "export the rows again")
    return {key: {name: row[name] for name in _KNOWN if name in row} for key, row in noted.items()}


def _written(folder: Path) -> list[Path]:
    """The files of rows that an earlier export left; no other file of the folder is ours to remove."""
    try:
        names = [JOINT, *json.loads(read_text(folder / "report.json"))["by_predictor"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [folder / f"{name}.jsonl" for name in names]


def _problem(messages: Any) -> str:
    if not isinstance(messages, list) or not all(
        isinstance(m, dict) and isinstance(m.get("content"), str) for m in messages
    ):
        return "messages must be a list of {role, content} with text"
    roles = [message.get("role") for message in messages]
    turns = roles[1:] if roles[:1] == ["system"] else roles
    if not turns or turns != ["user", "assistant"] * (len(turns) // 2):
        return f"roles must be system?, then user and assistant in turn, not {', '.join(map(str, roles))}"
    empty = next((m["role"] for m in messages if not m["content"].strip()), None)
    return f"the {empty} message is empty" if empty else ""


def _lengths(rows: Sequence[Row]) -> dict[str, Any]:
    def size(row: Row, *roles: str) -> int:
        return sum(len(message["content"]) for message in row["messages"] if message["role"] in roles)

    prompts = [size(row, "system", "user") for row in rows]
    targets = [size(row, "assistant") for row in rows]
    return {
        "rows": len(rows),
        "targets": sum(message["role"] == "assistant" for row in rows for message in row["messages"]),
        "prompt_characters": {"median": median(prompts), "max": max(prompts)},
        "target_characters": {"median": median(targets), "max": max(targets)},
    }


def _conversations(calls: Sequence[Call]) -> list[Call]:
    """Without the calls whose turn stands in a later call's history, behind the same turns as when it was made."""
    kept: list[Call] = []
    told: list[tuple[str, Turn, list[Turn]]] = []
    for call in reversed(calls):
        if (call.predictor, call.inputs, call.history) not in told:
            kept.append(call)
        for number, turn in enumerate(call.history):
            shown = {name: turn[name] for name in call.inputs if name in turn}
            told.append((call.predictor, shown, call.history[:number]))
    return kept[::-1]


def _rows(call: Call, signature: type[dspy.Signature], id: str) -> list[Row]:
    """The row of a call; none if its reply was of no use."""
    target = _target(call, signature)
    if not target:
        return []
    adapter = dspy.settings.adapter or LineAdapter()
    histories = [name for name, field in signature.input_fields.items() if field.annotation is dspy.History]
    inputs: dict[str, Any] = {**call.inputs, **{name: dspy.History(messages=call.history) for name in histories}}
    messages = adapter.format(signature, [], inputs)
    replied = signature
    for name in signature.output_fields.keys() - target.keys():
        replied = replied.delete(name)  # or an adapter may write that it is None
    reply = adapter.format_assistant_message_content(replied, target)
    turns: list[tuple[dict[str, Any], Turn]] = [
        ({name: turn[name] for name in call.inputs if name in turn}, _outputs(turn, signature)) for turn in call.history
    ]
    row = {"messages": [*messages, {"role": "assistant", "content": reply}], "predictor": call.predictor, "id": id}
    evidence = evidence_of(adapter, signature, messages, [*turns, (dict(call.inputs), target)])
    return [row if evidence is None else row | {"evidence": evidence}]


def _outputs(turn: Turn, signature: type[dspy.Signature]) -> Turn:
    return {name: turn[name] for name in signature.output_fields if name in turn}


def _target(call: Call, signature: type[dspy.Signature]) -> Turn:
    """A reply in the form that our modules write it in, whatever the teacher's manners; shortest where there is choice.

    Entities that only lead a model on to its triples are left out: they cost a student a third of its tokens. Empty
    where nothing could be read from the reply.
    """
    outputs = {name: text for name, text in call.outputs.items() if text}
    if "facts" in call.inputs and "core" in call.outputs:  # as the turns before it are shown
        candidates = [fact_of(line) for line in fact_lines(call.inputs["facts"])]
        core, _ = parse_core(call.outputs["core"], candidates)
        thought = one_line(outputs.pop("thought", ""))
        query = read_query(call.outputs.get("next_query", ""))
        outputs |= write_decision(signature, thought, core, candidates, query)
    if "passage" in call.inputs and "triples" in call.outputs:
        text = call.outputs["triples"]
        outputs["triples"] = _compact(parse_triples(text)[0]) or ("none" if says_nothing(text) else "")
        outputs.pop("entities", None)
    if signature.__name__ in _ANSWERS and outputs.get("answer"):
        answer = read_answer(outputs["answer"])
        outputs["answer"] = REFUSAL if "evidence" in call.inputs and is_refusal(answer) else answer
    fields = signature.output_fields
    if any(field.is_required() and not outputs.get(name) for name, field in fields.items()):
        return {}
    return {name: outputs[name] for name in fields if name in outputs}


def _compact(triples: Sequence[tuple[str, str, str]]) -> str:
    """Triples by their head, which is written once."""
    by_head: dict[str, list[str]] = {}
    for head, relation, tail in triples:
        by_head.setdefault(head, []).append(f"| {relation} | {tail}")
    return "\n".join("\n".join([f"{head} {first}", *rest]) for head, (first, *rest) in by_head.items())
