"""What an LM wrote, read leniently: triples and fact numbers. Nothing is evaluated, nothing good is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from cirag_dspy.replies.answers import unmarked
from cirag_dspy.replies.jsontext import as_line, as_text, load_json, payload
from cirag_dspy.schema import Triple
from cirag_dspy.text import match_key, one_line, signed_words, word_f1, words

Fields = tuple[str, str, str]

_NOTHING = re.compile(
    r"^\W*(?:(?:there (?:is|are) )?(?:none|nothing|n/?a|no (?:relevant |named )?(?:facts?|triples?|entities)))\b"
    r"(?!.*\b(?:except|but|besides)\b)[^|;]*$",
    re.I,
)
_NEXT_WORD = re.compile(r"\W*(?:none|nothing|n/?a|no)\s+[\"'“”‘’]?(\w+)", re.I)
_OF_NOTHING = frozenset(
    re.findall(
        r"\w+",
        "of are is was were in here found given known stated listed mentioned relevant named applicable available "
        "fact facts triple triples entity entities",
    )
)
_BULLET = re.compile(r"^\s*(?:[-*•]\s+|\(?\d{1,3}[.):]\s+)")
_NUMBER_WORDS = re.compile(r"\b(?:and|facts?|numbers?|triples?|nos?)\b", re.I)
_FRONT_NUMBER = re.compile(r"^\s*(?:[-*•]\s*)?(?:fact\s*)?[\[(#]?(\d{1,3})[\]).:]+\s*", re.I)
_DECORATION = re.compile(r"^```|^\s*[{}\[\],]*\s*$|^[\w \"']{1,20}:\s*[\[{]?$|^[\s|:-]+$")
_ALIKE = 0.6  # KiRAG's threshold
_OPENING = re.compile(r"[\[{](?=\s*[\"\[{])")
_GROUPS = re.compile(r"\([^()]*\)|<[^<>]*>")
_HEADERS = ({"head", "subject"}, {"relation", "predicate"})
_KEYS = (
    ("head", "subject", "source", "s", "h", "entity1"),
    ("relation", "predicate", "relationship", "verb", "p", "r"),
    ("tail", "object", "target", "o", "t", "entity2"),
)


def parse_triples(text: str) -> tuple[list[Fields], int]:
    """Triples (head, relation, tail) in a reply, each once, and how many lines or items were not one.

    Reads one triple a line with ``|``, tabs, ``;`` or ``,`` between the fields, numbered or bulleted, in brackets of
    any kind, and JSON arrays or objects, also fenced, nested or cut off. A line that starts with ``|`` and has two
    fields goes on with the head of the triple above it. An item with another number of fields, or with an empty one, is
    counted, not guessed at. Unicode is kept as written.
    """
    triples: dict[Fields, None] = {}
    dropped = 0
    head = ""
    for item in _items(text):
        fields = _fields(item)
        if fields is None and head and isinstance(item, str) and item.lstrip().startswith("|"):
            fields = _fields(f"{head} {item}")
        head = ""
        if fields is None:
            dropped += 1
        elif not _is_header(fields):
            head = fields[0]
            triples.setdefault(fields)
    return list(triples), dropped


def says_nothing(text: str) -> bool:
    """Whether a reply says explicitly that there is nothing to list, as in "none", "[]", "none of the facts help"."""
    return text.strip() in ("[]", "{}") or bool(_NOTHING.match(text) and not _is_name(text))


def _is_name(text: str) -> bool:
    """Whether it begins as a title does: "Nothing Else Matters is a song"."""
    found = _NEXT_WORD.match(text)
    word = found[1] if found else ""
    return word[:1].isupper() and not word.isupper() and word.lower() not in _OF_NOTHING


def parse_core(text: str, candidates: Sequence[Triple]) -> tuple[list[Triple], int]:
    """Candidates chosen by a reply, in the reply's order, and how many of its choices are no candidate.

    Takes the numbers of the prompt (1-based) and, where the reply copies facts instead, matches the text back: the very
    text first, then the number in front of it where that fact is like it, then the same words with their signs, then
    most words. What is no candidate cannot enter (provenance is exact). Only what stands before the first blank line
    counts; explanations come after it.
    """
    chosen: dict[Triple, None] = {}
    rejected = 0
    offered = _Offered(candidates)
    for line in _core_lines(text):
        for triple in [] if line not in offered.exact and says_nothing(line) else _choices(line, offered):
            if triple is None:
                rejected += 1
            else:
                chosen.setdefault(triple)
    return list(chosen), rejected


class _Offered:
    """Candidates by their number, their text and their words."""

    def __init__(self, candidates: Sequence[Triple]) -> None:
        self.candidates = candidates
        self.exact = {one_line(triple.text): triple for triple in reversed(candidates)}
        self.loose = {match_key(triple.text): triple for triple in reversed(candidates)}

    def numbered(self, number: int) -> Triple | None:
        return self.candidates[number - 1] if 1 <= number <= len(self.candidates) else None

    def nearest(self, text: str) -> Triple | None:
        """The candidate that shares most words with a fact that was not copied exactly, the first of equals; none if
        the F1 of their words is below KiRAG's 0.6, or if they differ in a sign.
        """
        best, most = None, _ALIKE
        for candidate in reversed(self.candidates):
            shared = _likeness(text, candidate)
            if shared >= most:
                best, most = candidate, shared
        return best

    def copied(self, text: str, number: Triple | None) -> Triple | None:
        """The candidate that a text was copied from, with ``number`` in front of it."""
        if known := self.exact.get(one_line(text)):
            return known
        if number is not None and _likeness(text, number) >= _ALIKE:
            return number
        return self.loose.get(match_key(text)) or number or self.nearest(text)


def _likeness(text: str, candidate: Triple) -> float:
    """F1 of the words of a text and of a candidate; 0 if a sign tells them apart."""
    some, others = set(signed_words(text)), set(signed_words(candidate.text))
    differ = {_unsigned(word) for word in some - others} & {_unsigned(word) for word in others - some}
    differ |= {word for word in some - others if "$" in word and set(word.split("$")) <= others}
    differ |= {word for word in others - some if "$" in word and set(word.split("$")) <= some}
    return 0.0 if differ else word_f1(words(text), words(candidate.text))


def _unsigned(word: str) -> str:
    return word.strip("+-#♯♭.")


def _core_lines(text: str) -> list[str]:
    """The lines of a reply's choices, or the items of the JSON that it is."""
    block = re.split(r"\n\s*\n", text.strip())[0]
    value = payload(load_json(block))
    parts = value if isinstance(value, list) else []
    one_fact = len(parts) == 3 and not any(
        "|" in part or part.strip().isdigit() for part in parts if isinstance(part, str)
    )
    if not parts or (one_fact and all(isinstance(part, str) for part in parts)):
        return block.splitlines()
    return [one_line(as_line(part)) for part in parts]


