"""The fields of a reply, however it is written: labelled lines, DSPy's markers, JSON or tags."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Any

from cirag_dspy.replies.jsontext import as_text, find_fields, key, load_json, objects_in, unwrap

_FENCE = re.compile(r"^\s*(?:```|~~~)[\w-]*\s*$")
_MARKER = re.compile(r"\[{1,2}[^\S\n]*#+[^\S\n]*(?P<name>\w[\w -]{0,60}?)[^\S\n]*#+[^\S\n]*\]{1,2}")
_MARKER_AT_START = re.compile(rf"^[^\S\n]*[*_`#>-]*[^\S\n]*{_MARKER.pattern}[^\S\n]*[*_`]*[^\S\n]*[:：]?", re.M)
_COMPLETED = re.compile(r"\[{1,2}\s*#+\s*completed\s*#+\s*\]{1,2}[*_`]*\s*\Z", re.I)
_SPOKEN = ("content", "arguments", "function", "parameters", "text")
_LONGEST_LEAD = 300
_QUOTES = re.compile(
    r"\b(?:passages?|evidence|context|documents?|texts?|pages?|articles?|sources?|notes?|it|he|she|they|sentences?|facts?)"
    r"(?:\W+\w+){0,4}?\W+(?:says?|said|reads?|states?|quotes?|contains?|holds|includes?|has|have|had|mentions?|shows?"
    r"|tells?|writes?|wrote|claims?|asks?|tries|injects?)\b|\b(?:quot(?:e|ed|es|ing)|inject(?:s|ed|ion)|says|reads|ignore)\b",
    re.I,
)
_ANNOUNCES = re.compile(r"(?:[:：.!]|\b(?:json|is|object|output|reply|answer)|```\w*)[\s*_`]*\Z", re.I)
_REMARK = re.compile(
    r"\A[\s`~.]*(?:\Z|\n|(?:anything|let me|i hope|hope|is there|please|note|feel|would|do you|thank|this)\b)", re.I
)


def label_pattern(names: Iterable[str]) -> re.Pattern[str]:
    """A line that opens a field: ``core: 1``, ``**Core:** 1``, ``- core: 1``, ``2. core: 1``, ``Final answer: x``, or a
    heading such as ``### Core`` alone on its line.
    """
    alternatives = "|".join(re.escape(name).replace("_", "[ _-]?") for name in sorted(names, key=len, reverse=True))
    label = rf"(?:(?:the |my )?(?:final )?)(?:{alternatives})"
    return re.compile(
        rf"^(?:[\s*_#>`•-]*(?:\d[.)][\s*_]*)?(?P<label>{label})[\s*_`]*[:：]\s*"
        rf"|\s*(?:#+ ?|\*\*)(?P<heading>{label})\**\s*$)",
        re.I,
    )


def read_fields(reply: str, names: Sequence[str], required: Collection[str], texts: Collection[str]) -> dict[str, Any]:
    """The output fields of a reply without its thinking.

    JSON counts where it is the reply: all of it but for code fences, a sentence that leads in and a remark behind it.
    Of labelled lines and markers those count that come first and have the required fields. What one field quotes (a
    line in a block quote or a fence, a marker or JSON inside a line) opens no other field, and is read only where the
    reply has nothing else. A field's text that is JSON around that text is unwrapped.

    Args:
        reply: What an LM wrote.
        names: The output fields, in order.
        required: Those without a default.
        texts: Those whose value is text; others keep the value that JSON gives them.

    Returns:
        The fields that were found, in the order of ``names``.
    """
    found = _read(_unquoted(reply), names, required, texts)
    return {name: found[name] for name in names if name in found}


def _read(reply: str, names: Sequence[str], required: Collection[str], texts: Collection[str]) -> dict[str, Any]:
    def complete(fields: dict[str, Any]) -> bool:
        return bool(fields) and set(required) <= fields.keys()

    def plain(fields: dict[str, Any]) -> dict[str, Any]:
        return {name: as_text(value, name) if name in texts else value for name, value in fields.items()}

    whole = load_json(reply)
    fields = {} if whole is None else plain(find_fields(whole, names, required))
    if fields := fields or ({} if whole is None else _wrapped(whole, reply, names, required, texts)):
        return fields
    lines, led = _lines(reply, names)
    # A model that was shown labels often goes straight on with the first field's text.
    if led and lines and names[0] not in lines:
        lines = {names[0]: led, **lines}
    marked = _marked(reply, names)
    shapes = [marked, lines] if _opens_with_marker(reply) else [lines, marked]
    for shape in shapes:
        if complete(shape):
            return _unwrapped(shape, texts)
    if not any(shapes) and complete(objects := find_fields(_json_reply(reply), names, required)):
        return plain(objects)
    tagged = {**tagged_fields(reply, names), **(shapes[0] or shapes[1])}
    if complete(tagged):
        return _unwrapped(tagged, texts)
    quoted = _lines(reply, names, quotes=True)[0]
    if complete(quoted):
        return _unwrapped(quoted, texts)
    if not any(shapes) and (again := _relabelled(reply, names)) != reply:
        found = _read(again, names, required, texts)
        if complete(found):
            return found
    if led and len(names) == 1 and not any(shapes):
        return _unwrapped({names[0]: led}, texts)
    return _unwrapped(shapes[0] or shapes[1], texts)


def _unquoted(reply: str) -> str:
    """A reply that stands in a block quote as a whole, without its marks."""
    lines = [line.lstrip() for line in reply.splitlines() if line.strip()]
    quoted = bool(lines) and all(line.startswith(">") for line in lines)
    return "\n".join(re.sub(r"^\s*>\s?", "", line) for line in reply.splitlines()) if quoted else reply


def _relabelled(reply: str, names: Sequence[str]) -> str:
    """A reply with labels of rarer forms as labelled lines: ``Answer - x``, ``Answer = x``, ``[answer] x``,
    ``"answer": "x"``, a name alone above its text, and a table whose first row or first column are names.
    """
    lines = [line for line in reply.splitlines() if line.strip()]
    if lines and all(line.lstrip().startswith("|") and line.count("|") > 1 for line in lines):
        rows = [[cell.strip(" *_`") for cell in line.strip().strip("|").split("|")] for line in lines]
        rows = [row for row in rows if any(cell.strip(":- ") for cell in row)]
        heads = {key(cell) for cell in rows[0]} if rows else set()
        if len(rows) == 2 and len(rows[0]) == len(rows[1]) and heads <= {*map(key, names)}:
            rows = [list(pair) for pair in zip(*rows, strict=True)]
        known = [row for row in rows if len(row) == 2 and key(row[0]) in map(key, names)]
        return "\n".join(f"{name}: {value}" for name, value in known) or reply
    names_pattern = "|".join(re.escape(name).replace("_", "[ _-]?") for name in sorted(names, key=len, reverse=True))
    rare = re.compile(
        rf"^\s*(?:(?:final )?(?P<a>{names_pattern})\s+(?:[-–—=]|[-=]>)\s+|[\[(](?P<b>{names_pattern})[\])]\s+"
        rf"|\"(?P<c>{names_pattern})\"\s*:\s*|(?P<d>{names_pattern})\s*$)",
        re.I,
    )
    return "\n".join(
        rare.sub(lambda m: f"{m['a'] or m['b'] or m['c'] or m['d']}: ", line) for line in reply.splitlines()
    )


def _unwrapped(fields: dict[str, str], texts: Collection[str]) -> dict[str, Any]:
    """A labelled text that is JSON around the field's own text is that text."""
    found: dict[str, Any] = {}
    for name, text in fields.items():
        value = unwrap(text, name) if name in texts and text.startswith(("{", "```")) else text
        found[name] = text if value is text else as_text(value, name)
    return found


