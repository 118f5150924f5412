"""D2F-ReAG: dynamic decomposition and filtering for reasoning-augmented generation (arXiv 2608.04444)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import dspy

from cirag_dspy.modules.answers import concluded
from cirag_dspy.modules.decompose import Decompose, Rewrite
from cirag_dspy.modules.judge import Relevance, Reliability
from cirag_dspy.modules.reader import cite_answer, passage_line
from cirag_dspy.modules.reason import Reason, Reasoning, Update
from cirag_dspy.modules.search import SearchIndex
from cirag_dspy.modules.streaming import tell
from cirag_dspy.schema import Citation, Hop, Passage
from cirag_dspy.systems.base import System
from cirag_dspy.systems.limits import require_at_least, require_share
from cirag_dspy.text import is_refusal, match_key, one_line

DEEPEST = 10


class D2FReAG(System):
    """Answers a question as it stands where that is reliable, and breaks it down only where it is not.

    (I) Passages are retrieved and reasoned from. (II) The reasoning is judged; above the threshold the question is
    solved. (III) Otherwise it is decomposed, and (IV) each sub-question is solved the same way. One that is not
    reliable is decomposed in its turn; a reliable one that is relevant to the root question updates the root reasoning.
    That is judged again: once it is reliable everything stops, until then the open sub-questions are rewritten with it.

    Where the paper is silent: the threshold (its case study solves at 0.8 and decomposes at 0.4); a limit of depth and
    of the sub-questions of one decomposition; and the answer of a root that never becomes reliable, here its reasoning
    with the best score, the latest of equals. Rewriting uses verified findings alone: the first sub-question is asked
    as it was decomposed.

    The paper's table 2 is one run split by ``level``: its "No D" are ``direct``, its "+D" the others (its means weigh
    them 65 to 35). ``max_depth=0`` never decomposes. ``threshold=1.0`` always does, but no finding counts as verified
    then, so it shows what decomposing costs, not what it is worth.

    Args:
        index: What is searched; the module never builds it.
        k: Passages per question and sub-question.
        threshold: A reasoning is reliable if its score, 0 to 1, is strictly above it (theta).
        max_depth: Levels of decomposition at most; 0 for none, 10 at most.
        max_subquestions: Sub-questions asked per decomposition at most, with those that rewriting adds.
    """

    def __init__(
        self,
        index: SearchIndex,
        *,
        k: int = 3,
        threshold: float = 0.7,
        max_depth: int = 2,
        max_subquestions: int = 5,
    ) -> None:
        super().__init__()
        require_at_least(1, k=k, max_subquestions=max_subquestions)
        require_at_least(0, max_depth=max_depth)
        if max_depth > DEEPEST:
            raise ValueError(f"max_depth must be at most {DEEPEST}, not {max_depth}: every level multiplies the calls")
        require_share(threshold=threshold)
        self.index = index
        self.k = k
        self.threshold = threshold
        self.max_depth = max_depth
        self.max_subquestions = max_subquestions
        self.reason = Reason()
        self.reliability = Reliability()
        self.decompose = Decompose()
        self.rewrite = Rewrite()
        self.relevance = Relevance()
        self.update = Update()

    def forward(self, question: str) -> dspy.Prediction:
        """Answer ``question``.

        Returns:
            A prediction with ``answer``; ``answered`` (false where it was never reliable and stands in no passage);
            ``level``: ``direct`` (reliable without decomposition), ``decomposed``
            (reliable after it) or ``fallback`` (never reliable: the best-scored reasoning); ``reasoning`` and
            ``reliability``, its score; ``citations`` (where the answer, and those of the sub-questions that led to it,
            stand); ``hops`` (one ``Hop`` a retrieval, its reasoning and score as the thought); ``passages`` (ids,
            ranked: those of retrievals that the root reasoning draws on, then the others, each by place in their
            retrieval); ``stopped``: ``reliable``, ``max_depth`` (no decomposition allowed), ``no_subquestions``,
            ``worked_off`` (all sub-questions asked) or ``no_passages`` (then no LM is called).
        """
        run = _Run()
        stopped = self._work(run, one_line(question))
        best = run.best()
        lines = [passage_line(passage) for step in run.steps for passage in step.passages]
        given = concluded(best.reasoning.answer, run.question, lines, forced=stopped != "reliable")
        return dspy.Prediction(
            **given,
            level="fallback" if stopped != "reliable" else "decomposed" if len(run.steps) > 1 else "direct",
            reasoning=best.reasoning.text,
            reliability=best.score,
            citations=run.cite(given["answer"]),
            hops=[step.hop() for step in run.steps],
            passages=run.ranked(),
            stopped=stopped,
        )

    def _work(self, run: _Run, question: str) -> str:
        """All four stages for the root question; says why they ended."""
        root = self._solve(run, question)
        run.adopt(root, root)
        if not root.passages:
            return "no_passages"
        if not self._reliable(root) and self.max_depth:
            self._decompose(run, question, 1)
        if self._reliable(run.root):
            return "reliable"
        if not self.max_depth:
            return "max_depth"
        return "worked_off" if len(run.steps) > 1 else "no_subquestions"

    def _solve(self, run: _Run, question: str) -> _Step:
        """Stages I and II for one question."""
        tell("hop", query=question)
        passages = tuple(hit.passage for hit in self.index.search(question, self.k))
        reasoning = Reasoning("", "")
        if passages:
            reasoning = self.reason(question=question, passages=passages).reasoning
        judged = self.reliability(question=question, reasoning=reasoning)
        step = _Step(question, passages, reasoning, judged.score, reasoning.error or judged.error)
        run.steps.append(step)
        return step

    def _decompose(self, run: _Run, question: str, depth: int) -> None:
        """Stages III and IV for a question without reliable reasoning. Ends at once when the root becomes reliable."""
        todo = self.decompose(question=question).questions[: self.max_subquestions]
        known = run.root
        for _ in range(self.max_subquestions):
            todo = run.unasked(todo)
            if todo and run.root is not known:
                known = run.root
                rewritten = self.rewrite(question=run.question, reasoning=known.reasoning, questions=todo)
                todo = run.unasked(rewritten.questions)
            if not todo:
                return
            step = self._solve(run, todo.pop(0))
            if self._reliable(step):
                self._augment(run, step)
            elif depth < self.max_depth:
                self._decompose(run, step.question, depth + 1)
            if self._reliable(run.root):
                return

    def _augment(self, run: _Run, step: _Step) -> None:
        """Stage IV: a reliable step that is relevant to the root question updates the root reasoning."""
        found = {"question": run.question, "subquestion": step.question, "finding": step.reasoning}
        if not self.relevance(**found).relevant:
            return
        updated = self.update(reasoning=run.root.reasoning, **found).reasoning
        if updated.answer:  # one that can't be read changes nothing
            score = self.reliability(question=run.question, reasoning=updated).score
            run.adopt(step, replace(run.root, reasoning=updated, score=score))

    def _reliable(self, step: _Step) -> bool:
        return step.score > self.threshold


@dataclass(frozen=True, slots=True)
class _Step:
    """A question or sub-question, what was retrieved for it, the reasoning about it, and how reliable that is."""

    question: str
    passages: tuple[Passage, ...]
    reasoning: Reasoning
    score: float
    error: str

    def hop(self) -> Hop:
        thought = f"{self.reasoning.line} (reliability {self.score:g})"
        return Hop(self.question, tuple(passage.id for passage in self.passages), (), thought, (), "", self.error)


@dataclass
class _Run:
    """A root question on its way: every step, those its reasoning draws on, and the root with each new reasoning."""

    steps: list[_Step] = field(default_factory=list)
    used: list[_Step] = field(default_factory=list)
    roots: list[_Step] = field(default_factory=list)

    @property
    def question(self) -> str:
        return self.root.question

    @property
    def root(self) -> _Step:
        return self.roots[-1]

    def adopt(self, step: _Step, root: _Step) -> None:
        """Take ``root``, which ``step`` led to, for the root from now on."""
        self.used.append(step)
        self.roots.append(root)

    def best(self) -> _Step:
        """The root with the best score, the latest of equals; a refusal loses to an answer."""
        return max(reversed(self.roots), key=lambda root: (root.score, not is_refusal(root.reasoning.answer)))

    def unasked(self, questions: Sequence[str]) -> list[str]:
        """The questions that no step has asked, each once."""
        asked = {match_key(step.question) for step in self.steps}
        fresh: dict[str, str] = {}
        for question in questions:
            if match_key(question) not in asked:
                fresh.setdefault(match_key(question), question)
        return list(fresh.values())

    def ranked(self) -> list[str]:
        """Ids of all passages: those of used steps first, then by place in their retrieval, then by step."""
        places = sorted(
            (step not in self.used, place, number, passage.id)
            for number, step in enumerate(self.steps)
            for place, passage in enumerate(step.passages)
        )
        return list(dict.fromkeys(id for *_, id in places))

    def cite(self, answer: str) -> list[Citation]:
        """Where the answers of the used sub-questions stand in their passages, and the answer in all of them."""
        found = [citation for step in self.used[1:] for citation in cite_answer(step.reasoning.answer, step.passages)]
        found += cite_answer(answer, [passage for step in self.used for passage in step.passages])
        return list(dict.fromkeys(found))
