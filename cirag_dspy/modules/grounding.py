"""What a small model must be held to: facts that connect, answers that stand in their evidence. No LM, no index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cirag_dspy.schema import Triple
from cirag_dspy.text import content_words, match_key, words


def connected(question: str, known: Iterable[Triple], triples: Iterable[Triple]) -> list[Triple]:
    """Those of ``triples`` whose head or tail is named by the question, by a known triple or by one that connects.

    A name counts as named if half of its content words are, so that "Harbor Song (1950 film)" is when "Harbor Song" is.
    In the order in which they connect.
    """
    told = content_words(question).union(*(content_words(f"{t.head} {t.tail}") for t in known))
    found: list[Triple] = []
    left = list(triples)
    while named := [triple for triple in left if _is_named(triple.head, told) or _is_named(triple.tail, told)]:
        found += named
        left = [triple for triple in left if triple not in named]
        told = told.union(*(content_words(f"{t.head} {t.tail}") for t in named))
    return found


def holds_answer(lines: Sequence[str], answer: str, question: str) -> bool:
    """Whether a line of the evidence has all words of an answer.

    Yes and no, and what the question itself says, such as one of two things to choose from, need not stand there.
    """
    wanted = content_words(answer) or set(words(answer))
    if match_key(answer) in ("yes", "no") or wanted <= set(words(question)):
        return True
    return any(wanted <= set(words(line)) for line in lines)


def _is_named(name: str, told: set[str]) -> bool:
    content = content_words(name)
    return bool(content) and 2 * len(content & told) >= len(content)
