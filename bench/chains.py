"""The gold chain of a MuSiQue question: the sub-questions that lead to its answer, and how far a text gets along it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from cirag_dspy.signatures import REFUSAL
from cirag_dspy.text import fact_lines, one_line, words

ARTICLES = frozenset({"a", "an", "the"})


@dataclass(frozen=True)
class Link:
    """A sub-question, its answer and what supports it; a name such as ``#1`` in a sub-question stands for the answer of
    that link. ``sources`` are the supporting passage and its triples.
    """

    name: str
    ask: str
    answer: str
    title: str
    sources: tuple[str, ...]

    @property
    def statement(self) -> str:
        """The answer in the script's own words."""
        return f"{self.ask}: {self.answer}."

    def stands_in(self, line: str) -> bool:
        """Whether a line says the answer: it has its words in a row, articles aside, and is the passage that supports
        it, a sentence or a triple of that, or says it in the script's words. Elsewhere the words are a coincidence.
        """
        key = _key(line.removeprefix(f"{self.title}: "))
        supported = any(_within(key, source) for source in self.sources)
        return _within(_key(self.answer), key) and (supported or self.statement in line)


@dataclass(frozen=True)
class Chain:
    """A question and the links that lead to its answer, in order."""

    question: str
    links: tuple[Link, ...]

    @classmethod
    def read(cls, row: dict, triples: Mapping[str, Sequence[str]]) -> Chain:
        """The chain of a row of MuSiQue; relations are written with a comma instead of ``>>``.

        Args:
            row: The row.
            triples: The triples of each text, as lines.
        """
        links = []
        for number, step in enumerate(row["question_decomposition"], 1):
            ask = step["question"].replace(" >> ", ", ").rstrip(" ?")
            passage = next(one for one in row["paragraphs"] if one["idx"] == step["paragraph_support_idx"])
            text, title = one_line(passage["paragraph_text"]), one_line(passage["title"])
            sources = tuple(map(_key, [text, *triples.get(text, ())]))
            links.append(Link(f"#{number}", ask, step["answer"], title, sources))
        return cls(one_line(row["question"]), tuple(links))

    def held(self, *texts: str) -> int:
        """How many links are known from the lines of texts: the first without its answer there ends the chain."""
        lines = [line for text in texts for line in fact_lines(text)]
        return len(list(takewhile(lambda link: any(map(link.stands_in, lines)), self.filled())))

    def filled(self) -> list[Link]:
        """The links, each with the answers that its sub-question needs."""
        return [self._rest(place)[0] for place in range(len(self.links))]

    def complete(self, held: int) -> bool:
        """Whether all is known."""
        return held == len(self.links)

    def open(self, held: int) -> list[str]:
        """The sub-questions left, each to stand alone: answers are filled in where known, else described."""
        return [part.question for part in self.parts(held)]

    def parts(self, held: int) -> list[Chain]:
        """The sub-questions left as chains of their own."""
        rest = self._rest(held)
        return [Chain(_described(link, rest), _behind(link, rest)) for link in rest]

    def known(self, held: int, since: int = 0) -> str:
        """What is known, a sentence a link."""
        return " ".join(link.statement for link in self.filled()[since:held])

    def told(self, held: int) -> str:
        """What is known, and what is missing."""
        return " ".join([self.known(held), *(f"Missing: {ask}." for ask in self.open(held)[:1])]).strip()

    def likely(self, held: int, otherwise: str = REFUSAL) -> str:
        """The answer if all is known, else the nearest to it that is."""
        return self.links[held - 1].answer if held else otherwise

    def _rest(self, held: int) -> tuple[Link, ...]:
        """The links that are not known, with the answers of those that are."""
        rest = self.links[held:]
        for known in self.links[:held]:
            rest = tuple(replace(link, ask=link.ask.replace(known.name, known.answer)) for link in rest)
        return rest


def _described(link: Link, links: Sequence[Link]) -> str:
    """A sub-question with those that it rests on, in brackets, for their answers."""
    text = link.ask
    for other in links:
        if other.name in link.ask:
            text = text.replace(other.name, f"({_described(other, links)})")
    return text


def _behind(link: Link, links: Sequence[Link]) -> tuple[Link, ...]:
    """The links that a link rests on, itself the last."""
    behind = [one for other in links if other.name in link.ask for one in _behind(other, links)]
    return tuple(dict.fromkeys([*behind, link]))


def _key(text: str) -> str:
    return " ".join(word for word in words(text) if word not in ARTICLES)


def _within(part: str, whole: str) -> bool:
    return f" {part} " in f" {whole} "
