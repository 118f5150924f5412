"""From the gold of a data set, which names titles and paragraphs, to the passages of a corpus, which have ids."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from cirag_dspy.schema import Passage
from cirag_dspy.text import best_sentence


@dataclass(frozen=True)
class Gold:
    """One piece of gold: a title and, where the data set says so, the sentence (0-based) or the paragraph itself."""

    title: str
    sentence: int | None = None
    passage: Passage | None = None


def title_key(title: str) -> str:
    """Key under which titles are the same page: HTML entities resolved, case and white space aside."""
    return " ".join(html.unescape(title).casefold().split())


def content_key(passage: Passage) -> str:
    """Key under which two passages are the same text, however their sentences were joined (known failure G22)."""
    return "".join(html.unescape(f"{passage.title}\n{passage.text}").casefold().split())


class Resolver:
    """Finds gold in a corpus and counts what is not there.

    ``total`` and ``missing`` count gold passages, ``skipped`` gold sentences beyond the end of their passage.
    """

    def __init__(self, corpus: Iterable[Passage]) -> None:
        self.total = self.missing = self.skipped = 0
        self._by_id = {passage.id: passage for passage in corpus}
        self._by_title: dict[str, list[Passage]] = {}
        for passage in self._by_id.values():
            self._by_title.setdefault(title_key(passage.title), []).append(passage)

    @cached_property
    def _by_content(self) -> dict[str, Passage]:
        return {content_key(passage): passage for passage in reversed(self._by_id.values())}

    def resolve(self, gold: Sequence[Gold], own: Sequence[Passage]) -> tuple[list[str], list[tuple[str, int]], int]:
        """Look up the gold of one question.

        Args:
            gold: The gold of one question.
            own: The question's own paragraphs, looked through first.

        Returns:
            Of the gold that the corpus has: passage ids and ``(passage id, sentence index)`` pairs, each once, in
            order. And the number of gold passages that it lacks.
        """
        passages: dict[str, None] = {}
        sentences: dict[tuple[str, int], None] = {}
        absent: set[str] = set()
        for item in gold:
            found = self.find(item, own)
            if found is None:
                absent.add(content_key(item.passage) if item.passage else title_key(item.title))
                continue
            passages.setdefault(found.id)
            if item.sentence is not None:
                index = _sentence_in(found, item, own)
                if index is None:
                    self.skipped += 1
                else:
                    sentences.setdefault((found.id, index))
        self.total += len(passages) + len(absent)
        self.missing += len(absent)
        return list(passages), list(sentences), len(absent)

    def find(self, gold: Gold, own: Sequence[Passage]) -> Passage | None:
        """The passage of the corpus that this gold means.

        That is the question's own paragraph, by id or content; else the only passage with the title. A title that
        several passages share decides nothing.
        """
        local = gold.passage or _own(gold, own)
        if local is not None:
            found = self._by_id.get(local.id) or self._by_content.get(content_key(local))
            if found is not None:
                return found
        titled = self._by_title.get(title_key(gold.title), [])
        return titled[0] if len(titled) == 1 else None


def _own(gold: Gold, own: Sequence[Passage]) -> Passage | None:
    """The paragraph with the gold title; of several, one that has the sentence, exact spelling first."""
    key = title_key(gold.title)
    titled = sorted((p for p in own if title_key(p.title) == key), key=lambda p: p.title != gold.title)
    long_enough = (p for p in titled if gold.sentence is None or gold.sentence < len(p.sentences))
    return next(long_enough, titled[0] if titled else None)


def _sentence_in(found: Passage, gold: Gold, own: Sequence[Passage]) -> int | None:
    """Index of the gold sentence in ``found``, whose text may be split in other places than the data set's."""
    index = gold.sentence
    local = _own(gold, own)
    sentences = (local or found).sentences
    if index is None or not 0 <= index < len(sentences):
        return None
    if local is None or local.sentences == found.sentences or not found.sentences:
        return index if index < len(found.sentences) else None
    return best_sentence(local.sentences[index], found.sentences)
