"""A chain of thought, one sentence a call (IRCoT section 3), and the rules for what it is worth and when it ends."""

from __future__ import annotations

import re
from collections.abc import Sequence

import dspy

from cirag_dspy.modules.ask import Reply, ask
from cirag_dspy.modules.base import Module
from cirag_dspy.modules.reader import passage_line, read_answer
from cirag_dspy.schema import Hop, Passage
from cirag_dspy.signatures import NextThought
from cirag_dspy.text import is_refusal, match_key, one_line, split_sentences, words

_STATED = re.compile(r"\banswer is\b\s*:?\s*(.*)", re.I)
# The official starters and its rule for sums ("1961 - 1950 = 11").
_INFERENCE = re.compile(r"^\W*(?:thus|so|therefore|hence|that is,)(?!\w)|\d\s*[-+−]\s*\d[\d,.]*\s*=\s*\d", re.I)


class ContinueThoughts(Module):
    """Writes the next sentence of a chain of thought over passages."""

    def __init__(self) -> None:
        super().__init__()
        self.reason = dspy.Predict(NextThought)

    def forward(self, question: str, passages: Sequence[Passage], thoughts: Sequence[str] = ()) -> dspy.Prediction:
        """The sentence after ``thoughts``.

        Args:
            question: The question.
            passages: Shown in their order; where they don't fit the LM's context, the last ones are left out.
            thoughts: The sentences so far.

        Returns:
            A prediction with ``thought`` (one sentence) and ``error`` (empty, or why there is none).
        """
        shown = "\n".join(map(passage_line, passages))
        inputs = {"question": one_line(question), "passages": shown, "thoughts": so_far(thoughts)}
        reply = ask(self.reason, inputs, check=no_thought)
        return dspy.Prediction(thought=first_sentence(reply["thought"]), error=reply.problem)


def so_far(thoughts: Sequence[str]) -> str:
    """The sentences so far as a field of a prompt."""
    return " ".join(map(one_line, thoughts)) or "none"


def first_sentence(text: str) -> str:
    """The first sentence of what an LM wrote on; empty if it has none."""
    return next(iter(split_sentences(text)), "")


def no_thought(reply: Reply) -> str:
    """What is wrong with a reply that should hold a sentence."""
    return reply.problem or ("" if words(first_sentence(reply["thought"])) else "the thought is empty")


def is_inference(thought: str) -> bool:
    """Whether a thought draws a conclusion from those before it, so that there is nothing to search for."""
    return bool(_INFERENCE.search(thought))


def stated_answer(thought: str) -> str:
    """The answer that a thought states ("... answer is: Velden."); empty if it states none, or that there is none."""
    match = _STATED.search(thought)
    answer = read_answer(match[1]) if match else ""
    return "" if match is None or is_refusal(match[0]) or is_refusal(answer) else answer


def why_it_ends(hops: Sequence[Hop], max_hops: int) -> str:
    """Why a chain of thought ends with the last of its hops, empty if it goes on: ``unreadable``, ``answered``,
    ``repeated_thought`` (an LM that repeats itself does so for ever) or ``max_hops``.
    """
    *before, last = hops
    if last.error:
        return "unreadable"
    if stated_answer(last.thought):
        return "answered"
    if match_key(last.thought) in {match_key(hop.thought) for hop in before}:
        return "repeated_thought"
    return "max_hops" if len(hops) >= max_hops else ""
