"""One step of reasoning over what was learnt so far, and whether more is needed (DualRAG's Reasoner)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import dspy

from cirag_dspy.modules.ask import Reply, ask
from cirag_dspy.modules.base import Module
from cirag_dspy.modules.knowledge import Knowledge
from cirag_dspy.signatures import ContinueReasoning
from cirag_dspy.text import one_line

# "Not enough is known" and "There is no information" mean yes here, so yes and no count only where they stand for
# themselves: before a comma or the like, or at the end.
_WORD = r"\b(?:(yes|true)|no|false)\b"
_RETRIEVE = re.compile(rf"^\W*{_WORD}(?=[\s*_\"']*[,.;:!\u2013\u2014-])|{_WORD}\W*$", re.I)


class Think(Module):
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
            check=_unclear,
        )
        return dspy.Prediction(thought=one_line(reply["thought"]), retrieve=_retrieve(reply) is not False)


def _retrieve(reply: Reply) -> bool | None:
    """Whether knowledge is missing, as the first line says; ``None`` where it doesn't."""
    line = next(filter(None, map(str.strip, reply["retrieve"].splitlines())), "")
    match = _RETRIEVE.search(line)
    return None if match is None else bool(match[1] or match[2])


def _unclear(reply: Reply) -> str:
    return reply.problem or ("retrieve is neither yes nor no" if _retrieve(reply) is None else "")
