"""What modules and systems need of an index. ``cirag_dspy.corpus.CorpusIndex`` is one; any object with these methods
will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from cirag_dspy.schema import Extraction, ExtractionState, Hit, Passage, Tries, Triple


class SearchIndex(Protocol):
    """Passages that can be searched, with their triples. Thread-safe."""

    def search(self, query: str, k: int) -> list[Hit]:
        """The ``k`` passages nearest to ``query``, best first."""

    def passages(self, ids: Sequence[str]) -> dict[str, Passage]:
        """Passages by id; unknown ids are left out."""

    def triples(self, passage_ids: Sequence[str]) -> dict[str, tuple[Triple, ...]]:
        """Triples of each passage, in the order of extraction."""

    def states(self, passage_ids: Sequence[str]) -> dict[str, ExtractionState]:
        """How far each passage's extraction is."""

    def tries(self, passage_ids: Sequence[str]) -> dict[str, Tries]:
        """What earlier extractions of passages cost for nothing; passages without any are left out."""

    def rank(self, query: str, triples: Sequence[Triple], n: int | None) -> list[Triple]:
        """The ``n`` triples nearest to ``query``, best first."""

    def rank_scored(self, query: str, triples: Sequence[Triple], n: int | None) -> list[tuple[Triple, float]]:
        """As ``rank``, each triple with its score, higher is nearer."""

    def keep(self, passage_id: str, extraction: Extraction) -> None:
        """Store a passage's extraction at once."""

    def extraction_lock(self, passage_id: str) -> AbstractContextManager[Any]:
        """A lock held while a passage is being extracted."""


def interleave(rankings: Iterable[Sequence[str]]) -> list[str]:
    """Ids by their best rank in any of the rankings, earlier rankings first."""
    places = sorted((rank, turn, id) for turn, ids in enumerate(rankings) for rank, id in enumerate(ids))
    return list(dict.fromkeys(id for _, _, id in places))
