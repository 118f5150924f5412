"""A reader that always answers from passages: the cascade's last resort, and the whole of plain RAG's generation."""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from cirag_dspy.modules.answers import concluded, is_answer
from cirag_dspy.modules.ask import Reply, ask
from cirag_dspy.modules.base import Module
from cirag_dspy.replies.answers import short_answer
from cirag_dspy.schema import Citation, Passage
from cirag_dspy.signatures import AnswerAnyway
from cirag_dspy.text import holds_run, one_line, words

# What a reader without any passage gives.
NO_ANSWER = dspy.Prediction(answer="", answered=False)


class Reader(Module):
    """Answers a question from passages in one call."""

    def __init__(self) -> None:
        super().__init__()
        self.read = dspy.Predict(AnswerAnyway)

    def forward(self, question: str, passages: Sequence[Passage]) -> dspy.Prediction:
        """A prediction with ``answer``, empty where the reply is none, and ``answered``: whether it stands in the
        passages (see ``answers``). ``passages`` are shown in their order; where they don't fit the LM's context, the
        last ones are left out.
        """
        lines = [passage_line(passage) for passage in passages]
        inputs = {"question": one_line(question), "passages": "\n".join(lines)}

        def no_answer(reply: Reply) -> str:
            """A refusal is no answer here: whoever asks has nothing else left."""
            given = is_answer(read_answer(reply["answer"]), question, lines)
            return reply.problem or ("" if given else "the answer is missing; give the most likely one")

        reply = ask(self.read, inputs, check=no_answer)
        return dspy.Prediction(**concluded(read_answer(reply["answer"]), question, lines, forced=True))


def passage_line(passage: Passage) -> str:
    """A passage as one line of a prompt."""
    return f"{one_line(passage.title)}: {one_line(passage.text)}" if passage.title else one_line(passage.text)


def read_answer(text: str) -> str:
    """The bare answer in a reply's answer field."""
    return one_line(short_answer(text))


def cite_answer(answer: str, passages: Sequence[Passage]) -> list[Citation]:
    """The first sentence of each passage that contains the answer's words in a row; none for yes and no."""
    if words(answer) in ([], ["yes"], ["no"]):
        return []
    found = []
    for passage in passages:
        for number, sentence in enumerate(passage.sentences):
            if holds_run(sentence, answer):
                found.append(Citation(passage.id, passage.title, number, sentence))
                break
    return found
