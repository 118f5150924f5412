"""One step of reasoning over what was learnt so far, and whether more is needed (DualRAG's Reasoner)."""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from cirag_dspy.modules.ask import ask
from cirag_dspy.modules.knowledge import Knowledge
from cirag_dspy.modules.reader import shorter
from cirag_dspy.modules.verdict import parse_yes_no, unclear
from cirag_dspy.signatures import ContinueReasoning
from cirag_dspy.text import one_line


class Think(dspy.Module):
    """Reasons one step further and says whether knowledge is missing."""

    def __init__(self) -> None:
        super().__init__()
        self.think = dspy.Predict(ContinueReasoning)

    def forward(self, question: str, knowledge: Knowledge, thoughts: Sequence[str]) -> dspy.Prediction:
        """A prediction with ``thought`` (may be empty) and ``retrieve``, false only where the reply says so."""
        inputs = {
            "question": one_line(question),
            "knowledge": "\n".join(knowledge.lines()) or "none",
            "thoughts": "\n".join(thoughts) or "none",
        }
        reply = ask(
            self.think,
            inputs,
            check=lambda reply: unclear(reply, "retrieve"),
            shrink=lambda inputs: shorter(inputs, "knowledge"),
        )
        return dspy.Prediction(
            thought=one_line(reply["thought"]), retrieve=parse_yes_no(reply["retrieve"]) is not False
        )
