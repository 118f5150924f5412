"""Questions from a question (D2F-ReAG section 3.3): what leads to its answer, and what is left to ask."""

from __future__ import annotations

import re
from collections.abc import Sequence

import dspy

from cirag_dspy.modules.ask import Reply, ask
from cirag_dspy.modules.base import Module
from cirag_dspy.modules.parse import says_nothing
from cirag_dspy.modules.reason import Reasoning
from cirag_dspy.replies.answers import unmarked
from cirag_dspy.replies.jsontext import as_text, load_json, payload
from cirag_dspy.signatures import DecomposeQuestion, RewriteQuestions
from cirag_dspy.text import one_line, words

_LEAD = re.compile(
    r"^\s*(?:[-*•+]\s+)?(?:\*\*)?"
    r"(?:[(\[]?\d{1,2}[.):\]]+(?!\d)|(?:sub[- ]?)?(?:question|q|step)\s*#?\d{0,2}\s*[.):]+)(?:\*\*)?\s*|^\s*[-*•+]\s+",
    re.I,
)
_ASKS = ("?", "？", "؟")


class Decompose(Module):
    """sub(q): the sub-questions of a question."""

    def __init__(self) -> None:
        super().__init__()
        self.decompose = dspy.Predict(DecomposeQuestion)

    def forward(self, question: str) -> dspy.Prediction:
        """A prediction with ``questions``, in order; none if there are none or the reply could not be read."""
        reply = ask(self.decompose, {"question": one_line(question)}, check=_no_questions)
        return dspy.Prediction(questions=_questions(reply))


class Rewrite(Module):
    """Rewrite(q, r_q): the open questions, rewritten with what is known by now."""

    def __init__(self) -> None:
        super().__init__()
        self.rewrite = dspy.Predict(RewriteQuestions)

    def forward(self, question: str, reasoning: Reasoning, questions: Sequence[str]) -> dspy.Prediction:
        """Rewrite the open questions of a question.

        Args:
            question: The question to answer in the end.
            reasoning: What is known about it.
            questions: The open questions.

        Returns:
            A prediction with ``questions``: those to ask now, which may be fewer or more; those that were open if the
            reply could not be read.
        """
        inputs = {
            "question": one_line(question),
            "reasoning": reasoning.line,
            "open_questions": "\n".join(map(one_line, questions)),
        }
        reply = ask(self.rewrite, inputs, check=_no_questions)
        return dspy.Prediction(questions=list(questions) if reply.problem else _questions(reply))


def parse_questions(text: str) -> list[str]:
    """The questions of a text: its lines that ask or stand in a list, or the strings of a JSON array.

    Numbers, bullets and quotes are taken off; lines that announce the list or comment on it are left out.
    """
    lines = _json_strings(text) or text.splitlines()
    if len(lines) == 1:
        lines = re.split(r"(?<=[?？؟])[,;]?\s+", lines[0])  # several on one line
    questions = []
    for line in lines:
        body = _LEAD.sub("", line, count=1)
        question = one_line(unmarked(body.strip().strip(",[]")))
        if words(question) and not question.endswith(":") and (body != line or question.endswith(_ASKS)):
            questions.append(question)
    return questions


def _json_strings(text: str) -> list[str]:
    value = payload(load_json(text))
    if isinstance(value, dict):
        value = next((part for part in value.values() if isinstance(part, list)), list(value.values()))
    items = [item for item in value if isinstance(item, (str, dict))] if isinstance(value, list) else []
    return [
        f"- {one_line(as_text(next(iter(item.values())) if isinstance(item, dict) and item else item))}"
        for item in items
    ]


def _questions(reply: Reply) -> list[str]:
    questions = parse_questions(reply["questions"])
    return questions[:-1] if reply.truncated and len(questions) > 1 else questions


def _no_questions(reply: Reply) -> str:
    if reply.problem or says_nothing(reply["questions"]) or _questions(reply):
        return reply.problem
    return "questions has no question; write one a line, or none"
