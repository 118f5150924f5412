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

    def forward(
        self, question: str, passages: Sequence[Passage], thoughts: Sequence[str] = (), *, logprobs: bool = False
    ) -> dspy.Prediction:
        """The next thought.

        Args:
            question: The question.
            passages: What is known, most important first: where they don't fit the LM's context, the last are left out.
            thoughts: The sentences so far.
            logprobs: Whether to ask the LM how likely each token was.

        Returns:
            A prediction with ``thought`` (one sentence, empty if the reply could not be read), ``tokens`` (those of the
            thought, each with its log-probability; empty where the LM gives none) and ``error``.
        """
        inputs = {
            "question": one_line(question),
            "passages": "\n".join(map(passage_line, passages)) or "none",
            "thoughts": one_line(" ".join(thoughts)) or "none yet",
        }
        reply = ask(
            self.think,
            inputs,
            check=_problem,
            shrink=lambda inputs: shorter(inputs, "passages"),
            config={"logprobs": True} if logprobs else None,
        )
        thought = _first_sentence(reply["thought"])
        return dspy.Prediction(
            thought=thought, tokens=_tokens_of(thought, reply.logprobs), error="" if thought else reply.problem
        )


def _first_sentence(text: str) -> str:
    return next((sentence for sentence in split_sentences(text) if words(sentence)), "")


def _tokens_of(sentence: str, tokens: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """The tokens that the sentence was written with: a reply also has its label, and what came after the sentence."""
    spaced = re.search(r"\s+".join(map(re.escape, sentence.split())), "".join(text for text, _ in tokens))
    if spaced is None:
        return list(tokens)
    kept, end = [], 0
    for text, logprob in tokens:
        start, end = end, end + len(text)
        if end > spaced.start() and start < spaced.end():
            kept.append((text, logprob))
    return kept


def _problem(reply: Reply) -> str:
    return reply.problem or ("" if _first_sentence(reply["thought"]) else "the thought is empty; write a sentence")


def states_answer(thought: str) -> bool:
    """Whether the chain is complete: the thought says what "the answer is"."""
    return bool(_ANSWERED.search(thought))


def is_conclusion(thought: str) -> bool:
    """Whether a thought only concludes from the ones before it, so that searching with it finds nothing new."""
    return bool(_CONCLUDES.search(thought))
