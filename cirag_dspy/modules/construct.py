"""Construction phase (CIRAG section 3.3): query -> passages -> their triples -> ranked candidates."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import dspy

from cirag_dspy.modules.base import Module
from cirag_dspy.modules.extract import Extract, extract_missing
from cirag_dspy.modules.search import SearchIndex
from cirag_dspy.modules.streaming import tell
from cirag_dspy.schema import Triple


class Construct(Module):
    """Retrieves the top-K passages of a query and the top-N of their triples.

    Args:
        index: What is searched.
        extract: Extracts the triples of passages that have none yet, at query time; ``None`` leaves those out.
        k: Passages per query (K).
        n: Candidate triples per query (N).
        rank: Whether candidates are ranked against the query by the retriever; if not, all triples of the passages are
            candidates, in their order (the paper's ablation "w/o reranker", section 4.5).
        threads: LM calls at a time for passages without triples.
    """

    def __init__(
        self,
        index: SearchIndex,
        extract: Extract | None = None,
        *,
        k: int = 10,
        n: int = 30,
        rank: bool = True,
        threads: int = 8,
    ) -> None:
        super().__init__()
        self.index = index
        self.extract = extract
        self.k = k
        self.n = n
        self.rank = rank
        self.threads = threads

    def forward(self, query: str, exclude: Collection[Triple] = ()) -> dspy.Prediction:
        """Candidates for ``query``.

        Args:
            query: The current query a_t.
            exclude: Triples already in the evidence, which are not offered again.

        Returns:
            A prediction with ``passages`` (ids, best first) and ``candidates`` (triples: the N best, or all).
        """
        tell("hop", query=query)
        hits = self.index.search(query, self.k)
        ids = [hit.passage.id for hit in hits]
        if self.extract is not None:
            extract_missing(self.index, self.extract, [hit.passage for hit in hits], threads=self.threads)
        ordered = distinct_facts(self.index, ids, exclude)
        tell("facts", facts=len(ordered), passages=len(ids))
        candidates = self.index.rank(query, ordered, self.n) if self.rank else ordered
        return dspy.Prediction(passages=ids, candidates=candidates)


def distinct_facts(index: SearchIndex, passage_ids: Sequence[str], exclude: Collection[Triple] = ()) -> list[Triple]:
    """The triples of passages in the passages' order, without the facts of ``exclude``.

    The same words from two passages are one fact to the reader of a prompt; the better passage keeps it.
    """
    found = index.triples(passage_ids)
    taken = {triple.text for triple in exclude}
    by_text: dict[str, Triple] = {}
    for triple in (triple for passage in passage_ids for triple in found.get(passage, ())):
        if triple.text not in taken:
            by_text.setdefault(triple.text, triple)
    return list(by_text.values())
