"""FLARE: forward-looking active retrieval (Jiang et al., EMNLP 2023, arXiv 2305.06983)."""

from __future__ import annotations

import dspy

from cirag_dspy.modules.answers import concluded
from cirag_dspy.modules.draft import Draft
from cirag_dspy.modules.reader import NO_ANSWER, Reader, cite_answer
from cirag_dspy.modules.search import SearchIndex, interleave
from cirag_dspy.modules.streaming import tell
from cirag_dspy.modules.thoughts import ContinueThoughts, stated_answer, why_it_ends
from cirag_dspy.schema import Hop
from cirag_dspy.systems.base import Of, System
from cirag_dspy.systems.limits import require_at_least, require_share
from cirag_dspy.text import one_line


class FLARE(System):
    """Reasons sentence by sentence, and searches only where the LM is unsure of the sentence that it would write next.

    Each round drafts a sentence without passages (FLARE direct). If every token of it is probable enough, it stands;
    else it is searched for without the improbable words, and written again with the passages found. As in the port that
    the CIRAG paper compares with (appendix B.3), nothing is retrieved before the first draft. ``k`` and ``max_hops``
    are those of all iterative baselines of the CIRAG paper (section 4.3), ``threshold`` that of the port.

    Where the chain ends without an answer, a reader gives one from the ``k`` best passages found; where nothing was
    searched for, from those of the question.

    Args:
        index: What is searched.
        k: Passages per search.
        max_hops: Sentences of the chain at most.
        threshold: A token is sure if its probability is above this; 0 to 1.
    """

    threshold = Of("draft", "threshold")

    def __init__(self, index: SearchIndex, *, k: int = 10, max_hops: int = 4, threshold: float = 0.2) -> None:
        super().__init__()
        require_at_least(1, k=k, max_hops=max_hops)
        require_share(threshold=threshold)
        self.index = index
        self.k = k
        self.max_hops = max_hops
        self.draft = Draft(threshold)
        self.reason = ContinueThoughts()
        self.reader = Reader()

    def forward(self, question: str) -> dspy.Prediction:
        """Answer ``question``.

        Returns:
            A prediction with ``answer``; ``answered`` (the chain's answer; the reader's if it stands in a passage);
            ``level`` (``thoughts`` for an answer that the chain states, ``default`` for the reader's); ``citations``
            (retrieved sentences with the answer); ``hops``, whose ``query`` is empty where the draft stood;
            ``passages`` (ids, by their best rank in a search); ``stopped`` (``answered``, ``repeated_thought``,
            ``max_hops`` or ``unreadable``).

        Raises:
            ModelError: The LM gives no log-probabilities.
        """
        question = one_line(question)
        hops, stopped = self._reason(question)
        stated, level = stated_answer(hops[-1].thought), "thoughts"
        given = concluded(stated, question, forced=False)
        answer = given["answer"]
        if not answer and not any(hop.query for hop in hops):
            hops.append(Hop(question, self._search(question), (), "", (), ""))
        passages = list(self.index.passages(interleave(hop.passage_ids for hop in hops)).values())
        if not answer:
            read = passages[: self.k]
            given, level = (self.reader(question=question, passages=read) if read else NO_ANSWER), "default"
        return dspy.Prediction(
            answer=given["answer"],
            answered=given["answered"],
            level=level,
            citations=cite_answer(given["answer"], passages),
            hops=hops,
            passages=[passage.id for passage in passages],
            stopped=stopped,
        )

    def _reason(self, question: str) -> tuple[list[Hop], str]:
        hops: list[Hop] = []
        stopped = ""
        while not stopped:
            thoughts = [hop.thought for hop in hops]
            step = self.draft(question=question, thoughts=thoughts)
            query = step.query
            ids = self._search(query) if query else ()
            if ids:
                passages = list(self.index.passages(ids).values())
                step = self.reason(question=question, passages=passages, thoughts=thoughts)
            hops.append(Hop(query, ids, (), step.thought, (), "", step.error))
            stopped = why_it_ends(hops, self.max_hops)
        return hops, stopped

    def _search(self, query: str) -> tuple[str, ...]:
        tell("hop", query=query)
        return tuple(hit.passage.id for hit in self.index.search(query, self.k))
