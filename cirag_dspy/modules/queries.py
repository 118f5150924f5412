"""Search queries from a question: the fact that is missing, or the simple questions that it is made of (MetaRAG)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import dspy

from cirag_dspy.modules.ask import Reply, ask
from cirag_dspy.modules.base import Module
from cirag_dspy.modules.integrate import read_query
from cirag_dspy.replies.jsontext import load_json, payload
from cirag_dspy.signatures import RewriteQuery, SplitQuestion
from cirag_dspy.text import match_key, one_line

MOST_QUERIES = 4
_LEAD = re.compile(r"^\s*(?:[-*•]\s+|\(?\d{1,2}[.):]\s+|(?:sub-?)?(?:question|query|q)\s*\d*\s*[:.]\s+)", re.I)


class Rewrite(Module):
    """Writes one query for what is missing."""

    def __init__(self) -> None:
        super().__init__()
        self.rewrite = dspy.Predict(RewriteQuery)

    def forward(self, question: str, feedback: str) -> dspy.Prediction:
        """A prediction with ``query``; empty if there is none or the reply could not be read."""
        reply = ask(self.rewrite, {"question": one_line(question), "feedback": one_line(feedback) or "none"})
        return dspy.Prediction(query=read_query(reply["query"]))


class Split(Module):
    """Splits a question into simple ones."""

    def __init__(self) -> None:
        super().__init__()
        self.split = dspy.Predict(SplitQuestion)

    def forward(self, question: str, feedback: str) -> dspy.Prediction:
        """A prediction with ``queries``, at most ``MOST_QUERIES``; none if the reply could not be read."""
        inputs = {"question": one_line(question), "feedback": one_line(feedback) or "none"}
        reply = ask(self.split, inputs, check=_no_queries)
        return dspy.Prediction(queries=parse_queries(reply["queries"]))


def parse_queries(text: str, most: int = MOST_QUERIES) -> list[str]:
    """The queries of a list, each once, at most ``most``: one a line, numbered or bulleted, or JSON, of whose objects
    the first text counts.

    A line that ends in a colon announces the list. "None" is no query.
    """
    found: dict[str, str] = {}
    with suppress(RecursionError):  # JSON that deep lists no queries
        for line in _lines(text):
            query = read_query(_LEAD.sub("", line).strip(" ,[]"))
            if query and not query.endswith((":", "：")):
                found.setdefault(match_key(query), query)
    return list(found.values())[:most]


def _lines(value: Any) -> Iterator[str]:
    value = payload(value)
    if isinstance(value, dict):
        value = next((part for part in value.values() if isinstance(part, (str, list))), "")
    if isinstance(value, list):
        for item in value:
            yield from _lines(item)
    elif isinstance(value, str):
        for piece in [value] if load_json(value) is not None else value.splitlines():
            loaded = load_json(piece)
            yield from [piece] if loaded is None else _lines(loaded)


def _no_queries(reply: Reply) -> str:
    return reply.problem or ("" if parse_queries(reply["queries"]) else "queries has no question")
