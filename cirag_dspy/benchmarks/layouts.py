"""The layouts that multi-hop benchmarks are published in, each one function from a row to a ``Question``.

The layout of a row shows in its fields, so official files, hub mirrors and HippoRAG's copies go the same way:

- ``paragraphs``: MuSiQue (https://github.com/StonyBrookNLP/musique), and HippoRAG's copies in its likeness;
- ``context``: HotpotQA (https://hotpotqa.github.io) and 2WikiMultiHopQA (https://github.com/Alab-NII/2wikimultihop);
- ``supporting_titles``: questions to ask of a corpus, gold by title (HippoRAG 2);
- else open domain: Natural Questions, WebQuestions, Bamboogle; gold passages or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cirag_dspy.benchmarks.base import Question
from cirag_dspy.benchmarks.gold import Gold, title_key
from cirag_dspy.benchmarks.rows import ID_KEYS, RawRow
from cirag_dspy.schema import Passage

Aliases = Mapping[str, Sequence[str]]
_ANSWER_KEYS = ("answer", "answers", "reference")


def row_id(row: RawRow, default: str) -> str:
    """The row's own id as a string, else ``default``."""
    return next((str(row.fields[key]) for key in ID_KEYS if row.has(key)), default)


def answers_of(row: RawRow) -> list[str]:
    """The accepted answers that are not blank, the main one first; none where the split is published without."""
    golds = [text for key in (*_ANSWER_KEYS, "answer_aliases") for text in row.strings(key)]
    return [text for text in dict.fromkeys(golds) if text.strip()]


def is_answerable(row: RawRow) -> bool:
    """Whether the question has an answer in its paragraphs (MuSiQue-Full marks those that have none)."""
    return row.fields.get("answerable") is not False


def is_open(row: RawRow) -> bool:
    """Whether a row says that its question has no answer: ``answerable`` false, or an answer that is given as empty
    (``answers: []``, ``answer: ""`` or null). A row without the field says nothing of it.
    """
    return not is_answerable(row) or (not answers_of(row) and any(key in row.fields for key in _ANSWER_KEYS))


def parse(row: RawRow, id: str, aliases: Aliases | None = None, *, unanswerable: bool = False) -> Question:
    """Read one row, whatever its layout.

    Args:
        row: The row.
        id: Id of the question.
        aliases: Aliases and demonyms by Wikidata id (2Wiki's ``id_aliases.json``).
        unanswerable: Read a row that ``is_open`` as a question without an answer.

    Raises:
        DataError: A field is missing or not as the layout says; names file, row and field.
    """
    if unanswerable and is_open(row):
        return replace(_parse(row, id, {}), answers=(), answerable=False)
    if not answers_of(row):
        raise row.error("answer", "is missing or empty")
    return _parse(row, id, aliases or {})


def _parse(row: RawRow, id: str, aliases: Aliases) -> Question:
    if row.has("paragraphs"):
        return _musique(row, id)
    if row.has("context"):
        return _hotpotqa(row, id, aliases)
    if row.has("supporting_titles"):
        return _titles(row, id)
    return _open_domain(row, id)


def _hotpotqa(row: RawRow, id: str, aliases: Aliases) -> Question:
    context = row.table("context", ("title",), ("sentences", "content"))
    facts = [
        (_string(row, "supporting_facts", title), _index(row, "supporting_facts", sentence))
        for title, sentence in row.table("supporting_facts", ("title",), ("sent_id",))
    ]
    evidences = _evidences(row)
    return Question(
        id=id,
        question=row.text("question"),
        answers=[*answers_of(row), *aliases.get(row.text("answer_id", ""), ())],
        type=row.text("type", ""),
        hops=len({title_key(title) for title, _ in facts}) or None,
        paragraphs=list(enumerate(_paragraph(row, title, body) for title, body in context)),
        gold=[Gold(title, sentence) for title, sentence in facts],
        supporting=facts,
        evidences=evidences,
        evidence_golds=_evidence_golds(row, evidences, aliases) if aliases else [],
    )


