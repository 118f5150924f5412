"""The demo set that ships with the package: a small corpus of its own, with gold triples for every passage."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from cirag_dspy.benchmarks.base import Question
from cirag_dspy.benchmarks.gold import Gold
from cirag_dspy.benchmarks.rows import RawRow, raw_rows
from cirag_dspy.errors import DataError
from cirag_dspy.schema import Passage, Triple

_PASSAGES, _QUESTIONS = "demo_passages.jsonl", "demo_questions.jsonl"


def demo_passages() -> list[Passage]:
    """All passages of the demo corpus, in file order."""
    return list(_corpus()[0])


def demo_triples() -> dict[str, list[Triple]]:
    """The gold triples of the demo corpus by passage id."""
    return {id: list(triples) for id, triples in _corpus()[1].items()}


def demo_questions(split: str) -> tuple[list[Question], str]:
    """The demo questions of a split, and what a report calls their source.

    Raises:
        DataError: The demo has no such split, or a shipped row is damaged.
    """
    if split not in ("train", "dev"):
        raise DataError(f"demo: has no {split} split, only train and dev")
    paragraphs = {passage.title: passage for passage in demo_passages()}
    rows = [row for row in _rows(_QUESTIONS) if row.text("split") == split]
    return [_question(row, paragraphs) for row in rows], f"cirag_dspy demo set ({_QUESTIONS})"


def _question(row: RawRow, paragraphs: dict[str, Passage]) -> Question:
    facts = [(str(title), _sentence(row, index)) for title, index in row.table("supporting_facts", ("t",), ("i",))]
    for title, index in facts:
        if title not in paragraphs or index >= len(paragraphs[title].sentences):
            raise row.error("supporting_facts", f"names sentence {index} of {title!r}, which the demo corpus lacks")
    gold = [paragraphs[title] for title in dict.fromkeys(title for title, _ in facts)]
    steps = row.records("decomposition") if row.has("decomposition") else []
    return Question(
        id=row.text("id"),
        question=row.text("question"),
        answers=[row.text("answer")],
        type=row.text("type"),
        hops=len(gold) or None,
        paragraphs=list(enumerate(gold)),
        gold=[Gold(title, index) for title, index in facts],
        supporting=facts,
        evidences=[(str(h), str(r), str(t)) for h, r, t in row.table("evidences", ("h",), ("r",), ("t",))],
        decomposition=[{"question": step.text("question"), "answer": step.text("answer")} for step in steps],
    )


@cache
def _corpus() -> tuple[tuple[Passage, ...], dict[str, tuple[Triple, ...]]]:
    passages: dict[str, Passage] = {}
    triples: dict[str, tuple[Triple, ...]] = {}
    for row in _rows(_PASSAGES):
        passage = Passage.create(row.text("title"), row.strings("sentences"))
        if passage.title in passages:
            raise row.error("title", f"is used twice: {passage.title!r}")
        if not passage.sentences:
            raise row.error("sentences", "is empty")
        facts = []
        for head, relation, tail, sentence in row.table("triples", ("h",), ("r",), ("t",), ("i",)):
            index = _sentence(row, sentence)
            if index >= len(passage.sentences):
                raise row.error("triples", f"names sentence {index} of {len(passage.sentences)}")
            facts.append(Triple(str(head), str(relation), str(tail), passage.id, index))
        passages[passage.title] = passage
        triples[passage.id] = tuple(facts)
    return tuple(passages.values()), triples


def _sentence(row: RawRow, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise row.error("sentence index", f"is {value!r}, expected 0 or more")
    return value


def _rows(name: str) -> list[RawRow]:
    file = resources.files("cirag_dspy.benchmarks") / "data" / name
    if not file.is_file():
        raise DataError(f"{name}: the demo set is missing from this installation; reinstall cirag-dspy")
    lines = file.read_text(encoding="utf-8").split("\n")
    try:
        return list(raw_rows([json.loads(line) for line in lines if line.strip()], name))
    except json.JSONDecodeError as error:
        raise DataError(f"{name}: not valid JSON lines: {error.msg}") from error
