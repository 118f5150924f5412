"""Markdown to a title and paragraphs: what is markup for the reader's eye only is left out, all text stays."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from cirag_dspy.text import one_line, split_sentences

_FENCE = re.compile(r"\s*(?:[-*+]\s+|\d+[.)]\s+|>\s?)*(`{3,}(?=[^`]*$)|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_BREAK = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$")
_TABLE_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$")
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
_NO_TITLE = re.compile(r"\s*(?:[-*+>|]|\d{1,9}[.)]\s)| {4}|\t")
_CODE_OR_COMMENT = re.compile(r"(?<!`)(`+)(?!`)(?:(?!\n[ \t]*\n).)+?(?<!`)\1(?!`)|<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"!?\[([^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])")
# Lines of YAML: a key, or what may stand between keys: comments, items, closing brackets, indented and empty lines.
_KEY = re.compile(r"[\w\"'][^:]*:(?:\s|$)")
_BETWEEN_KEYS = re.compile(r"#|\s|-(?:\s|$)|[\]}]|$")
_TITLE_KEY = re.compile(r"[\"']?title[\"']?\s*:(.*)$", re.IGNORECASE)


@dataclass
class Markdown:
    """A Markdown text: its title ("" if it has none) and its paragraphs, which are lists of sentences."""

    title: str = ""
    paragraphs: list[list[str]] = field(default_factory=list)


def read_markdown(text: str) -> Markdown:
    """Title and paragraphs of a Markdown text.

    The title is that of the front matter (YAML between ``---``, TOML between ``+++``), else the first heading
    (``# Title``, or a line underlined by ``===`` or ``---``). Other headings stand before the first sentence of their
    section. Items of lists, rows of tables and lines of code are sentences of their own. Left out are front matter,
    comments (``<!-- -->``), fences, rules and the marks of headings; all else stays as it is written.
    """
    title, text = _front_matter(text)
    page = Markdown(title)
    headings: list[str] = []
    for kind, lines in _blocks(text):
        if kind == "heading":
            heading = one_line(" ".join(lines))
            if not page.title:
                page.title = _LINK.sub(r"\1", heading).strip() or heading
            elif heading and (page.paragraphs or heading != page.title):
                headings.append(heading)
        elif sentences := list(_sentences(lines, code=kind == "code")):
            page.paragraphs.append([*headings, *sentences])
            headings = []
    if headings or (page.title and not page.paragraphs):
        page.paragraphs.append(headings or [page.title])
    return page


def _front_matter(text: str) -> tuple[str, str]:
    """The title in a text's front matter, and the text behind it; a text that opens with a rule has none."""
    lines = text.split("\n")
    mark = lines[0].rstrip()
    if mark not in ("---", "+++"):
        return "", text
    ends = ("---", "...") if mark == "---" else ("+++",)
    end = next((number for number, line in enumerate(lines) if number and line.rstrip() in ends), 0)
    inside = lines[1:end]
    if not end or not any(line.strip() for line in inside):
        return "", text
    rest = "\n".join(lines[end + 1 :])
    if mark == "+++":
        try:
            return one_line(str(tomllib.loads("\n".join(inside)).get("title", ""))), rest
        except tomllib.TOMLDecodeError:
            return "", text
    if not _is_yaml(inside):
        return "", text
    return _yaml_title(inside), rest


def _is_yaml(lines: list[str]) -> bool:
    """Whether lines are keys and values and none is prose."""
    return any(map(_KEY.match, lines)) and all(_KEY.match(line) or _BETWEEN_KEYS.match(line) for line in lines)


def _yaml_title(lines: list[str]) -> str:
    """The value of the key ``title``: plain, quoted, or on the indented lines below."""
    found = [(number, match[1].strip()) for number, line in enumerate(lines) if (match := _TITLE_KEY.match(line))]
    if not found:
        return ""
    number, value = found[0]
    below = takewhile(lambda line: not line.strip() or line.startswith((" ", "\t")), lines[number + 1 :])
    if re.match(r"[|>]", value):
        value = ""
    elif value[:1] not in ("'", '"'):
        value = re.split(r"(?:^|\s)#", value)[0]
    return _unquoted(" ".join([value, *map(str.strip, below)]).strip())


def _unquoted(value: str) -> str:
    double = re.match(r'"((?:[^"\\]|\\.)*)"', value)
    if double:
        return one_line(re.sub(r'\\(["\\/])', r"\1", double[1]))
    single = re.match(r"'((?:[^']|'')*)'", value)
    return one_line(single[1].replace("''", "'") if single else value)


def _blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    """Blocks of lines: ``heading``, ``code`` (within a fence) or ``text``."""
    held: list[str] = []
    for kind, lines in _segments(text):
        if kind == "code":
            yield "text", held
            held = []
            yield "code", lines
            continue
        for line in lines:
            heading = _HEADING.match(line)
            if heading:
                yield "text", held
                held = []
                yield "heading", [heading[1] or ""]
            elif _UNDERLINE.match(line) and len(held) == 1 and not _NO_TITLE.match(held[0]):
                yield "heading", held
                held = []
            elif not line.strip() or _BREAK.match(line) or (held and _UNDERLINE.match(line) and "|" not in held[-1]):
                yield "text", held
                held = []
            elif not (held and "|" in held[-1] and _TABLE_RULE.match(line)):
                held.append(line)
    yield "text", held


def _segments(text: str) -> Iterator[tuple[str, list[str]]]:
    """The text in turns of ``text`` without its comments, and ``code``: the lines within a fence."""
    lines = text.split("\n")
    held: list[str] = []
    number = 0
    while number < len(lines):
        found = _FENCE.match(lines[number])
        if not found or _in_comment(held, lines[number:]):
            held.append(lines[number])
            number += 1
            continue
        inside = _until_closed(lines[number + 1 :], found[1])
        number += len(inside) + 2
        if number > len(lines) and len(found[0]) - len(found[0].lstrip()) > 3:
            # Nothing closes it, and what stands so far in is no fence: it is code itself.
            number -= len(inside) + 1
            held.append(found.string)
            continue
        yield "text", _without_comments(held)
        yield "code", inside
        held = []
    yield "text", _without_comments(held)


def _until_closed(lines: list[str], fence: str) -> list[str]:
    def closes(line: str) -> bool:
        bare = line.lstrip("> \t").rstrip()
        return bare.startswith(fence) and not bare.strip(fence[0])

    return list(takewhile(lambda line: not closes(line), lines))


def _in_comment(before: list[str], after: list[str]) -> bool:
    return any("-->" in line for line in after) and "<!--" in _CODE_OR_COMMENT.sub("", "\n".join(before))


def _without_comments(lines: list[str]) -> list[str]:
    def kept(found: re.Match[str]) -> str:
        return found[0] if found[1] else "\n" * ("\n" in found[0])

    text = "\n".join(lines)
    # Looking for an end behind each beginning would take long where there is none.
    return _CODE_OR_COMMENT.sub(kept, text).split("\n") if "-->" in text else lines


def _sentences(lines: list[str], code: bool) -> Iterator[str]:
    """Sentences of a block; those of an item, a row of a table and a line of code end with it."""
    runs: list[list[str]] = []
    for line in lines:
        if code or not runs or _ITEM.match(line) or "|" in line[:3] or line.rstrip().endswith("|"):
            runs.append([])
        runs[-1].append(line)
    for run in runs:
        yield from split_sentences("\n".join(run))
