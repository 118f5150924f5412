"""Triples of encyclopaedic text by pattern: silver data where no annotation says what a passage states.

Not an extractor for users: it knows the turns of phrase of encyclopaedia leads (is a, directed by, born in, a life's
dates in brackets) and passes over everything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cirag_dspy.text import one_line, words

Fields = tuple[str, str, str]

_MONTH = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATE = rf"(?:\d{{1,2}} (?:{_MONTH}),? \d{{3,4}}|(?:{_MONTH}) \d{{1,2}}, \d{{3,4}}|(?:{_MONTH}) \d{{4}}|\d{{3,4}})"
_LIFE = re.compile(rf"\(\s*[^()]*?(?P<birth>{_DATE})[^()–—-]*[–—-]+\s*[^()]*?(?P<death>{_DATE})[^()]*\)")
_BORN = re.compile(rf"\(\s*[^()]*?\bborn:?\s+(?:on )?[^()]*?(?P<birth>{_DATE})[^()]*\)")
_BIRTHPLACE = re.compile(r"\bborn\b[^();]*?\bin (?P<place>[A-Z][^();–—]*)")
_BRACKETS = re.compile(r"\s*\([^()]*\)")
_PRONOUN = re.compile(
    r"^(?:(?:He|She|It|They)\b|(?:The|This) (?:film|movie|album|song|novel|book|series|band|group|company|show|town"
    r"|village|city|school|university|club|game|single|team)\b|(?P<his>His|Her|Its|Their)\b)"
)
_COPULA = re.compile(r"\s(?P<verb>is|was|are|were)\s+(?P<rest>(?:an?|the|one)\s.+)")
_VERB = re.compile(
    r"\b(?P<verb>(?:(?:is|was|were|are|has been|had been)\s+)?"
    r"(?:directed|written|co-written|produced|composed|performed|recorded|released|published|founded|established|created"
    r"|developed|built|designed|born|died|buried|raised|educated|located|situated|based|headquartered|married|known"
    r"|starring|stars|starred|featuring|features|played|plays|worked|works|served|serves|studied|graduated|attended"
    r"|joined|left|won|received|became|appeared|lived|lives|moved|led|edited|adapted|named|nominated|elected|appointed"
    r"|signed|owned|operated|distributed|part|borders|contains|includes|competed|represented|wrote|directs|succeeded"
    r"|ruled|reigned|taught|coached|managed|shot|filmed|set|sung|scored|sang|produces|hosted|attends)"
    r"(?:\s+(?:by|in|on|at|from|for|as|of|to|with|off|near|into|under))?"
    r"|(?:(?:grand)?(?:son|daughter|child|mother|father)|wife|husband|widow|brother|sister|nephew|niece|cousin|member"
    r"|capital|citizen|founder|author|editor|director|king|queen|president)\s+of)\s+(?P<tail>.+)"
)
_STOP = r"(?:[,;]|(?<!\b[A-Z])\.)(?=\s|$)"
_END = re.compile(rf"{_STOP}|\s(?:and|but|who|which|that|where|when|while|before|after|until|with)\s|\s[–—]\s")
_CLAUSE = re.compile(rf"{_STOP}|\s(?:who|which|that|where|when)\s|\s[–—]\s")
_HANGING = re.compile(r"(?:,?\s+(?:and|or|the|an?|of|by))+$")
_LIST = re.compile(r",\s*(?:and\s+)?|\s+and\s+")
_NAMES = re.compile(r"(?:[A-Z][\w.'’-]*\s?){1,5}")


def pattern_triples(title: str, sentences: Sequence[str], most: int = 12) -> list[Fields]:
    """At most ``most`` triples (head, relation, tail) of a passage, in the order of its sentences, each once."""
    found: dict[Fields, None] = {}
    subject = one_line(_BRACKETS.sub("", title)) or one_line(title)
    for number, sentence in enumerate(sentences):
        for head, relation, tail in _facts(subject, one_line(sentence), first=number == 0):
            tail = _HANGING.sub("", tail.strip(" ,;.\"'“”"))
            if head and tail and len(words(tail)) <= 12:
                found.setdefault((head, relation, tail))
    return list(found)[:most]


def _facts(subject: str, sentence: str, first: bool) -> Iterator[Fields]:
    if first:
        brackets = " ".join(_BRACKETS.findall(sentence))  # whole ones: an open one takes the search too long
        if life := _LIFE.search(brackets):
            yield subject, "date of birth", life["birth"]
            yield subject, "date of death", life["death"]
        elif born := _BORN.search(brackets):
            yield subject, "date of birth", born["birth"]
        if place := _BIRTHPLACE.search(brackets):
            yield subject, "place of birth", place["place"]
    plain = _BRACKETS.sub("", sentence)
    pronoun = _PRONOUN.match(plain)
    name = words(subject)
    if not (first or pronoun or (name and words(plain)[: len(name)] == name)):
        return
    if pronoun and pronoun["his"]:
        if possessed := re.match(r"^\w+ (?P<relation>[\w -]{3,30}?) (?:is|was|are|were) (?P<tail>.+)", plain):
            yield subject, possessed["relation"], _phrase(possessed["tail"])
        return
    if copula := _COPULA.search(plain):
        rest = _VERB.split(copula["rest"], maxsplit=1)[0]
        yield subject, copula["verb"], re.sub(r"^(?:an?|the|one)\s+", "", _CLAUSE.split(rest)[0])
    position = 0
    while verb := _VERB.search(plain, position):
        relation = one_line(verb["verb"])
        for tail in _tails(relation, verb["tail"]):
            yield subject, relation, tail
        position = verb.start("tail")


def _phrase(text: str) -> str:
    """The text up to where its clause ends."""
    end = _END.search(text)
    date = re.match(rf"(?:{_MONTH}) \d{{1,2}}, \d{{3,4}}", text)
    return date[0] if date else text[: end.start()] if end else text


def _tails(relation: str, text: str) -> list[str]:
    """What a verb is about; each name of a list of names."""
    clause = re.split(r"(?:;|(?<!\b[A-Z])\.)(?=\s|$)|\s(?:who|which|that|where|when)\s", text)[0]
    items = _LIST.split(clause)
    if len(items) > 1 and re.search(
        r"\b(?:by|starring|stars|starred|featuring|features|includes|son of|daughter of|child of)$", relation
    ):
        names = []
        for item in items:
            if not _NAMES.fullmatch(item.strip()):
                break
            names.append(item)
        if names:
            return names[:5]
    return [_phrase(text)]
