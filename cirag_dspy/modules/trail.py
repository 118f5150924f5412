"""The searches of one question: what was asked in turn, and all that was found."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from cirag_dspy.modules.search import SearchIndex
from cirag_dspy.modules.streaming import tell
from cirag_dspy.schema import Hop, Passage
from cirag_dspy.text import match_key, one_line


class Trail:
    """Searches an index and remembers it. Made anew for each question.

    Args:
        index: What is searched.
        k: Passages per search.
    """

    def __init__(self, index: SearchIndex, k: int) -> None:
        self.hops: list[Hop] = []
        self._index = index
        self._k = k
        self._found: list[list[Passage]] = []

    def search(self, query: str, thought: str = "") -> list[Passage]:
        """The passages of ``query``, best first; ``thought`` says why it was asked."""
        query = one_line(query)
        tell("hop", query=query)
        passages = [hit.passage for hit in self._index.search(query, self._k)]
        self.hops.append(Hop(query, tuple(passage.id for passage in passages), (), thought, (), ""))
        self._found.append(passages)
        return passages

    def asked(self, query: str) -> bool:
        """Whether the same words were searched before."""
        return match_key(query) in {match_key(hop.query) for hop in self.hops}

    def passages(self) -> list[Passage]:
        """All passages found, each once, by their best rank in any search, earlier searches first."""
        return round_robin(self._found)


def round_robin(rankings: Sequence[Sequence[Passage]]) -> list[Passage]:
    """Rankings as one: the first of each, then the second of each, and so on; every passage once."""
    by_id: dict[str, Passage] = {}
    for row in zip_longest(*rankings):
        for passage in row:
            if passage is not None:
                by_id.setdefault(passage.id, passage)
    return list(by_id.values())
