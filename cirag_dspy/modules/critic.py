"""Metacognition (MetaRAG): what an LM knows by itself, and what is wrong with an answer."""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from cirag_dspy.modules.ask import ask
from cirag_dspy.modules.base import Module
from cirag_dspy.modules.reader import passage_line, read_answer
from cirag_dspy.modules.verdict import parse_yes_no, unclear
from cirag_dspy.schema import Passage
from cirag_dspy.signatures import AnswerFromMemory, CritiqueAnswer
from cirag_dspy.text import is_refusal, match_key, normalize_answer, one_line, word_f1, words


class Recall(Module):
    """Answers a question without any passage, and says whether that is knowledge or a guess."""

    def __init__(self) -> None:
        super().__init__()
        self.recall = dspy.Predict(AnswerFromMemory)

    def forward(self, question: str) -> dspy.Prediction:
        """A prediction with ``answer`` (may be a refusal or empty) and ``known``, which has to be said: what can't be
        read is not known.
        """
        reply = ask(self.recall, {"question": one_line(question)}, check=lambda reply: unclear(reply, "known"))
        answer = read_answer(reply["answer"])
        known = parse_yes_no(reply["known"]) is True and not is_refusal(answer)
        return dspy.Prediction(answer=answer, known=known)


class Critic(Module):
    """Checks an answer against its question, its reason and its passages."""

    def __init__(self) -> None:
        super().__init__()
        self.critique = dspy.Predict(CritiqueAnswer)

    def forward(self, question: str, passages: Sequence[Passage], reason: str, answer: str) -> dspy.Prediction:
        """A prediction with ``feedback`` (empty: nothing is wrong) and ``sufficient``: whether the passages are; what
        can't be read is no.
        """
        inputs = {
            "question": one_line(question),
            "passages": "\n".join(map(passage_line, passages)),
            "reason": one_line(reason) or "none",
            "proposed": one_line(answer) or "none",
        }
        reply = ask(
            self.critique,
            inputs,
            check=lambda reply: unclear(reply, "sufficient"),
        )
        feedback = one_line(reply["feedback"])
        return dspy.Prediction(
            feedback="" if match_key(feedback) == "none" else feedback,
            sufficient=parse_yes_no(reply["sufficient"]) is True,
        )


def agreement(one: str, other: str) -> float:
    """F1 of the words of two answers after the official normalisation, 0 to 1; refusals agree with nothing."""
    if is_refusal(one) or is_refusal(other):
        return 0.0
    return word_f1(words(normalize_answer(one)), words(normalize_answer(other)))
