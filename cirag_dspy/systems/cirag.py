"""CIRAG: construction-integration retrieval and adaptive generation (arXiv 2601.06799), as a DSPy program."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import dspy

from cirag_dspy.modules.cascade import LEVELS, Cascade
from cirag_dspy.modules.construct import Construct
from cirag_dspy.modules.extract import Extract
from cirag_dspy.modules.grounding import connected
from cirag_dspy.modules.integrate import Integration
from cirag_dspy.modules.reader import cite_answer
from cirag_dspy.modules.search import SearchIndex, interleave
from cirag_dspy.schema import Citation, Evidence, Hop, Level, Triple
from cirag_dspy.systems.base import Of, System
from cirag_dspy.systems.limits import require_at_least
from cirag_dspy.text import content_words, match_key, one_line


class CIRAGModule(System):
    """Answers multi-hop questions over an index, with citations down to the sentence.

    Each hop retrieves passages for the current query, ranks their triples (construction), keeps the core ones and asks
    for what is missing (integration). Then the answer is read from the triples, or, where they don't suffice, from the
    sentences or the passages they came from (cascade). Defaults are the paper's (appendix B.4).

    Args:
        index: What is searched; the module never builds it.
        k: Passages retrieved per hop (K).
        n: Candidate triples per hop (N).
        max_hops: Hops at most (L).
        levels: Granularities of the cascade, of ``triples``, ``sentences`` and ``passages``.
        rank: Whether the retriever ranks the triples, and the best N are the candidates; if not, all are.
        min_hops: Hops at least, as long as there is something new to show. Where the integrator asks for nothing
            before, or again for the same, the next hop searches with the question and the newest name in the evidence,
            and shows only what is new. 1 is the paper's; more is meant for small models, which stop too early.
        grounded: Whether a core triple must be about something that the question or another one names, and an answer
            stand in the evidence of its level (yes, no and what the question itself says excepted). Not in the
            paper; meant for small models, which keep facts and give answers of other things.
        core: How the integrator names the candidates that it keeps: by their ``"numbers"``, after a thought, or by
            their ``"text"``, copied, which is meant for small models.
        extract: How triples of passages without any are extracted at query time: in ``"one"`` call a passage, in
            ``"two"`` (the paper's prompts), or ``None``, not at all.
        threads: LM calls at a time for that extraction.
    """

    k = Of("construct", "k")
    n = Of("construct", "n")
    rank = Of("construct", "rank")
    threads = Of("construct", "threads")
    extract = Of("construct", "extract")
    core = Of("integration", "core")
    levels = Of("cascade", "levels")
    grounded = Of("cascade", "grounded")

    def __init__(
        self,
        index: SearchIndex,
        *,
        k: int = 10,
        n: int = 30,
        max_hops: int = 4,
        levels: Sequence[Level] = LEVELS,
        rank: bool = True,
        min_hops: int = 1,
        grounded: bool = False,
        core: Literal["numbers", "text"] = "numbers",
        extract: Literal["one", "two"] | None = "one",
        threads: int = 8,
    ) -> None:
        super().__init__()
        require_at_least(1, k=k, n=n, max_hops=max_hops, min_hops=min_hops, threads=threads)
        if core not in ("numbers", "text"):
            raise ValueError(f"core must be numbers or text, not {core}")
        self.index = index
        self.max_hops = max_hops
        self.min_hops = min_hops
        extractor = Extract(extract) if extract else None
        self.construct = Construct(index, extractor, k=k, n=n, rank=rank, threads=threads)
        self.integration = Integration(core)
        self.cascade = Cascade(index, levels=levels, grounded=grounded)

    def forward(self, question: str) -> dspy.Prediction:
        """Answer ``question``.

        Returns:
            A prediction with ``answer``; ``answered`` (false where every level refused, or the reply is no answer:
            see ``modules.answers``); ``level`` (``triples``, ``sentences``, ``passages`` or ``default``);
            ``citations`` (the sentences it rests on); ``hops`` (``Hop``); ``triples`` (the evidence pool);
            ``passages`` (ids, ranked: those of the evidence, then the others retrieved); ``stopped`` (why the loop
            ended: ``no_query``, ``repeated_query``, ``nothing_new``, ``max_hops`` or ``unreadable``).
        """
        question = one_line(question)
        evidence, hops, retrieved, stopped = self._gather(question)
        passages = _ranked(evidence, retrieved)
        answered = self.cascade(question=question, evidence=evidence, retrieved=passages)
        return dspy.Prediction(
            answer=answered.answer,
            answered=answered.answered,
            level=answered.level,
            thought=answered.thought,
            citations=self._cite(evidence, answered),
            hops=hops,
            triples=evidence.triples,
            passages=passages,
            stopped=stopped,
        )

    def _gather(self, question: str) -> tuple[Evidence, list[Hop], list[list[str]], str]:
        """The iterative construction-integration loop. It always ends: at L hops at the latest."""
        evidence = Evidence()
        hops: list[Hop] = []
        retrieved: list[list[str]] = []
        shown: set[Triple] = set()
        asked = {match_key(question)}
        query, hide = question, frozenset[Triple]()
        while True:
            built = self.construct(query=query, exclude=hide.union(evidence.triples))
            retrieved.append(built.passages)
            if not built.candidates:
                return evidence, hops, retrieved, "nothing_new"
            step = self.integration(question=question, query=query, candidates=built.candidates, hops=hops)
            core = connected(question, evidence.triples, step.core) if self.grounded else step.core
            evidence.add(core)
            stalled = not step.next_query or match_key(step.next_query) in asked
            insisting = stalled and not step.error and len(hops) + 1 < min(self.min_hops, self.max_hops)
            next_query = _onward(question, evidence, asked) if insisting else step.next_query
            hops.append(
                Hop(
                    query=query,
                    passage_ids=tuple(built.passages),
                    candidates=tuple(built.candidates),
                    thought=step.thought,
                    core=tuple(core),
                    next_query=next_query,
                    error=step.error,
                )
            )
            query = next_query
            if step.error:
                return evidence, hops, retrieved, "unreadable"
            if not query:
                return evidence, hops, retrieved, "no_query"
            # Facts shown before may become core once a name is known, so they are worth one more look; not two.
            if not core and shown.issuperset(built.candidates):
                return evidence, hops, retrieved, "nothing_new"
            shown.update(built.candidates)
            hide = frozenset(shown) if insisting else frozenset()
            if stalled and not insisting:
                return evidence, hops, retrieved, "repeated_query"
            if len(hops) == self.max_hops:
                return evidence, hops, retrieved, "max_hops"
            asked.add(match_key(query))

    def _cite(self, evidence: Evidence, answered: dspy.Prediction) -> list[Citation]:
        """The evidence's sentences; at the passage level, also those that hold the answer."""
        context = self.index.passages(list(dict.fromkeys([*answered.context, *evidence.passage_ids()])))
        citations = list(evidence.cite(context))
        if answered.level in ("passages", "default"):
            citations += cite_answer(answered.answer, list(context.values()))
        return list(dict.fromkeys(citations))


def _onward(question: str, evidence: Evidence, asked: Collection[str]) -> str:
    """A query where there is none: the question, with the newest name in the evidence that it was not asked with."""
    for name in (name for triple in reversed(evidence.triples) for name in (triple.tail, triple.head)):
        query = f"{question} {one_line(name)}"
        # Dates, numbers and common nouns lead to passages about something else.
        is_name = not any(map(str.isdigit, name)) and (name != name.lower() or name == name.upper())
        if is_name and not content_words(name) <= content_words(question) and match_key(query) not in asked:
            return query
    return question


def _ranked(evidence: Evidence, retrieved: Sequence[Sequence[str]]) -> list[str]:
    """Evidence passages in order of arrival, then the others by their best rank in any hop, earlier hops first."""
    return list(dict.fromkeys([*evidence.passage_ids(), *interleave(retrieved)]))
