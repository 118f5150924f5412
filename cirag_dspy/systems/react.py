"""ReAct: reasoning and acting in turns (Yao et al., ICLR 2023, arXiv 2210.03629)."""

from __future__ import annotations

import dspy

from cirag_dspy.modules.act import Act
from cirag_dspy.modules.answers import concluded, is_answer
from cirag_dspy.modules.reader import NO_ANSWER, Reader, cite_answer, passage_line, read_answer
from cirag_dspy.modules.search import SearchIndex, interleave
from cirag_dspy.modules.streaming import tell
from cirag_dspy.schema import Hop
from cirag_dspy.systems.base import System
from cirag_dspy.systems.limits import require_at_least
from cirag_dspy.text import match_key, one_line


class ReAct(System):
    """An agent that thinks, then searches or finishes, each round a turn of one conversation.

    One action does for the paper's ``search`` and ``lookup``: our passages are shown whole. At the limit the paper's
    agent gives no answer; here a reader gives one from all passages found, or, where nothing was searched for, from
    those of the question. ``max_hops`` is the paper's for HotpotQA.

    Not ``dspy.ReAct``: its actions are a name and JSON arguments in two fields, a reply that can't be parsed ends its
    trajectory and is not asked for again, its trajectory is one growing field instead of turns whose prefix repeats,
    and it always pays for one more call to extract the answer.

    Args:
        index: What is searched.
        k: Passages per search.
        max_hops: Rounds at most.
    """

    def __init__(self, index: SearchIndex, *, k: int = 3, max_hops: int = 7) -> None:
        super().__init__()
        require_at_least(1, k=k, max_hops=max_hops)
        self.index = index
        self.k = k
        self.max_hops = max_hops
        self.act = Act()
        self.reader = Reader()

    def forward(self, question: str) -> dspy.Prediction:
        """Answer ``question``.

        Returns:
            A prediction with ``answer``; ``answered`` (the agent's answer; the reader's if it stands in a passage and
            the agent had not refused); ``level`` (``thoughts`` for the agent's own answer, ``default`` for the
            reader's); ``citations`` (retrieved sentences with the answer); ``hops``, one a round, whose ``query`` is
            empty where nothing was searched for; ``passages`` (ids, by their best rank in a search); ``stopped``
            (``finished``, ``repeated_query``, ``max_hops`` or ``unreadable``).
        """
        question = one_line(question)
        answer, hops, stopped = self._act(question)
        if not is_answer(answer, question) and not any(hop.query for hop in hops):
            hops.append(Hop(question, self._search(question), (), "", (), ""))
        passages = list(self.index.passages(interleave(hop.passage_ids for hop in hops)).values())
        given, level = concluded(answer, question, list(map(passage_line, passages)), forced=False), "thoughts"
        if not given["answer"]:
            refused = stopped == "finished"  # it ended its search to say that there is no answer
            read = self.reader(question=question, passages=passages) if passages else NO_ANSWER
            given, level = {"answer": read.answer, "answered": read.answered and not refused}, "default"
        return dspy.Prediction(
            **given,
            level=level,
            citations=cite_answer(given["answer"], passages),
            hops=hops,
            passages=[passage.id for passage in passages],
            stopped=stopped,
        )

    def _act(self, question: str) -> tuple[str, list[Hop], str]:
        """The agent's answer (maybe none), its rounds, and why they ended."""
        hops: list[Hop] = []
        seen: list[str] = []
        observation = "nothing searched for yet"
        while len(hops) < self.max_hops:
            step = self.act(question=question, observation=observation, hops=hops, seen=seen)
            repeated = match_key(step.query) in {match_key(hop.query) for hop in hops}
            if step.error or not step.query or repeated:
                hops.append(Hop("", (), (), step.thought, (), step.query, step.error))
                answer = read_answer(step.answer)
                stopped = "unreadable" if step.error else "repeated_query" if repeated else "finished"
                return answer, hops, stopped
            ids = self._search(step.query)
            hops.append(Hop(step.query, ids, (), step.thought, (), ""))
            seen.append(observation)
            observation = "\n".join(map(passage_line, self.index.passages(ids).values())) or "nothing found"
        return "", hops, "max_hops"

    def _search(self, query: str) -> tuple[str, ...]:
        tell("hop", query=query)
        return tuple(hit.passage.id for hit in self.index.search(query, self.k))
