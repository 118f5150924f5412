"""Silver data of extraction: passages with the triples that an LM wrote, a JSONL line ``title, text, triples`` each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from cirag_dspy.benchmarks.sources import file_rows
from cirag_dspy.errors import DataError
from cirag_dspy.files import write_lines
from cirag_dspy.schema import Passage, Triple
from cirag_dspy.text import best_sentence

Extracted = tuple[Passage, Sequence[Triple]]


def read_silver(file: Path, *, skip: int = 0, limit: int | None = None) -> list[Extracted]:
    """The passages of a file and their triples; what is no triple of three texts is left out.

    Args:
        file: JSONL, or a JSON list.
        skip: Leave the first ones out.
        limit: Take so many after them at most.

    Raises:
        DataError: The file can't be read, a row has no text or triples, or none is left.
    """
    extracted: list[Extracted] = []
    for row in file_rows(file)[0][skip : None if limit is None else skip + limit]:
        passage = Passage.create(row.text("title", ""), row.text("text"))
        found = row.fields.get("triples")
        if not isinstance(found, list):
            raise row.error("triples", "is missing" if found is None else "is no list")
        triples = [
            Triple(head, relation, tail, passage.id, best_sentence(f"{head} {relation} {tail}", passage.sentences))
            for head, relation, tail in filter(_is_fact, found)
        ]
        extracted.append((passage, triples))
    if not extracted:
        raise DataError(f"{file} has no passages after the first {skip}" if skip else f"{file} has no passages")
    return extracted


def write_silver(file: Path, extracted: Iterable[Extracted]) -> None:
    """Write passages and their triples, whole or not at all."""
    write_lines(
        file,
        (
            {"title": passage.title, "text": passage.text, "triples": [[t.head, t.relation, t.tail] for t in triples]}
            for passage, triples in extracted
        ),
    )


def _is_fact(fact: object) -> bool:
    return isinstance(fact, list) and len(fact) == 3 and all(isinstance(part, str) and part.strip() for part in fact)
