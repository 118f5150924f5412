"""The entities about which knowledge is missing, each with what to search for (DualRAG's Entity Identifier)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import dspy

from cirag_dspy.modules.ask import Reply, ask
from cirag_dspy.modules.base import Module
from cirag_dspy.modules.integrate import read_query
from cirag_dspy.modules.knowledge import Knowledge
from cirag_dspy.replies.jsontext import as_text, load_json, payload
from cirag_dspy.signatures import IdentifyEntities
from cirag_dspy.text import match_key, one_line, word_count

OTHER = "other"
QUERIES_PER_ENTITY = 2
_BULLET = re.compile(r"^\s*(?:[-*•]\s+|\(?\d{1,2}[.):]\s+)")
_NAME_WORDS = 4


class Identify(Module):
    """Names entities and writes their queries.

    Args:
        most: Entities at most.
    """

    def __init__(self, most: int = 4) -> None:
        super().__init__()
        self.most = most
        self.identify = dspy.Predict(IdentifyEntities)

    def forward(self, question: str, knowledge: Knowledge, thoughts: Sequence[str]) -> dspy.Prediction:
        """A prediction with ``needs``: names of entities, each with one or two queries. None if the reply could not be
        read.
        """
        inputs = {
            "question": one_line(question),
            "knowledge": "\n".join(knowledge.lines()) or "none",
            "thoughts": "\n".join(thoughts) or "none",
            "entities": "; ".join(knowledge.names()) or "none",
        }
        reply = ask(self.identify, inputs, check=_no_needs)
        return dspy.Prediction(needs=parse_needs(reply["searches"], self.most))


def parse_needs(text: str, most: int) -> list[tuple[str, list[str]]]:
    """Names of entities, each with its queries, in order, at most ``most``.

    Reads lines ``entity | query | query`` and JSON objects, an array of them or one a line. Lines of one name go
    together. An entity without a query is searched by its name; a query without an entity goes to ``OTHER``.
    """
    needs: dict[str, tuple[str, list[str]]] = {}
    for row in _rows(text):
        name, *queries = [part for part in (read_query(cell.strip(" *_`")) for cell in row) if part] or [""]
        if not name or name.endswith(":") or match_key(name) == "entity":
            continue  # "none", a line that announces the list, the names of its columns
        if not queries:
            name, queries = (name, [name]) if word_count(name) <= _NAME_WORDS else (OTHER, [name])
        known = needs.setdefault(match_key(name), (name, []))[1]
        known += [query for query in queries if query not in known]
    return [(name, queries[:QUERIES_PER_ENTITY]) for name, queries in list(needs.values())[:most]]


def _rows(text: str) -> list[list[str]]:
    rows: list[list[str]] = []
    for piece in [text] if load_json(text) is not None else text.splitlines():
        value = load_json(piece)
        if value is None:
            line = _BULLET.sub("", piece).strip("| ")
            rows.append(line.split("|") if "|" in line else line.split(": ", 1))
        else:
            with suppress(RecursionError):  # nothing that deep names an entity
                rows += _json_rows(payload(value))
    return rows


def _json_rows(value: Any) -> Iterator[list[str]]:
    if isinstance(value, str):
        yield from _rows(value)
    elif isinstance(value, list):
        for item in value:
            yield from _json_rows(item)
    elif isinstance(value, dict):
        name = next((key for key in value if key.lower() in ("entity", "name")), None)
        if name is None:
            yield from ([key, *_strings(queries)] for key, queries in value.items())
        else:
            yield [as_text(value[name]), *_strings([value[key] for key in value if key != name])]


def _strings(value: Any) -> list[str]:
    if isinstance(value, list):
        return [text for item in value for text in _strings(item)]
    return [value] if isinstance(value, str) else []


def _no_needs(reply: Reply) -> str:
    if reply.problem or parse_needs(reply["searches"], 1):
        return reply.problem
    return "searches names no entity; write entity | query, one a line"
