"""An answer from passages with the reason for it (MetaRAG)."""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from cirag_dspy.modules.answers import is_answer
from cirag_dspy.modules.ask import ask
from cirag_dspy.modules.base import Module
from cirag_dspy.modules.reader import passage_line, read_answer
from cirag_dspy.schema import Passage
from cirag_dspy.signatures import AnswerWithReason
from cirag_dspy.text import one_line


class Explain(Module):
    """Answers a question from passages and says why, minding an advice."""

    def __init__(self) -> None:
        super().__init__()
        self.explain = dspy.Predict(AnswerWithReason)

    def forward(self, question: str, passages: Sequence[Passage], advice: str = "") -> dspy.Prediction:
        """A prediction with ``answer`` (empty if the reply is none) and ``reason``. ``passages`` are shown in
        their order; where they don't fit the LM's context, the last ones are left out.
        """
        inputs = {
            "question": one_line(question),
            "passages": "\n".join(map(passage_line, passages)),
            "advice": one_line(advice) or "none",
        }
        reply = ask(self.explain, inputs)
        answer = read_answer(reply["answer"])
        given = answer if is_answer(answer, question, map(passage_line, passages)) else ""
        return dspy.Prediction(answer=given, reason=one_line(reply["reason"]))