def _musique(row: RawRow, id: str) -> Question:
    paragraphs: list[tuple[int, Passage]] = []
    gold: dict[int, Gold] = {}
    for position, item in enumerate(row.records("paragraphs")):
        text = item.text("paragraph_text") if item.has("paragraph_text") else item.text("text")
        passage = Passage.create(item.text("title"), text)
        index = _index(item, "idx", item.fields.get("idx", position))
        paragraphs.append((index, passage))
        if item.fields.get("is_supporting"):
            gold[index] = Gold(passage.title, passage=passage)
    passages = dict(paragraphs)
    steps: list[dict[str, Any]] = []
    for item in row.records("question_decomposition") if row.has("question_decomposition") else []:
        support = passages.get(item.fields.get("paragraph_support_idx", -1))
        step = {"question": item.text("question"), "answer": item.text("answer")}
        steps.append(step | ({"gold": Gold(support.title, passage=support)} if support else {}))
    kind, separator, _ = id.partition("__")
    return Question(
        id=id,
        question=row.text("question"),
        answers=answers_of(row),
        type=kind if separator else row.text("type", ""),
        hops=len(steps) or len(gold) or None,
        paragraphs=paragraphs,
        gold=list(gold.values()),
        decomposition=steps,
        support_idxs=list(gold),
    )


def _titles(row: RawRow, id: str) -> Question:
    titles = row.strings("supporting_titles")
    return Question(
        id=id,
        question=row.text("question"),
        answers=answers_of(row),
        type=row.text("type", ""),
        hops=len(titles) or None,
        gold=[Gold(title) for title in titles],
        evidences=_evidences(row),
    )


def _open_domain(row: RawRow, id: str) -> Question:
    items = row.records("passages") if row.has("passages") else []
    passages = [Passage.create(item.text("title", ""), item.text("text")) for item in items]
    questions = row.strings("sub_questions")
    answers = row.fields.get("sub_answers") or []
    if not isinstance(answers, list):
        raise row.error("sub_answers", f"is {type(answers).__name__}, expected a list")
    if len(questions) != len(answers):
        raise row.error("sub_answers", f"has {len(answers)} entries for {len(questions)} sub_questions")
    return Question(
        id=id,
        question=row.text("question"),
        answers=answers_of(row),
        type=row.text("type", ""),
        hops=len(questions) or None,
        paragraphs=list(enumerate(passages)),
        gold=[Gold(passage.title, passage=passage) for passage in passages],
        decomposition=[
            {"question": question, "answer": _first(row, "sub_answers", golds)}
            for question, golds in zip(questions, answers, strict=True)
        ],
    )


def _paragraph(row: RawRow, title: Any, body: Any) -> Passage:
    title = _string(row, "context", title)
    return Passage.create(title, body if isinstance(body, str) else [_string(row, "context", text) for text in body])


def _evidences(row: RawRow) -> list[tuple[str, str, str]]:
    table = row.table("evidences", ("fact", "head", "subject"), ("relation",), ("entity", "tail", "object"))
    return [(str(head), str(relation), str(tail)) for head, relation, tail in table]


def _evidence_golds(
    row: RawRow, evidences: Sequence[tuple[str, str, str]], aliases: Aliases
) -> list[list[tuple[str, str, str]]]:
    """Each gold triple with every alias of its subject and object (``2wikimultihop_evaluate_v1.1.py``)."""
    ids = row.table("evidences_id", ("fact", "head", "subject"), ("relation",), ("entity", "tail", "object"))
    if ids and len(ids) != len(evidences):
        raise row.error("evidences_id", f"has {len(ids)} entries for {len(evidences)} evidences")
    golds = []
    for index, (head, relation, tail) in enumerate(evidences):
        head_id, _, tail_id = ids[index] if ids else ("", "", "")
        heads, tails = [head, *aliases.get(head_id, ())], [tail, *aliases.get(tail_id, ())]
        golds.append([(h, relation, t) for h in heads for t in tails])
    return golds


def _string(row: RawRow, key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise row.error(key, f"holds {type(value).__name__} where a string belongs")
    return value


def _first(row: RawRow, key: str, value: Any) -> str:
    """The main one of the answers in a list, which may be a lone string."""
    if isinstance(value, list) and value:
        value = value[0]
    return _string(row, key, value)


def _index(row: RawRow, key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise row.error(key, f"holds {value!r} where an index (an integer) belongs")
    return value
