"""What was learnt about each entity (DualRAG): summaries, and the passages that they were made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cirag_dspy.modules.trail import round_robin
from cirag_dspy.schema import Passage
from cirag_dspy.text import match_key, one_line


@dataclass
class Entity:
    """An entity under the name that it first came with: its summaries, those of its passages that a summary was made
    of, and the ids of all that were read for it.
    """

    name: str
    summaries: list[str] = field(default_factory=list)
    sources: list[Sequence[Passage]] = field(default_factory=list)
    read: set[str] = field(default_factory=set)


class Knowledge:
    """The knowledge base of one question. Spellings of a name that count as the same are one entity."""

    def __init__(self) -> None:
        self._entities: dict[str, Entity] = {}

    def entity(self, name: str) -> Entity:
        """The entity of that name, made where there is none yet."""
        name = one_line(name)
        return self._entities.setdefault(match_key(name), Entity(name))

    def names(self) -> list[str]:
        """Names of the entities, in order of arrival."""
        return [entity.name for entity in self._entities.values()]

    def lines(self) -> list[str]:
        """The knowledge as lines of a prompt, one an entity."""
        return [f"{entity.name}: {' '.join(entity.summaries)}" for entity in self._with_summary()]

    def sources(self) -> list[Passage]:
        """The passages behind the summaries, each once, the best of every summary first."""
        return round_robin([passages for entity in self._with_summary() for passages in entity.sources])

    def _with_summary(self) -> Iterable[Entity]:
        return (entity for entity in self._entities.values() if entity.summaries)
