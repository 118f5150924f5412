"""KiRAG: knowledge-driven iterative retrieval (arXiv 2502.18397), as a DSPy program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import dspy

from cirag_dspy.modules.chain import Constructor, aligner_query, search_query
from cirag_dspy.modules.construct import distinct_facts
from cirag_dspy.modules.extract import Extract, extract_missing
from cirag_dspy.modules.reader import NO_ANSWER, Reader, cite_answer
from cirag_dspy.modules.search import SearchIndex
from cirag_dspy.modules.streaming import tell
from cirag_dspy.schema import Evidence, Hop, Triple
from cirag_dspy.systems.base import System
from cirag_dspy.systems.limits import require_at_least
from cirag_dspy.text import one_line


class KiRAG(System):
    """Builds a chain of triples, one a step, and ranks passages by the triples it came across.

    Each step retrieves passages for the question and the last triple of the chain. The aligner ranks the triples of all
    passages so far against the question and the chain; the constructor completes the chain from the best ones, and the
    first triple of its completion is appended. A reader then answers from the best passages. Defaults are the paper's
    (appendix B.3). The aligner is the index's ranking of triples: with the one that ``cirag-dspy align`` trains, it is
    the paper's.

    Args:
        index: What is searched; the module never builds it.
        k: Passages retrieved per step (K0).
        n: Candidate triples per step (N).
        max_hops: Steps at most (L).
        read: Passages the reader gets.
        extract: How triples of passages without any are extracted at query time: in ``"one"`` call a passage, in
            ``"two"``, or ``None``, not at all.
        threads: LM calls at a time for that extraction.
    """

    def __init__(
        self,
        index: SearchIndex,
        *,
        k: int = 10,
        n: int = 20,
        max_hops: int = 5,
        read: int = 3,
        extract: Literal["one", "two"] | None = "one",
        threads: int = 8,
    ) -> None:
        super().__init__()
        require_at_least(1, k=k, n=n, max_hops=max_hops, read=read, threads=threads)
        self.index = index
        self.k = k
        self.n = n
        self.max_hops = max_hops
        self.read = read
        self.threads = threads
        self.extract = Extract(extract) if extract else None
        self.constructor = Constructor()
        self.reader = Reader()

    def forward(self, question: str) -> dspy.Prediction:
        """Answer ``question``.

        Returns:
            A prediction with ``answer``; ``answered`` (whether it stands in a passage read); ``level`` (always
            ``passages``); ``triples`` (the chain); ``citations`` (the chain's sentences, and those of the passages read
            that hold the answer); ``hops`` (a step each, ``core`` its triple); ``passages`` (ids, ranked: section 3.3);
            ``stopped`` (``complete``, ``nothing_new``, ``max_hops`` or ``unreadable``).
        """
        question = one_line(question)
        chain: list[Triple] = []
        scores: dict[Triple, float] = {}
        retrieved: dict[str, None] = {}
        hops: list[Hop] = []
        stopped = ""
        while not stopped:
            query = search_query(question, chain)
            found = self._retrieve(query)
            retrieved |= dict.fromkeys(found)
            facts = distinct_facts(self.index, list(retrieved), exclude=chain)
            tell("facts", facts=len(facts), passages=len(retrieved))
            ranked = self.index.rank_scored(aligner_query(question, chain), facts, self.n)
            for triple, score in ranked:
                scores[triple] = max(score, scores.get(triple, score))
            candidates = [triple for triple, _ in ranked]
            if not candidates:
                stopped = "nothing_new"
                break
            step = self.constructor(question=question, chain=chain, candidates=candidates)
            core = (step.triple,) if step.triple else ()
            hops.append(Hop(query, tuple(found), tuple(candidates), "", core, "", step.error))
            chain += core
            if not core:
                stopped = "unreadable" if step.error else "complete"
            elif len(hops) == self.max_hops:
                stopped = "max_hops"
        passages = _ranked(list(retrieved), chain, scores)
        read = list(self.index.passages(passages[: self.read]).values())
        given = self.reader(question=question, passages=read) if read else NO_ANSWER
        evidence = Evidence()
        evidence.add(chain)
        citations = [*evidence.cite(self.index.passages(evidence.passage_ids())), *cite_answer(given.answer, read)]
        return dspy.Prediction(
            answer=given.answer,
            answered=given.answered,
            level="passages",
            citations=list(dict.fromkeys(citations)),
            hops=hops,
            triples=chain,
            passages=passages,
            stopped=stopped,
        )

    def _retrieve(self, query: str) -> list[str]:
        """Ids of the passages nearest to ``query``, their triples extracted."""
        tell("hop", query=query)
        passages = [hit.passage for hit in self.index.search(query, self.k)]
        if self.extract is not None:
            extract_missing(self.index, self.extract, passages, threads=self.threads)
        return [passage.id for passage in passages]


def _ranked(retrieved: Sequence[str], chain: Sequence[Triple], scores: Mapping[Triple, float]) -> list[str]:
    """Passages by the best score of their triples (section 3.3), those of the chain before those of candidates only;
    passages without either come last, as they were retrieved.
    """
    best: dict[str, tuple[bool, float]] = {}
    for triple, score in scores.items():
        best[triple.passage_id] = max(best.get(triple.passage_id, (False, score)), (triple in chain, score))
    return sorted(retrieved, key=lambda id: best.get(id, (False, float("-inf"))), reverse=True)
