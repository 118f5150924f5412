"""IRCoT: retrieval interleaved with chain of thought (Trivedi et al., ACL 2023, arXiv 2212.10509)."""

from __future__ import annotations

import dspy

from cirag_dspy.modules.reader import NO_ANSWER, Reader, cite_answer
from cirag_dspy.modules.search import SearchIndex, interleave
from cirag_dspy.modules.streaming import tell
from cirag_dspy.modules.thoughts import ContinueThoughts, is_inference, stated_answer, why_it_ends
from cirag_dspy.schema import Hop, Passage
from cirag_dspy.systems.base import System
from cirag_dspy.systems.limits import require_at_least
from cirag_dspy.text import one_line


class IRCoT(System):
    """Searches with the question, then with each sentence of a chain of thought over all that was found; at the end a
    reader answers from what was collected, without the thoughts.

    The rules are those of the official code (StonyBrookNLP/ircot), not of the port that replaces its passages at each
    search: passages accumulate, each once, and the first ``keep`` stay; the first sentence of a reply counts; one
    that only concludes ("Thus ...") is not searched for, and the next is written over the passages there are. Passages
    are told apart by id, not by near match; an answer that is a refusal does not end the chain, a repetition does.
    ``k`` and ``keep`` are the official ones for HotpotQA; ``max_hops`` is that of all iterative baselines of the CIRAG
    paper (section 4.3; 10 sentences in the official code).

    Args:
        index: What is searched.
        k: Passages per search.
        keep: Passages collected at most.
        max_hops: Sentences of the chain at most, each with the search before it.
    """

    def __init__(self, index: SearchIndex, *, k: int = 6, keep: int = 15, max_hops: int = 4) -> None:
        super().__init__()
        require_at_least(1, k=k, keep=keep, max_hops=max_hops)
        self.index = index
        self.k = k
        self.keep = keep
        self.max_hops = max_hops
        self.reason = ContinueThoughts()
        self.reader = Reader()

    def forward(self, question: str) -> dspy.Prediction:
        """Answer ``question``.

        Returns:
            A prediction with ``answer``; ``answered`` (whether it stands in a passage); ``level`` (always
            ``passages``); ``citations`` (sentences with the answer); ``hops``, whose ``query`` is empty where a thought
            was not searched for; ``passages`` (ids of those collected, by their best rank in a search); ``stopped``
            (``answered``, ``repeated_thought``, ``max_hops``, ``unreadable``, or ``nothing_found``).
        """
        question = one_line(question)
        collected, hops, stopped = self._collect(question)
        ids = [id for id in interleave(hop.passage_ids for hop in hops) if id in collected]
        passages = [collected[id] for id in ids]
        given = self.reader(question=question, passages=passages) if passages else NO_ANSWER
        return dspy.Prediction(
            answer=given.answer,
            answered=given.answered,
            level="passages",
            citations=cite_answer(given.answer, passages),
            hops=hops,
            passages=ids,
            stopped=stopped,
        )

    def _collect(self, question: str) -> tuple[dict[str, Passage], list[Hop], str]:
        collected: dict[str, Passage] = {}
        hops: list[Hop] = []
        query, stopped = question, ""
        while not stopped:
            if query:
                tell("hop", query=query)
            found = [hit.passage for hit in self.index.search(query, self.k)] if query else []
            for passage in found:
                if len(collected) < self.keep:
                    collected.setdefault(passage.id, passage)
            if not collected:
                return collected, hops, "nothing_found"
            thoughts = [hop.thought for hop in hops]
            step = self.reason(question=question, passages=list(collected.values()), thoughts=thoughts)
            ids = tuple(passage.id for passage in found)
            searchable = not step.error and not stated_answer(step.thought) and not is_inference(step.thought)
            hops.append(Hop(query, ids, (), step.thought, (), step.thought if searchable else "", step.error))
            query, stopped = hops[-1].next_query, why_it_ends(hops, self.max_hops)
        return collected, hops, stopped