def _choices(line: str, offered: _Offered) -> list[Triple | None]:
    """What one line chooses; ``None`` for a choice that is no candidate."""
    front = _FRONT_NUMBER.match(line)
    body = line[front.end() :] if front else line
    for form in (line, _BULLET.sub("", line), body, unmarked(_BULLET.sub("", body)), body.strip().rstrip(".,;")):
        if known := offered.exact.get(one_line(form)):
            return [known]
    if re.search(r"[^\W\d_]", _NUMBER_WORDS.sub("", line)):
        # Words: a copied fact. They decide; where they were altered, the number in front of them does, else most words.
        texts = [" | ".join(fields) for item in _items(body) if (fields := _fields(item))]
        texts = texts or [body] * (body.count("|") > 1)
        number = offered.numbered(int(front.group(1))) if front else None
        if texts:
            return [offered.copied(text, None if place else number) for place, text in enumerate(texts)]
    return [offered.numbered(number) for number in _numbers(line)]


def _numbers(line: str) -> list[int]:
    """Whole numbers standing alone in a line, in order; ``2-4`` is 2, 3, 4."""
    numbers: list[int] = []
    for first, last in re.findall(r"(?<![\w.])(\d{1,3})(?:\s*[-–]\s*(\d{1,3}))?(?!\w)", line):
        numbers += range(int(first), int(last) + 1) if last and int(first) < int(last) else [int(first)]
    return numbers


