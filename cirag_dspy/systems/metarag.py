"""MetaRAG (Zhou et al., WWW 2024): an answer is monitored, criticised, and given again after a plan to better it."""

from __future__ import annotations

import dspy

from cirag_dspy.modules.answers import concluded
from cirag_dspy.modules.critic import Critic, Recall, agreement
from cirag_dspy.modules.explain import Explain
from cirag_dspy.modules.queries import Rewrite, Split
from cirag_dspy.modules.reader import Reader, cite_answer, passage_line
from cirag_dspy.modules.search import SearchIndex
from cirag_dspy.modules.trail import Trail
from cirag_dspy.systems.base import System
from cirag_dspy.systems.limits import require_at_least, require_share
from cirag_dspy.text import is_refusal, normalize_answer, one_line, word_count

LONGEST_ANSWER = 10
STEP_BY_STEP = "Go step by step, and check each step against the passages."
PASSAGES_ONLY = "Rely strictly on the passages, not on what you know otherwise."
OWN_KNOWLEDGE = "Where the passages don't say it, use what you know."
PART_BY_PART = "Answer these questions first, then the whole:"


class MetaRAG(System):
    """Answers from passages, then thinks about its own answer.

    Monitor: the answer is accepted if it agrees with that of an expert. The original's expert is a T5 model trained on
    the task; here it is the same LM without the passages, the one other view that costs no model and no training. It
    agrees by word overlap where the original takes the cosine of two sentence embeddings. Critic: what is wrong with
    the answer, and whether the LM's own knowledge and the passages suffice. Plan, by these two: both, reason again step
    by step; own knowledge only, use it and search for what is missing; passages only, stick to them; neither, search
    for the parts of the question. A round that changes neither answer nor passages is the last.

    Args:
        index: What is searched.
        k: Passages per search.
        max_hops: Rounds of critic and plan at most.
        accept: The agreement with the expert above which an answer is accepted, 0 to 1.
    """

    def __init__(self, index: SearchIndex, *, k: int = 10, max_hops: int = 5, accept: float = 0.3) -> None:
        super().__init__()
        require_at_least(1, k=k, max_hops=max_hops)
        require_share(accept=accept)
        self.index = index
        self.k = k
        self.max_hops = max_hops
        self.accept = accept
        self.explain = Explain()
        self.recall = Recall()
        self.critic = Critic()
        self.rewrite = Rewrite()
        self.split = Split()
        self.default = Reader()

    def forward(self, question: str) -> dspy.Prediction:
        """Answer ``question``.

        Returns:
            A prediction with ``answer``; ``answered`` (false after a refusal, or where it stands nowhere); ``level``
            (``passages``, or ``default`` for an answer forced in the end); ``thought`` (its reason); ``citations``
            (sentences with the answer); ``passages`` (ids, ranked over all searches); ``hops`` (one a search);
            ``stopped`` (``agreed``, ``nothing_new`` or ``max_hops``).
        """
        question = one_line(question)
        trail, level = Trail(self.index, self.k), "passages"
        answer, reason, stopped = self._reflect(question, trail)
        passages = trail.passages()
        if passages and is_refusal(answer):
            answer, reason, level = self.default(question=question, passages=passages).answer, "", "default"
        given = concluded(answer, question, list(map(passage_line, passages)), forced=False, refused=level == "default")
        return dspy.Prediction(
            **given,
            level=level,
            thought=reason,
            citations=cite_answer(given["answer"], passages),
            passages=[passage.id for passage in passages],
            hops=trail.hops,
            stopped=stopped,
        )

    def _reflect(self, question: str, trail: Trail) -> tuple[str, str, str]:
        """The answer, its reason, and why the loop ended."""
        if not trail.search(question):
            return "", "", "nothing_new"
        first = self.explain(question=question, passages=trail.passages())
        answer, reason = first.answer, first.reason
        recalled = self.recall(question=question)
        rounds = 0
        while True:
            if agreement(answer, recalled.answer) > self.accept:
                return answer, reason, "agreed"
            if rounds == self.max_hops:
                return answer, reason, "max_hops"
            rounds += 1
            before = trail.passages()
            critique = self.critic(question=question, passages=before, reason=reason, answer=answer)
            advice = self._plan(question, critique, recalled.known, trail)
            again = self.explain(question=question, passages=trail.passages(), advice=advice)
            previous = answer
            # A long text is no answer, and a refusal no better one.
            if word_count(again.answer) <= LONGEST_ANSWER and not is_refusal(again.answer):
                answer, reason = again.answer, again.reason
            if normalize_answer(answer) == normalize_answer(previous) and trail.passages() == before:
                return answer, reason, "nothing_new"

    def _plan(self, question: str, critique: dspy.Prediction, known: bool, trail: Trail) -> str:
        """Search for what is missing, and advise on how to use what is there."""
        if critique.sufficient:
            plan, queries = (STEP_BY_STEP if known else PASSAGES_ONLY), []
        elif known:
            plan, queries = OWN_KNOWLEDGE, [self.rewrite(question=question, feedback=critique.feedback).query]
        else:
            queries = self.split(question=question, feedback=critique.feedback).queries
            plan = f"{PART_BY_PART} {' '.join(queries)}" if queries else STEP_BY_STEP
        for query in queries:
            if query and not trail.asked(query):
                trail.search(query, critique.feedback)
        return f"{critique.feedback} {plan}".strip()
