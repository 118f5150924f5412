"""Recognise a file that is not what it is said to be, by the fields of its rows and by its name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cirag_dspy.benchmarks.rows import RawRow
from cirag_dspy.errors import DataError

_WIKI_TYPES = ("compositional", "inference", "bridge_comparison")


def published_as(row: RawRow) -> str:
    """The data set that only can have published the row; empty where its fields leave that open."""
    if row.has("paragraphs"):
        return "musique" if row.has("question_decomposition") else ""
    if row.has("context") or row.has("supporting_titles"):
        if row.has("evidences") or row.fields.get("type") in _WIKI_TYPES:
            return "2wikimultihopqa"
        return "hotpotqa" if row.has("level") or row.fields.get("type") == "bridge" else ""
    if row.has("sub_questions"):
        return "bamboogle"
    return "nq" if row.has("passages") and row.has("answers") else ""


def check_questions(rows: Sequence[RawRow], source: str) -> None:
    """Refuse a corpus given as questions.

    Raises:
        DataError: No row has a question.
    """
    if rows and not any(row.has("question") for row in rows):
        raise DataError(
            f"{source}: no row has a question (fields: {', '.join(rows[0].fields) or 'none'}); "
            "give a corpus as --corpus and the file of questions as --data-file"
        )


def doubts(name: str, split: str, rows: Sequence[RawRow], file_stem: str) -> list[str]:
    """One line for each sign that the rows are of another data set or split, or that their gold is unknown.

    Args:
        name: The data set they are said to be.
        split: The split they are said to be.
        rows: The rows.
        file_stem: The file's name without its ending; empty for rows of the hub.
    """
    found = []
    alike = {"webquestions": "nq", "bamboogle": "nq"}.get(name, "")  # layouts that tell nothing apart
    for other in sorted({published_as(row) for row in rows} - {"", name, alike}):
        count = sum(published_as(row) == other for row in rows)
        found.append(f"{count} of {len(rows)} rows are in {other}'s layout, not {name}'s; give the data set {other}")
    words = set(re.split(r"[^a-z]+", file_stem.lower()))
    if split != "train" and "train" in words and "dev" not in words:
        found.append(f"the file is named {file_stem!r} but is used as {split}; give --split train or the {split} file")
    without = sum(row.fields.get("supporting_facts") in ([], "[]", {"title": [], "sent_id": []}) for row in rows)
    if without:
        found.append(
            f"{without} of {len(rows)} rows have no supporting facts: their gold is unknown; give a file with them"
        )
    return found