def _items(text: str) -> Iterator[Any]:
    """Candidate triples of a reply: those of the JSON in it, or, where there is none, its lines."""
    tabular = any(line.count("|") > 1 for line in text.splitlines())
    found, cut_off = ([], False) if tabular else _json_items(text)
    if any(map(_fields, found)):
        yield from found
        yield from [None] * cut_off
        return
    for line in text.splitlines():
        groups = _GROUPS.findall(line)
        if len(groups) > 1 and not _GROUPS.sub("", line).strip(" ,;.[]"):
            yield from groups  # several on a line: (a, b, c), (d, e, f)
        elif not _DECORATION.match(line) and not says_nothing(line):
            yield line


def _json_items(text: str) -> tuple[list[Any], bool]:
    """Every complete JSON array or object in a text, taken apart, and whether one was cut off after them."""
    items: list[Any] = []
    if (whole := load_json(text)) is not None and any(map(_fields, items := _flat(payload(whole)))):
        return items, False
    items = []
    decoder, place, cut_off = json.JSONDecoder(), 0, False
    while opening := _OPENING.search(text, place):
        try:
            value, place = decoder.raw_decode(text, opening.start())
        except RecursionError:
            break  # nothing that deep is a triple
        except ValueError:
            place = opening.start() + 1
            cut_off = text[opening.start()] == "[" and '"' in text[place:]
            continue
        cut_off = False
        items += _flat(value)
    return items, cut_off


def _flat(value: Any) -> list[Any]:
    """What holds no list or object of its own, in order, however deep it lies."""
    items, todo = [], [value]
    while todo:
        value = todo.pop()
        children = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
        if any(isinstance(child, (list, dict)) for child in children):
            todo += reversed(children)
        else:
            items.append(value)
    return items


def _fields(item: Any) -> Fields | None:
    if isinstance(item, dict):
        lowered = {str(key).lower(): value for key, value in item.items()}
        item = [next((lowered[key] for key in keys if key in lowered), None) for keys in _KEYS]
    elif isinstance(item, str):
        item = _split(item)
    if not isinstance(item, list) or len(item) != 3 or not all(isinstance(part, (str, int, float)) for part in item):
        return None
    head, relation, tail = (unmarked(one_line(as_text(part))) for part in item)
    return (head, relation, tail) if head and relation and tail else None


def _is_header(fields: Fields) -> bool:
    """Whether a line names the columns, or echoes the prompt's description of them, instead of stating a fact."""
    return all(words(field)[-1:] and words(field)[-1] in names for field, names in zip(fields, _HEADERS, strict=False))


def _split(line: str) -> list[str]:
    line = unmarked(_BULLET.sub("", re.sub(r"^\s*<(triples?|facts?)>(.*?)</\1>\s*$", r"\2", line, flags=re.I)).strip())
    inner = _unwrap(line)
    for rarer in ("｜", " → ", " -> ", " — "):
        if "|" not in inner and inner.count(rarer) == 2:
            return inner.split(rarer)
    for separator in ("|", "\t", ";"):
        if separator in inner:
            return inner.strip(separator).split(separator)
    # Commas also stand inside names and dates, so they separate only inside brackets and when they leave three fields.
    if inner is line:
        return [line]
    quoted = re.findall(r"\"([^\"]+)\"|'([^']+)'(?=\s*(?:,|$))", inner)
    return [double or single for double, single in quoted] if quoted else inner.split(",")


def _unwrap(line: str) -> str:
    """The inside of a line that stands in one pair of brackets; "(The) A | b | C (x)" does not."""
    body = line.rstrip(",;. ")
    closing = {"(": ")", "[": "]", "<": ">", "{": "}"}.get(body[:1])
    if not closing or not body.endswith(closing):
        return line
    depth = 0
    for place, mark in enumerate(body):
        depth += (mark == body[0]) - (mark == closing)
        if depth == 0 and place < len(body) - 1:
            return line
    return body[1:-1]
