"""IRCoT: retrieval interleaved with chain-of-thought (arXiv 2212.10509), by the rules of the official code."""

from __future__ import annotations

import dspy

from cirag_dspy.modules.next_thought import Think, is_conclusion, states_answer
from cirag_dspy.modules.reader import Reader, cite_answer
from cirag_dspy.modules.search import SearchIndex
from cirag_dspy.schema import Hop, Passage
from cirag_dspy.text import match_key, one_line


class IRCoT(dspy.Module):
    """Reasons a sentence at a time, and searches with each sentence for what the next one needs.

    Passages accumulate. When the reasoning states an answer, a separate reader answers from all of them.

    Args:
        index: What is searched.
        k: Passages a search.
        max_hops: Sentences of reasoning at most, each but the last followed by a search.
        keep: Passages at most, the first ones found; a search that finds more adds none.
    """

    def __init__(self, index: SearchIndex, *, k: int = 5, max_hops: int = 5, keep: int = 15) -> None:
        super().__init__()
        for name, value in (("k", k), ("max_hops", max_hops), ("keep", keep)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        self.index = index
        self.k = k
        self.max_hops = max_hops
        self.keep = keep
        self.think = Think()
        self.reader = Reader()

    def forward(self, question: str) -> dspy.Prediction:
        """Answer ``question``.

        Returns:
            A prediction with ``answer``; ``level`` (always ``passages``); ``thought`` (the chain); ``citations``
            (sentences with the answer); ``passages`` (ids, in order of arrival); ``hops`` (a search each, with the
            thought that followed it); ``stopped`` (``answered``, ``repeated_thought``, ``max_hops``, ``unreadable`` or
            ``no_passages``).
        """
        question = one_line(question)
        passages: dict[str, Passage] = {}
        hops: list[Hop] = []
        thoughts: list[str] = []
        query, stopped = question, ""
        while not stopped:
            found = self._search(query, passages) if query else ()
            if not passages:
                return dspy.Prediction(
                    answer="", level="passages", thought="", citations=[], passages=[], hops=hops, stopped="no_passages"
                )
            step = self.think(question=question, passages=list(passages.values()), thoughts=thoughts)
            stopped = self._stopped(step, thoughts)
            thoughts += [step.thought] if step.thought else []
            # A conclusion is not searched with; reasoning goes on from the passages there are.
            upcoming = "" if stopped or is_conclusion(step.thought) else step.thought
            hops.append(Hop(query, found, (), step.thought, (), upcoming, step.error))
            query = upcoming
        read = list(passages.values())
        answer = self.reader(question=question, passages=read).answer
        return dspy.Prediction(
            answer=answer,
            level="passages",
            thought=" ".join(thoughts),
            citations=cite_answer(answer, read),
            passages=list(passages),
            hops=hops,
            stopped=stopped,
        )

    def _search(self, query: str, passages: dict[str, Passage]) -> tuple[str, ...]:
        """Search, and add what is new while there is room; the ids found."""
        hits = [hit.passage for hit in self.index.search(query, self.k)]
        for passage in hits:
            if len(passages) < self.keep:
                passages.setdefault(passage.id, passage)
        return tuple(passage.id for passage in hits)

    def _stopped(self, step: dspy.Prediction, thoughts: list[str]) -> str:
        """Why the chain ends with this step, if it does."""
        if not step.thought:
            return "unreadable"
        if states_answer(step.thought):
            return "answered"
        if match_key(step.thought) in map(match_key, thoughts):
            return "repeated_thought"
        return "max_hops" if len(thoughts) + 1 == self.max_hops else ""
