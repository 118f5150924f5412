"""FLARE: forward-looking active retrieval (arXiv 2305.06983, its direct variant with masked sentences as queries)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import dspy

from cirag_dspy.errors import ModelError
from cirag_dspy.modules.next_thought import Think, states_answer
from cirag_dspy.modules.reader import Reader, cite_answer, read_answer
from cirag_dspy.modules.search import SearchIndex
from cirag_dspy.schema import Hop, Passage
from cirag_dspy.text import is_refusal, match_key, one_line


class FLARE(dspy.Module):
    """Drafts the next sentence from memory, and searches only where the LM was not sure of it.

    A draft of which every token is likelier than ``threshold`` stands. Otherwise it is searched with, without the words
    that are not, and written again from what was found. Where the LM is sure of everything, nothing is retrieved.

    Args:
        index: What is searched.
        k: Passages a search.
        max_hops: Sentences at most.
        threshold: Probability that every token of a draft must exceed (theta), and every word of a query (beta).
    """

    def __init__(self, index: SearchIndex, *, k: int = 5, max_hops: int = 5, threshold: float = 0.2) -> None:
        super().__init__()
        for name, value in (("k", k), ("max_hops", max_hops)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold must be from 0 to 1, not {threshold}")
        self.index = index
        self.k = k
        self.max_hops = max_hops
        self.threshold = threshold
        self.think = Think()
        self.reader = Reader()

    def forward(self, question: str) -> dspy.Prediction:
        """Answer ``question``.

        Returns:
            A prediction with ``answer``; ``level``: ``memory`` (nothing was retrieved), ``passages``, or ``default``
            (the sentences state no answer, and a reader answers from the passages); ``thought`` (the sentences);
            ``citations`` (sentences with the answer); ``passages`` (ids, those of the last search first); ``hops`` (a
            search each, with the sentence written from it); ``stopped`` (``answered``, ``repeated_thought``,
            ``max_hops`` or ``unreadable``).

        Raises:
            ModelError: The LM gives no log-probabilities.
        """
        question = one_line(question)
        searches: list[list[Passage]] = []
        hops: list[Hop] = []
        thoughts: list[str] = []
        stopped = ""
        while not stopped:
            draft = self.think(question=question, passages=[], thoughts=thoughts, logprobs=True)
            if draft.thought and not draft.tokens:
                raise ModelError(
                    "flare needs log-probabilities of tokens, and this LM gives none: use a local one, or one that does"
                )
            thought = draft.thought
            if query := doubted(draft.tokens, self.threshold):
                found = [hit.passage for hit in self.index.search(query, self.k)]
                searches.append(found)
                thought = self.think(question=question, passages=found, thoughts=thoughts).thought or thought
                hops.append(Hop(query, tuple(passage.id for passage in found), (), thought, (), ""))
            stopped = self._stopped(thought, thoughts)
            thoughts += [thought] if thought else []
        passages = {passage.id: passage for found in reversed(searches) for passage in found}
        answer = stated(thoughts[-1]) if stopped == "answered" else ""
        level = "passages" if passages else "memory"
        if not answer:
            level = "default"
            passages = passages or {hit.passage.id: hit.passage for hit in self.index.search(question, self.k)}
            answer = self.reader(question=question, passages=list(passages.values())).answer if passages else ""
        return dspy.Prediction(
            answer=answer,
            level=level,
            thought=" ".join(thoughts),
            citations=cite_answer(answer, list(passages.values())),
            passages=list(passages),
            hops=hops,
            stopped=stopped,
        )

    def _stopped(self, thought: str, thoughts: Sequence[str]) -> str:
        """Why the text ends with this sentence, if it does."""
        if not thought:
            return "unreadable"
        if states_answer(thought):
            return "answered"
        if match_key(thought) in map(match_key, thoughts):
            return "repeated_thought"
        return "max_hops" if len(thoughts) + 1 == self.max_hops else ""


def doubted(tokens: Sequence[tuple[str, float]], threshold: float) -> str:
    """What to search for: the words of which every token is likelier than ``threshold``; nothing if all words are, or
    none. Whole words, where the original leaves out tokens: half a name finds nothing.
    """
    sure: list[str] = []
    doubts = 0
    for word in _words(tokens):
        if all(math.exp(logprob) > threshold for _, logprob in word):
            sure.append("".join(text for text, _ in word))
        else:
            doubts += 1
    return one_line(" ".join(sure)) if doubts else ""


def _words(tokens: Sequence[tuple[str, float]]) -> list[list[tuple[str, float]]]:
    """The tokens in groups that begin where a token begins with white space."""
    groups: list[list[tuple[str, float]]] = []
    for token in tokens:
        if not groups or token[0][:1].isspace():
            groups.append([])
        groups[-1].append(token)
    return groups


def stated(thought: str) -> str:
    """The answer that a sentence states, empty if it is none or a refusal."""
    answer = read_answer(re.split(r"\banswer is\b:?", thought, maxsplit=1, flags=re.I)[-1])
    return "" if is_refusal(answer) else answer
