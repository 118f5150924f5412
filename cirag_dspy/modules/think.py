"""One more sentence of reasoning (IRCoT): question, passages, thoughts so far -> the next thought."""

from __future__ import annotations

import re
from collections.abc import Sequence

import dspy

from cirag_dspy.modules.ask import Reply, ask
from cirag_dspy.modules.reader import passage_line, shorter
from cirag_dspy.schema import Passage
from cirag_dspy.signatures import NextThought
from cirag_dspy.text import one_line, split_sentences, words

_ANSWERED = re.compile(r"\banswer is\b", re.I)
# A sentence that only draws a conclusion or calculates has nothing to search for (the official is_reasoning_sentence).
_CONCLUDES = re.compile(r"^\W*(?:thus|so|that is|therefore|hence)\b|\d\s*[-+*/=]\s*\d", re.I)


class Think(dspy.Module):
    """Goes on with a chain of thought by one sentence."""

    def __init__(self) -> None:
        super().__init__()
        self.think = dspy.Predict(NextThought)

    def forward(self, question: str, passages: Sequence[Passage], thoughts: Sequence[str] = ()) -> dspy.Prediction:
        """The next thought.

        Args:
            question: The question.
            passages: What is known, most important first: where they don't fit the LM's context, the last are left out.
            thoughts: The sentences so far.

        Returns:
            A prediction with ``thought`` (one sentence, empty if the reply could not be read) and ``error``.
        """
        inputs = {
            "question": one_line(question),
            "passages": "\n".join(map(passage_line, passages)) or "none",
            "thoughts": one_line(" ".join(thoughts)) or "none yet",
        }
        reply = ask(self.think, inputs, check=_problem, shrink=lambda inputs: shorter(inputs, "passages"))
        # What came twice without its label is still a thought.
        thought = _first_sentence(reply["thought"] or reply.raw)
        return dspy.Prediction(thought=thought, error="" if thought else reply.problem)


def _first_sentence(text: str) -> str:
    return next((sentence for sentence in split_sentences(text) if words(sentence)), "")


def _problem(reply: Reply) -> str:
    return reply.problem or ("" if _first_sentence(reply["thought"]) else "the thought is empty; write a sentence")


def states_answer(thought: str) -> bool:
    """Whether the chain is complete: the thought says what "the answer is"."""
    return bool(_ANSWERED.search(thought))


def is_conclusion(thought: str) -> bool:
    """Whether a thought only concludes from the ones before it, so that searching with it finds nothing new."""
    return bool(_CONCLUDES.search(thought))
