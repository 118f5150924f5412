"""Yes or no in what an LM wrote. By whole words: "know" and "another" hold no "no"."""

from __future__ import annotations

import re

from cirag_dspy.modules.ask import Reply
from cirag_dspy.text import words

_YES = frozenset(
    {"yes", "true", "correct", "right", "sufficient", "enough", "relevant", "related", "same", "equivalent", "helps"}
)
_NO = frozenset(
    {
        *("no", "not", "false", "incorrect", "wrong", "insufficient", "irrelevant", "unrelated", "different"),
        *("cannot", "none", "never"),
    }
)


def parse_yes_no(text: str) -> bool | None:
    """What the first line of a text says by its first word for yes or no; ``None`` where it has neither."""
    line = next(filter(None, map(str.strip, text.splitlines())), "")
    for word in words(re.sub(r"n['’]t\b", " not", line)):
        if word in _YES or word in _NO:
            return word in _YES
    return None


def unclear(reply: Reply, name: str) -> str:
    """What is wrong with a reply whose field ``name`` has to be yes or no."""
    if reply.problem or parse_yes_no(reply[name]) is not None:
        return reply.problem
    return f"{name} is neither yes nor no"
