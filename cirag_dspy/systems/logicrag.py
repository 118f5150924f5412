"""LogicRAG (arXiv 2508.06105): the sub-problems of a question in the order of their logic, one summary that grows."""

from __future__ import annotations

import dspy

from cirag_dspy.modules.answers import concluded
from cirag_dspy.modules.notes_reader import NotesReader
from cirag_dspy.modules.reader import Reader, cite_answer, passage_line
from cirag_dspy.modules.search import SearchIndex
from cirag_dspy.modules.subproblems import Check, Order
from cirag_dspy.modules.summarise import Refine
from cirag_dspy.modules.trail import Trail
from cirag_dspy.systems.base import System
from cirag_dspy.systems.limits import require_at_least
from cirag_dspy.text import is_refusal, one_line


class LogicRAG(System):
    """Answers from a summary of what it finds, one sub-problem after the other.

    What is found for the question is summarised. If the summary doesn't answer it, the sub-problems left are put in the
    order of their dependencies and looked up in turn; each refines the summary, until it suffices. Unlike the
    original's, a check that can't be read counts as no, and the passages reported are those of all searches.

    Args:
        index: What is searched.
        k: Passages per search.
        max_hops: Sub-problems looked up at most.
    """

    def __init__(self, index: SearchIndex, *, k: int = 5, max_hops: int = 3) -> None:
        super().__init__()
        require_at_least(1, k=k, max_hops=max_hops)
        self.index = index
        self.k = k
        self.max_hops = max_hops
        self.refine = Refine()
        self.check = Check()
        self.order = Order()
        self.answer = NotesReader()
        self.default = Reader()

    def forward(self, question: str) -> dspy.Prediction:
        """Answer ``question``.

        Returns:
            A prediction with ``answer``; ``answered`` (false after a refusal, or where it stands nowhere); ``level``
            (``summary``, or ``default`` for an answer forced from the passages); ``thought`` (the summary);
            ``citations`` (sentences with the answer); ``passages`` (ids, ranked over all searches); ``hops`` (one a
            search); ``stopped`` (``sufficient``; ``no_query``: all sub-problems were looked up; ``nothing_new``,
            ``max_hops`` or ``unreadable``).
        """
        question = one_line(question)
        trail, level = Trail(self.index, self.k), "summary"
        summary, stopped = self._solve(question, trail)
        passages = trail.passages()
        answer = self.answer(question=question, notes=[summary]).answer if summary else ""
        if passages and is_refusal(answer):
            answer, level = self.default(question=question, passages=passages[: self.k]).answer, "default"
        lines = [summary, *map(passage_line, passages)]
        given = concluded(answer, question, lines, forced=True, refused=level == "default")
        return dspy.Prediction(
            **given,
            level=level,
            thought=summary,
            citations=cite_answer(given["answer"], passages),
            passages=[passage.id for passage in passages],
            hops=trail.hops,
            stopped=stopped,
        )

    def _solve(self, question: str, trail: Trail) -> tuple[str, str]:
        """The summary, and why the loop ended."""
        found = trail.search(question)
        if not found:
            return "", "nothing_new"
        summary = self.refine(question=question, summary="", point=question, passages=found).summary
        check = self.check(question=question, summary=summary)
        if check.sufficient:
            return summary, "sufficient"
        if not check.missing:
            return summary, "unreadable"
        open_problems = self.order(question=question, problems=check.missing).problems
        todo = [problem for problem in open_problems if not trail.asked(problem)]
        for problem in todo[: self.max_hops]:
            found = trail.search(problem)
            summary = self.refine(question=question, summary=summary, point=problem, passages=found).summary
            if self.check(question=question, summary=summary).sufficient:
                return summary, "sufficient"
        return summary, "max_hops" if len(todo) > self.max_hops else "no_query"
