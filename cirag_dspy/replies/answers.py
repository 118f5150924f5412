"""The bare answer inside what a reader LM wrote: one item, or several as one line."""

from __future__ import annotations

import re

# "The answer is:" counts at the start of a line or sentence and after a connective, not inside "I can't determine the
# answer: ...".
_LEAD = re.compile(
    r"^(?:.{0,400}?[.!?,;]\s+)?(?:(?:so|thus|hence|therefore)[,:]?\s+)?(?:the\s+|my\s+)?(?:final\s+|short\s+)?"
    r"answers?(?:\s+to\s+(?:the|this|your)\s+question)?\s*(?:(?:is|are)\s*:?|:)\s*",
    re.I,
)
_FENCE = re.compile(r"^\s*(?:```|~~~)[\w-]*\s*$")
_NUMBER = re.compile(r"^\s*\(?(\d{1,3})(?P<mark>[.):]|\.\))\s+(?=\S)")
_BULLET = re.compile(r"^\s*[-*•+–]\s+(?=\S)")
_EXPLAINS = re.compile(
    r"^(?:(?:because|since|notes?|reason(?:ing)?|explanation|evidence|sources?|this|that|it (?:is|was)|he|she|they|i"
    r"|according|based|the (?:answer|evidence|passages?)|answer|confidence|citations?|references?|thought|therefore|so"
    r"|thus|hence|see|also known|final|passages?|sentences?|questions?|context|none|unanswerable|unknown)\b|\W*$)",
    re.I,
)
_MARKS = ("***", "**", "*", "___", "__", "_", "```", "``", "`")
_DOUBLE, _DOUBLE_END = '"“„«「『', '"”“»」』'
_SINGLE, _SINGLE_END = "'‘‚", "'’‘"
_DUNDER = re.compile(r"__[a-z][a-z0-9_]*__")
_MOST_LINES = 10


def short_answer(text: str) -> str:
    """The bare answer in a text: what it says first, without "The answer is:", wrapping quotes, markdown emphasis or a
    closing full stop. Initials keep their stop ("Washington, D.C.").

    Several items, a list or a name a line, become one line, joined by commas. Lines that explain the answer are no
    items. Emphasis and quotes are taken off in pairs only, so that ``*NSYNC`` and ``"Weird Al" Yankovic`` stay.
    """
    lines = [line for line in text.splitlines() if not _FENCE.match(line)]
    while lines and (not _bare(lines[0]) or _announces_list(lines)):
        lines.pop(0)
    if not lines:
        return ""
    items = _listed(lines) or _stacked(lines)
    return ", ".join(dict.fromkeys(items)) if len(items) > 1 else items[0]


def unmarked(text: str) -> str:
    """A text without the pairs of emphasis, backticks and quotes around all of it."""
    text = text.strip()
    while (inner := _inside(text)) != text:
        text = inner
    return text


def _inside(text: str) -> str:
    for mark in _MARKS:
        inner = text[len(mark) : -len(mark)]
        if text.startswith(mark) and text.endswith(mark) and len(text) > 2 * len(mark) and mark not in inner:
            return text if _DUNDER.fullmatch(text) or inner != inner.strip() else inner
    if len(text) > 2:
        inner = text[1:-1]
        if text[0] in _DOUBLE and text[-1] in _DOUBLE_END and not set(inner) & set(_DOUBLE + _DOUBLE_END):
            return inner.strip()
        if text[0] in _SINGLE and text[-1] in _SINGLE_END and not re.search(r"['‘’](?!\w)|(?<!\w)['‘’]", inner):
            return inner.strip()
    return text


def _bare(line: str) -> str:
    """A line without tags, boxes, emphasis, the words that announce an answer, or a full stop."""
    line = re.sub(r"</?(?:final_)?answer>|^\s*#{2,6}\s+", "", line, flags=re.I)
    line = re.sub(r"\\(?:text|mathrm|textbf)\{([^{}]*)\}", r"\1", line)
    line = unmarked(re.sub(r"\$?\\boxed\{([^{}]*)\}\$?", r"\1", line))
    plain = line.lstrip("*_# ")
    if lead := _LEAD.match(plain):
        line = re.sub(r"^(?:\*{1,3}|_{1,3})(?=\s|$)", "", plain[lead.end() :]).strip()
        for mark in "**", "__", "*", "_":  # emphasis that began before the words that were taken off
            if line.endswith(mark) and line.count(mark) % 2:
                line = line.removesuffix(mark)
                break
    line = unmarked(line)
    while line.endswith((".", "。")) and not re.search(r"\.\.$|\b(?:\w\.)+$|\b(?:Jr|Sr|Inc|Ltd|Co|Corp|St)\.$", line):
        line = unmarked(line[:-1])
    return line


def _announces_list(lines: list[str]) -> bool:
    """Whether the first line only says that a list follows."""
    first, behind = lines[0].strip().rstrip("*_ "), [line for line in lines[1:] if line.strip()]
    return first.endswith((":", "：")) and bool(behind) and bool(_BULLET.match(behind[0]) or _NUMBER.match(behind[0]))


def _listed(lines: list[str]) -> list[str]:
    """The items of a list that the text begins with; empty if it begins with none."""
    bullet, number = _BULLET.match(lines[0]), _NUMBER.match(lines[0])
    items: list[str] = []
    for line in filter(str.strip, lines):
        match = _BULLET.match(line) if bullet else _NUMBER.match(line) if number else None
        if match is None or (number and int(match[1]) != int(number[1]) + len(items)):
            break
        item = _bare(line[match.end() :])
        if items and (_EXPLAINS.match(item) or len(item.split()) > 12):
            break
        items.append(item)
    # A number alone may belong to the answer ("7. Januar 1920", "1. FC Köln").
    alone = len(items) == 1 and number is not None and not (number[1] == "1" and number["mark"] == ")")
    return [] if alone or not all(items) else items


def _stacked(lines: list[str]) -> list[str]:
    """The first line, and those directly below it that are items like it."""
    items = [_bare(lines[0])]
    if _is_item(lines[0], items[0]):
        for line in lines[1:]:
            item = _bare(line)
            if not _is_item(line, item) or item[:1].islower() != items[0][:1].islower():
                break
            items.append(item)
    return items if len(items) <= _MOST_LINES else items[:1]


def _is_item(line: str, item: str) -> bool:
    """Whether a line is a name or the like, and no sentence."""
    most = 3 if item[:1].islower() else 6
    ends = line.rstrip().rstrip("*_`\"'").endswith((".", "!", "?", "。", "！", "？", ";"))
    return (
        bool(item)
        and not ends
        and len(item.split()) <= most
        and len(item) <= 60
        and not (_EXPLAINS.match(item) or re.search(r"[:：|\[\]{}<>=]", item))
    )