def _wrapped(
    whole: Any, reply: str, names: Sequence[str], required: Collection[str], texts: Collection[str]
) -> dict[str, Any]:
    """``{"response": "answer: Oslo"}``, or ``{"response": "Oslo"}`` where there is one field to fill."""
    inner = unwrap(whole)
    for _ in range(5):
        parts = [inner[part] for part in inner if str(part).lower() in _SPOKEN] if isinstance(inner, dict) else []
        inner = unwrap(parts[0]) if parts else inner
    wanted = [name for name in names if name in required] or list(names)
    if isinstance(inner, str):
        if (found := _read(inner, names, required, texts)) and set(required) <= found.keys():
            return found
        fills = isinstance(whole, dict) or len(names) == 1
        return {wanted[0]: inner} if fills and len(wanted) == 1 and wanted[0] in texts and inner.strip() else {}
    return {names[0]: reply if inner is whole else as_text(inner)} if len(names) == 1 else {}


def _lines(reply: str, names: Sequence[str], quotes: bool = False) -> tuple[dict[str, str], str]:
    """The fields of labelled lines, and what stands before them. ``quotes`` has those in a quote count too."""
    label = label_pattern(names)
    by_key = {key(name): name for name in names}
    found: dict[str, list[str]] = {}
    current: list[str] = []
    preamble = current
    fenced = False
    for line in reply.splitlines():
        if _FENCE.match(line):
            fenced = not fenced and bool(found)
            if not fenced or not quotes:
                continue
        match = label.match(line)
        if (
            match
            and not quotes
            and found
            and (fenced or ">" in line[: match.start("label" if match["label"] else "heading")])
        ):
            match = None
        if match is None:
            current.append(line)
            continue
        text = (match["label"] or match["heading"]).lower()
        name = by_key[key(re.sub(r"^(?:the |my )?(?:final )?", "", text))]
        if name in found and "final " not in text:
            break  # a second reply behind the first
        current = found[name] = [behind_label(line, match)]
    return {name: "\n".join(text).strip() for name, text in found.items()}, "\n".join(preamble).strip()


