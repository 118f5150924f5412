"""A sentence drafted without passages, and what of it the LM is unsure of (FLARE section 3.2)."""

from __future__ import annotations

import math
import re
from codecs import getincrementaldecoder
from collections.abc import Sequence

import dspy

from cirag_dspy.errors import ModelError
from cirag_dspy.modules.ask import ask
from cirag_dspy.modules.base import Module
from cirag_dspy.modules.thoughts import first_sentence, no_thought, so_far
from cirag_dspy.replies.thinking import without_thinking
from cirag_dspy.signatures import DraftThought
from cirag_dspy.text import one_line, words

_PIECE = re.compile(r"\w+|\s+|[^\w\s]+")


class Draft(Module):
    """Drafts the next sentence of a chain of thought, with the query for what it is unsure of.

    Args:
        threshold: A token is sure if its probability is above this.
    """

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold
        self.draft = dspy.Predict(DraftThought)

    def forward(self, question: str, thoughts: Sequence[str] = ()) -> dspy.Prediction:
        """The sentence after ``thoughts``.

        Returns:
            A prediction with ``thought`` (one sentence), ``query`` (empty: the sentence can stand) and ``error``
            (empty, or why there is no sentence).

        Raises:
            ModelError: The LM gives no log-probabilities.
        """
        inputs = {"question": one_line(question), "thoughts": so_far(thoughts)}
        reply = ask(self.draft, inputs, check=no_thought, config={"logprobs": True})
        if reply.problem:
            return dspy.Prediction(thought="", query="", error=reply.problem)
        if not reply.tokens:
            lm = self.draft.lm or dspy.settings.lm
            raise ModelError(
                f"flare needs token log-probabilities, and {lm.model} gives none; use a local LM, or one whose API has "
                "logprobs"
            )
        thought = first_sentence(reply["thought"])
        return dspy.Prediction(thought=thought, query=masked_query(thought, reply.tokens, self.threshold), error="")


def masked_query(sentence: str, tokens: Sequence[tuple[bytes, float]], threshold: float) -> str:
    """What to search for before a sentence can stand: the sentence without the words the LM is unsure of.

    A word that holds an unsure token is left out whole, as half a word is no search term.

    Args:
        sentence: One sentence of a reply.
        tokens: Tokens of the whole reply, labels included, with their log-probabilities.
        threshold: Tokens with a probability of at most this are unsure.

    Returns:
        The query; empty if all of the sentence is sure, or if no word would be left. Where the sentence can't be found
        among the tokens (an adapter that escapes it), nothing is known to be sure: it is the query itself.
    """
    decoder = getincrementaldecoder("utf-8")("replace")
    text, unsure = "", []
    for token, logprob in tokens:
        start, text = len(text), text + decoder.decode(token)
        if math.exp(logprob) <= threshold:
            unsure.append((start, len(text)))
    spelled = re.compile(r"\s+".join(map(re.escape, sentence.split())))
    place = spelled.search(text, max(0, text.rfind(without_thinking(text))))
    if place is None:
        return sentence

    def is_unsure(start: int, end: int) -> bool:
        return any(first < end and last > start for first, last in unsure)

    if not is_unsure(*place.span()):
        return ""
    pieces = _PIECE.finditer(text, *place.span())
    query = one_line("".join(" " if is_unsure(*piece.span()) else piece[0] for piece in pieces))
    return query if words(query) else ""
