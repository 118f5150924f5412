"""Verdicts of an LM (D2F-ReAG sections 3.2 and 3.4): how reliable a reasoning is, whether a finding is relevant.

Both fail closed: what can't be read is not reliable and not relevant.
"""

from __future__ import annotations

import re

import dspy

from cirag_dspy.modules.ask import Reply, ask
from cirag_dspy.modules.base import Module
from cirag_dspy.modules.reason import Reasoning
from cirag_dspy.modules.verdict import parse_yes_no, unclear
from cirag_dspy.signatures import CheckRelevance, JudgeReliability
from cirag_dspy.text import is_refusal, one_line

# The number that a text begins with, but for words that announce it: a score in prose is no score.
_SCORE = re.compile(
    r"^(?:[^\w.,–—-]|[–—-]\s|\b(?:the|this|my|i|would|an?|is|of|at|as|it|rate|give|about|around|approximately|overall"
    r"|final|reliability|confidence|score|rating)\b)*"
    r"(?P<value>\d+(?:\.\d+|,\d{1,2})?|\.\d+)(?!\w|[.,]\d)"
    r"(?:\s*(?P<percent>%|percent\b)|\s*(?:/|out of|of)\s*(?P<scale>\d+(?:\.\d+)?))?",
    re.I,
)


class Reliability(Module):
    """Score(q, r(q)): how far a reasoning can be relied on."""

    def __init__(self) -> None:
        super().__init__()
        self.judge = dspy.Predict(JudgeReliability)

    def forward(self, question: str, reasoning: Reasoning) -> dspy.Prediction:
        """Judge the reasoning about a question.

        Returns:
            A prediction with ``score``, 0 to 1, and ``error`` (empty, or why the reply could not be read: then the
            score is 0). A reasoning without an answer has the score 0, and no LM is called.
        """
        if is_refusal(reasoning.answer):
            return dspy.Prediction(score=0.0, error="")
        inputs = {"question": one_line(question), "reasoning": reasoning.line}
        reply = ask(self.judge, inputs, check=_no_score)
        return dspy.Prediction(score=parse_score(_score_text(reply)) or 0.0, error=reply.problem)


class Relevance(Module):
    """Check(q_i, q): whether what was found for a sub-question helps with the question."""

    def __init__(self) -> None:
        super().__init__()
        self.check = dspy.Predict(CheckRelevance)

    def forward(self, question: str, subquestion: str, finding: Reasoning) -> dspy.Prediction:
        """A prediction with ``relevant``; an unreadable reply counts as no."""
        inputs = {
            "question": one_line(question),
            "subquestion": one_line(subquestion),
            "finding": finding.line,
        }
        reply = ask(
            self.check,
            inputs,
            check=lambda reply: unclear(reply, "relevant"),
        )
        return dspy.Prediction(relevant=parse_yes_no(reply["relevant"]) is True)


def parse_score(text: str) -> float | None:
    """The score from 0 to 1 that a text begins with: ``0.8``, ``.8``, ``0,8``, ``8/10``, ``4 out of 5``, ``80%``.

    ``None`` where there is none, where it is not from 0 to 1, and for a whole number that words go on from: that counts
    something ("1 step is a guess") or numbers a list.
    """
    match = _SCORE.match(text)
    if match is None:
        return None
    value = float(match["value"].replace(",", "."))
    if match["percent"]:
        value /= 100
    elif match["scale"]:
        scale = float(match["scale"])
        value = value / scale if scale else -1.0
    elif match["value"].isdigit() and re.match(r"[.)]?[^\S\n]*\w", text[match.end() :]):
        return None
    return value if 0 <= value <= 1 else None


def _score_text(reply: Reply) -> str:
    """The field, or the whole reply of an LM that wrote the number alone."""
    return reply["score"] or reply.raw


def _no_score(reply: Reply) -> str:
    if parse_score(_score_text(reply)) is not None:
        return ""
    return reply.problem or "score is no number from 0 to 1"
