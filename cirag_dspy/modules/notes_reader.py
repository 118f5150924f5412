"""A reader of notes: what other modules found and thought, instead of passages (DualRAG, LogicRAG)."""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from cirag_dspy.modules.answers import is_answer
from cirag_dspy.modules.ask import ask
from cirag_dspy.modules.base import Module
from cirag_dspy.modules.reader import read_answer
from cirag_dspy.signatures import AnswerFromNotes
from cirag_dspy.text import one_line


class NotesReader(Module):
    """Answers a question from notes in one call."""

    def __init__(self) -> None:
        super().__init__()
        self.read = dspy.Predict(AnswerFromNotes)

    def forward(self, question: str, notes: Sequence[str]) -> dspy.Prediction:
        """A prediction with ``answer``, empty if the reply is none. ``notes`` are lines; where they don't fit
        the LM's context, the last ones are left out.
        """
        inputs = {"question": one_line(question), "notes": "\n".join(map(one_line, notes))}
        reply = ask(self.read, inputs)
        answer = read_answer(reply["answer"])
        return dspy.Prediction(answer=answer if is_answer(answer, question, notes) else "")
