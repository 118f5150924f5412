"""Construction phase (CIRAG section 3.3): query -> passages -> their triples -> ranked candidates."""

from __future__ import annotations

from collections.abc import Collection

import dspy

from cirag_dspy.modules.extract import Extract, extract_missing
from cirag_dspy.modules.search import SearchIndex
from cirag_dspy.schema import Triple


class Construct(dspy.Module):
    """Retrieves the top-K passages of a query and the top-N of their triples.

    Args:
        index: What is searched.
        extract: Extracts the triples of passages that have none yet, at query time; ``None`` leaves those out.
        k: Passages per query (K).
        n: Candidate triples per query (N).
        rank: Whether candidates are ranked against the query by the retriever; if not, they come in the order of their
            passages (the paper's ablation "w/o ranker").
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
            A prediction with ``passages`` (ids, best first) and ``candidates`` (triples, best first, at most N).
        """
        hits = self.index.search(query, self.k)
        ids = [hit.passage.id for hit in hits]
        if self.extract is not None:
            extract_missing(self.index, self.extract, [hit.passage for hit in hits], threads=self.threads)
        found = self.index.triples(ids)
        # The same words from two passages are one fact to the reader of the prompt; the better passage keeps it.
        by_text = {triple.text: triple for passage in reversed(ids) for triple in reversed(found.get(passage, ()))}
        taken = {triple.text for triple in exclude}
        ordered = [t for p in ids for t in found.get(p, ()) if by_text[t.text] is t and t.text not in taken]
        candidates = self.index.rank(query, ordered, self.n) if self.rank else ordered[: self.n]
        return dspy.Prediction(passages=ids, candidates=candidates)
