"""Adaptive cascaded multi-granularity generation (CIRAG section 3.4): triples, then sentences, then passages."""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from cirag_dspy.modules.answers import is_answer
from cirag_dspy.modules.ask import ask
from cirag_dspy.modules.base import Module
from cirag_dspy.modules.grounding import holds_answer
from cirag_dspy.modules.reader import NO_ANSWER, Reader, passage_line, read_answer
from cirag_dspy.modules.search import SearchIndex
from cirag_dspy.modules.streaming import tell
from cirag_dspy.schema import Evidence, Level
from cirag_dspy.signatures import AnswerIfSufficient
from cirag_dspy.text import one_line

LEVELS: tuple[Level, ...] = ("triples", "sentences", "passages")


class Cascade(Module):
    """Answers from the least evidence that suffices.

    The levels are tried in order; the first answer that is no refusal wins (equation 6). The gate fails closed: a reply
    that can't be read, or is no answer (``is_answer``), counts as a refusal. If all refuse, what they need may be in a
    passage that gave no core triple: a reader gives its best answer from theirs and the best retrieved ones, and the
    level is ``default``.

    Args:
        index: Where sentences and passages are looked up.
        levels: The levels to try, of ``triples``, ``sentences`` and ``passages``.
        fallback_passages: With how many passages retrieved ones fill up, where no core triple names one and where all
            levels refuse.
        grounded: Whether a level's answer that its evidence does not hold counts as a refusal.
    """

    def __init__(
        self,
        index: SearchIndex,
        *,
        levels: Sequence[Level] = LEVELS,
        fallback_passages: int = 5,
        grounded: bool = False,
    ) -> None:
        super().__init__()
        unknown = [level for level in levels if level not in LEVELS]
        if unknown or not levels:
            raise ValueError(f"levels must be some of {', '.join(LEVELS)}, not {', '.join(map(str, levels)) or 'none'}")
        self.index = index
        self.levels = tuple(level for level in LEVELS if level in levels)
        self.fallback_passages = fallback_passages
        self.grounded = grounded
        self.triples = dspy.Predict(AnswerIfSufficient)
        self.sentences = dspy.Predict(AnswerIfSufficient)
        self.passages = dspy.Predict(AnswerIfSufficient)
        self.default = Reader()

    def forward(self, question: str, evidence: Evidence, retrieved: Sequence[str] = ()) -> dspy.Prediction:
        """Answer ``question``.

        Args:
            question: The question.
            evidence: The evidence pool.
            retrieved: Ids of the passages retrieved, best first.

        Returns:
            A prediction with ``answer``, ``answered`` (not so after refusals), ``level``, ``thought``, ``context`` (ids
            of the passages the answer was read from) and ``refused`` (the levels that were not sufficient). Without any
            passage the answer is empty and no LM is called.
        """
        ids = evidence.passage_ids() or list(retrieved[: self.fallback_passages])
        refused: list[Level] = []
        for level in self.levels:
            lines = self._lines(level, evidence, ids)
            if not lines:
                continue
            inputs = {"question": one_line(question), "evidence": "\n".join(lines)}
            reply = ask(getattr(self, level), inputs, tries=1)
            answer = read_answer(reply["answer"])
            invented = self.grounded and not holds_answer(lines, answer, question)
            sufficient = is_answer(answer, question, lines) and not (reply.problem or invented)
            tell("gate", level=level, sufficient=sufficient)
            if sufficient:
                thought = one_line(reply["thought"])
                return dspy.Prediction(
                    answer=answer, answered=True, level=level, thought=thought, context=ids, refused=refused
                )
            refused.append(level)
        ids = list(dict.fromkeys([*ids, *retrieved]))[: max(len(ids), self.fallback_passages)]
        passages = list(self.index.passages(ids).values())
        guess = self.default(question=question, passages=passages) if passages else NO_ANSWER
        return dspy.Prediction(
            answer=guess.answer,
            answered=guess.answered and not refused,
            level="default",
            thought="",
            context=ids,
            refused=refused,
        )

    def _lines(self, level: Level, evidence: Evidence, ids: Sequence[str]) -> list[str]:
        if level == "triples":
            return [one_line(triple.text) for triple in evidence.triples]
        if level == "sentences":
            cited = evidence.cite(self.index.passages(evidence.passage_ids()))
            return [f"{one_line(citation.title)}: {one_line(citation.text)}" for citation in cited]
        return [passage_line(passage) for passage in self.index.passages(ids).values()]
