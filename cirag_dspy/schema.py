"""What flows through the system: passages, triples, hops, evidence, citations. Frozen, hashable, no behaviour beyond
views of themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cirag_dspy.text import one_line, split_sentences

Level = Literal["triples", "sentences", "passages", "default"]
ExtractionState = Literal["pending", "done", "cut", "empty", "failed"]
EXTRACTION_STATES: tuple[ExtractionState, ...] = ("pending", "done", "cut", "empty", "failed")


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage of the corpus.

    Args:
        id: Stable id. Made by ``Passage.create`` from title and text, unless the corpus brings its own.
        title: Title, may be empty.
        sentences: Sentences in order. Positions are those of the data set, so empty ones are kept.
    """

    id: str
    title: str
    sentences: tuple[str, ...]

    @classmethod
    def create(cls, title: str, text: str | Iterable[str], id: str | None = None) -> Passage:
        """Passage from a text (split into sentences) or from given sentences; without ``id``, a hash of both is it.

        The hash covers title and text, not their split into sentences: one passage is one passage whatever its layout.
        """
        sentences = split_sentences(text) if isinstance(text, str) else [one_line(sentence) for sentence in text]
        passage = cls(id or "", one_line(title), tuple(sentences))
        return passage if id else cls(passage.content, passage.title, passage.sentences)

    @property
    def content(self) -> str:
        """Hash of title and text; the id of a passage that brings none."""
        return hashlib.sha256(f"{self.title}\n{self.text}".encode()).hexdigest()[:16]

    @property
    def text(self) -> str:
        """The sentences, joined by blanks."""
        return " ".join(sentence for sentence in self.sentences if sentence)


@dataclass(frozen=True, slots=True)
class Triple:
    """A fact with its provenance: the passage and the sentence (0-based) it was extracted from (M^D and M^S)."""

    head: str
    relation: str
    tail: str
    passage_id: str
    sentence: int

    @property
    def text(self) -> str:
        """The triple as one line of a prompt: ``head | relation | tail``."""
        return f"{self.head} | {self.relation} | {self.tail}"


@dataclass(frozen=True, slots=True)
class Extraction:
    """What an extractor made of one passage.

    Args:
        state: ``done`` (there are triples), ``cut`` (the reply ended at its token limit: the complete triples are kept,
            more may be missing), ``empty`` (there are none: the LM said so, or, as ``error`` says, lists none however
            often it is asked) or ``failed`` (no usable output; ``error`` says why).
        triples: The triples, in the reply's order.
        dropped: Malformed lines left out.
        error: Why an extraction is not ``done``, in one line.
        room: Tokens that a cut reply was allowed to have; 0 of one that was not cut.
        useless: Whether the LM replied with text that lists no triple. ``extract_missing`` counts these.
    """

    state: ExtractionState
    triples: tuple[Triple, ...] = ()
    dropped: int = 0
    error: str = ""
    room: int = 0
    useless: bool = False

    @property
    def truncated(self) -> bool:
        """Whether the reply ended at its token limit."""
        return bool(self.room)


@dataclass(frozen=True, slots=True)
class Tries:
    """What earlier extractions of a passage cost: runs with useless replies, and the room of the reply that was cut."""

    useless: int = 0
    room: int = 0


@dataclass(frozen=True, slots=True)
class Hit:
    """A retrieved passage and its score (inner product of unit vectors, -1 to 1)."""

    passage: Passage
    score: float


@dataclass(frozen=True, slots=True)
class Hop:
    """One turn of construction and integration: what was asked, found, shown, thought, kept and asked next."""

    query: str
    passage_ids: tuple[str, ...]
    candidates: tuple[Triple, ...]
    thought: str
    core: tuple[Triple, ...]
    next_query: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Citation:
    """A sentence that an answer rests on."""

    passage_id: str
    title: str
    sentence: int
    text: str


@dataclass
class Evidence:
    """The evidence pool: one list of core triples. Sentences and passages are derived from it (CIRAG eq. 3 and 4)."""

    triples: list[Triple] = field(default_factory=list)

    def add(self, triples: Iterable[Triple]) -> None:
        """Add core triples, each once, in order of arrival."""
        known = set(self.triples)
        for triple in triples:
            if triple not in known:
                known.add(triple)
                self.triples.append(triple)

    def sentences(self) -> list[tuple[str, int]]:
        """(passage id, sentence index) of each core triple, each once, in order of arrival (eq. 3)."""
        return list(dict.fromkeys((triple.passage_id, triple.sentence) for triple in self.triples))

    def passage_ids(self) -> list[str]:
        """Passage id of each core triple, each once, in order of arrival (eq. 4)."""
        return list(dict.fromkeys(triple.passage_id for triple in self.triples))

    def cite(self, passages: Mapping[str, Passage]) -> Iterator[Citation]:
        """The derived sentences with their titles and texts; ids that ``passages`` lacks are passed over."""
        for passage_id, sentence in self.sentences():
            passage = passages.get(passage_id)
            if passage is not None and sentence < len(passage.sentences):
                yield Citation(passage_id, passage.title, sentence, passage.sentences[sentence])
