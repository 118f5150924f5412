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
# Lines that count only as a whole: letters, signs, and yes and no in other languages.
_WHOLE = {
    **dict.fromkeys(
        ("y", "✅", "✓", "✔", "是", "是的", "はい", "예", "네", "ja", "oui", "sí", "si", "sim", "да"), True
    ),
    **dict.fromkeys(
        ("n", "❌", "✗", "✘", "否", "不", "不是", "いいえ", "아니요", "nein", "non", "não", "nee", "нет"), False
    ),
}


def parse_yes_no(text: str) -> bool | None:
    """What the first line of a text says by its first word for yes or no, or as a whole in another language;
    ``None`` where it has neither.
    """
    line = next(filter(None, map(str.strip, text.splitlines())), "")
    if (whole := line.strip(" *_`\"'.!。！").casefold()) in _WHOLE:
        return _WHOLE[whole]
    for word in words(re.sub(r"n['’]t\b", " not", line)):
        if word in _YES or word in _NO:
            return word in _YES
    return None


def unclear(reply: Reply, name: str) -> str:
    """What is wrong with a reply whose field ``name`` has to be yes or no."""
    if reply.problem or parse_yes_no(reply[name]) is not None:
        return reply.problem
    return f"{name} is neither yes nor no"