def behind_label(line: str, match: re.Match[str]) -> str:
    """What stands behind a match of ``label_pattern``, without the end of the emphasis that began before it."""
    value = line[match.end() :]
    opened = re.search(r"[*_]+$", line[: match.start("label")]) if match["label"] else None
    if opened and opened[0] not in line[match.end("label") : match.end()]:
        value = value.removeprefix(opened[0])
    return re.sub(r"^[*_]{1,3}(?=\s|$)", "", value).lstrip()


def _opens_with_marker(reply: str) -> bool:
    match = _MARKER_AT_START.search(reply)
    return match is not None and ":" not in reply[: match.start()]


def _marked(reply: str, names: Sequence[str]) -> dict[str, str]:
    """The fields under DSPy's markers, ``[[ ## answer ## ]]``, in any decoration."""
    by_key = {key(name): name for name in names}
    if _COMPLETED.search(reply):
        reply = _COMPLETED.sub("", reply).rstrip("*_` \n")
    markers = list(_MARKER_AT_START.finditer(reply))
    if len(markers) == 1 and len(reply.strip().splitlines()) == 1:
        markers = list(_MARKER.finditer(reply))  # a reply of one line has them inside it
    found: dict[str, str] = {}
    last = ""
    for number, marker in enumerate(markers):
        end = markers[number + 1].start() if number + 1 < len(markers) else len(reply)
        name = by_key.get(key(marker["name"]), "")
        if name in found and name != last:
            break  # a second reply behind the first
        if name:
            found[name] = reply[marker.end() : end].strip().removesuffix("```").strip()
        last = name
    return found


def tagged_fields(reply: str, names: Sequence[str]) -> dict[str, str]:
    """The fields between tags that begin a line, ``<answer>...</answer>``."""
    found: dict[str, str] = {}
    for name in names:
        tag = re.escape(name).replace("_", "[ _-]?")
        match = re.search(rf"(?:^|>)[^\S\n]*<{tag}>(.*?)</{tag}>", reply, re.I | re.M | re.S)
        if match:
            found[name] = match[1].strip()
    return found


def _json_reply(reply: str) -> Any:
    """The JSON object that is the reply in a text which leads in to it, or remarks on it; ``None`` if it is a quote."""
    objects = list(objects_in(reply))
    if not objects:
        return None
    start, end, value = objects[0]
    if len(objects) > 1:
        between = [reply[a[1] : b[0]] for a, b in pairwise(objects)]
        if not any(gap.strip(" \n,;") for gap in between):  # an object a field
            end, value = objects[-1][1], [one for _, _, one in objects]
        elif not reply[objects[-1][1] :].strip(" \n`~."):  # the last one closes the reply
            start, end, value = objects[-1]
    before, behind = reply[:start], reply[end:]
    lead = re.sub(r"[`~]{3}\w*\s*\Z", "", before.rstrip()).rstrip()
    line = lead.rpartition("\n")[2]
    if _QUOTES.search(line) or line.count('"') % 2 or line.count("`") % 2:
        return None
    own_line = not before.rpartition("\n")[2].strip()
    last = not behind.strip(" \n`~.")
    if last and (own_line or _ANNOUNCES.search(line)):
        return value
    announced = not lead or _ANNOUNCES.search(line)
    return value if announced and len(lead) <= _LONGEST_LEAD and _REMARK.match(behind) and len(behind) <= 1000 else None
