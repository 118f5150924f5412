"""ReAct: thoughts, searches and observations in turn (arXiv 2210.03629), over the index instead of Wikipedia's pages.

``dspy.ReAct`` is not used: each of its prompts holds the whole trajectory anew, where a ``dspy.History`` repeats its
prefix, and its tool calls leave no hops, no passages and no citations.
"""

from __future__ import annotations

import dspy

from cirag_dspy.modules.act import Actor, Turn
from cirag_dspy.modules.reader import Reader, cite_answer
from cirag_dspy.modules.search import SearchIndex
from cirag_dspy.schema import Hop, Passage
from cirag_dspy.text import match_key, one_line


class ReAct(dspy.Module):
    """Thinks, searches, reads what was found, and goes on until it finishes with an answer.

    Where it does not (the limit, a search made before, a reply that can't be read), a reader answers from the passages
    found.

    Args:
        index: What is searched.
        k: Passages a search, shown whole.
        max_hops: Turns at most, the one that finishes included. The original takes 7 on HotpotQA.
    """

    def __init__(self, index: SearchIndex, *, k: int = 3, max_hops: int = 7) -> None:
        super().__init__()
        for name, value in (("k", k), ("max_hops", max_hops)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        self.index = index
        self.k = k
        self.max_hops = max_hops
        self.actor = Actor()
        self.reader = Reader()

    def forward(self, question: str) -> dspy.Prediction:
        """Answer ``question``.

        Returns:
            A prediction with ``answer``; ``level`` (``passages`` where it finished by itself, else ``default``);
            ``thought`` (the last one); ``citations`` (sentences with the answer); ``passages`` (ids, in order of
            arrival); ``hops`` (a search each); ``stopped`` (``finished``, ``max_hops``, ``repeated_query`` or
            ``unreadable``).
        """
        question = one_line(question)
        passages: dict[str, Passage] = {}
        hops: list[Hop] = []
        turns: list[Turn] = []
        found: list[Passage] = []
        answer, thought, stopped = "", "", "max_hops"
        for _ in range(self.max_hops):
            step = self.actor(question=question, found=found, turns=turns)
            turns.append(step.turn)
            thought, answer = step.thought, step.answer
            if answer or not step.query:
                stopped = "finished" if answer else "unreadable"
                break
            if match_key(step.query) in (match_key(hop.query) for hop in hops):
                stopped = "repeated_query"
                break
            found = [hit.passage for hit in self.index.search(step.query, self.k)]
            passages |= {passage.id: passage for passage in found}
            hops.append(Hop(step.query, tuple(passage.id for passage in found), (), thought, (), ""))
        if not answer and not passages:  # nothing was searched, or nothing found: the question is the query left
            passages = {hit.passage.id: hit.passage for hit in self.index.search(question, self.k)}
            hops.append(Hop(question, tuple(passages), (), "", (), ""))
        read = list(passages.values())
        level = "passages" if answer else "default"
        if not answer and read:
            answer = self.reader(question=question, passages=read).answer
        return dspy.Prediction(
            answer=answer,
            level=level,
            thought=thought,
            citations=cite_answer(answer, read),
            passages=list(passages),
            hops=hops,
            stopped=stopped,
        )
