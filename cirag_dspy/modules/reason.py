"""Reasoning about a question (D2F-ReAG sections 3.1 and 3.4): from passages, then kept up to date with findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dspy

from cirag_dspy.modules.ask import Reply, ask
from cirag_dspy.modules.base import Module
from cirag_dspy.modules.reader import passage_line, read_answer
from cirag_dspy.schema import Passage
from cirag_dspy.signatures import ReasonFromPassages, UpdateReasoning
from cirag_dspy.text import one_line


@dataclass(frozen=True, slots=True)
class Reasoning:
    """How a question is answered, r(q). Without an ``answer`` the reply could not be read; ``error`` says why."""

    text: str
    answer: str
    error: str = ""

    @property
    def line(self) -> str:
        """The reasoning with its answer as one line of a prompt."""
        return one_line(f"{self.text} The answer is: {self.answer}")


class Reason(Module):
    """Generator(q, D(q)): reasons from the passages of a question."""

    def __init__(self) -> None:
        super().__init__()
        self.generate = dspy.Predict(ReasonFromPassages)

    def forward(self, question: str, passages: Sequence[Passage]) -> dspy.Prediction:
        """A prediction with ``reasoning``, a ``Reasoning``; passages that don't fit, the last ones, are left out."""
        inputs = {"question": one_line(question), "passages": "\n".join(map(passage_line, passages))}
        reply = ask(self.generate, inputs)
        return dspy.Prediction(reasoning=_reasoning(reply))


class Update(Module):
    """Update(r(q_root), r(q)): brings the reasoning on a question up to date with that on one of its sub-questions."""

    def __init__(self) -> None:
        super().__init__()
        self.update = dspy.Predict(UpdateReasoning)

    def forward(self, question: str, reasoning: Reasoning, subquestion: str, finding: Reasoning) -> dspy.Prediction:
        """A prediction with ``reasoning``, the new ``Reasoning``."""
        inputs = {
            "question": one_line(question),
            "previous": reasoning.line,
            "subquestion": one_line(subquestion),
            "finding": finding.line,
        }
        return dspy.Prediction(reasoning=_reasoning(ask(self.update, inputs)))


def _reasoning(reply: Reply) -> Reasoning:
    answer = "" if reply.problem else read_answer(reply["answer"])
    return Reasoning(one_line(reply["reasoning"]), answer, reply.problem)
