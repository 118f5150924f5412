"""DualRAG (arXiv 2504.18243): reasoning asks for knowledge about entities, and grows with what is learnt of them."""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from cirag_dspy.modules.answers import concluded
from cirag_dspy.modules.identify import OTHER, Identify
from cirag_dspy.modules.knowledge import Knowledge
from cirag_dspy.modules.notes_reader import NotesReader
from cirag_dspy.modules.reader import Reader, cite_answer, passage_line
from cirag_dspy.modules.search import SearchIndex
from cirag_dspy.modules.summarise import Summarise
from cirag_dspy.modules.think import Think
from cirag_dspy.modules.trail import Trail, round_robin
from cirag_dspy.systems.base import Of, System
from cirag_dspy.systems.limits import require_at_least
from cirag_dspy.text import is_refusal, one_line


class DualRAG(System):
    """Thinks until no knowledge is missing, and answers from what it thought and learnt.

    At each step the reasoner thinks on and says whether knowledge is missing. If so, the entities that it is about are
    named, each with queries, and the passages that are new for an entity are summarised into its knowledge. The
    original re-ranks an entity's passages with a cross-encoder; here those of its queries take turns, the best first.
    A step that finds nothing new is the last.

    Args:
        index: What is searched.
        k: Passages per query, and per entity and step.
        max_hops: Steps at most.
        max_entities: Entities per step at most.
    """

    max_entities = Of("identify", "most")

    def __init__(self, index: SearchIndex, *, k: int = 10, max_hops: int = 5, max_entities: int = 4) -> None:
        super().__init__()
        require_at_least(1, k=k, max_hops=max_hops, max_entities=max_entities)
        self.index = index
        self.k = k
        self.max_hops = max_hops
        self.think = Think()
        self.identify = Identify(max_entities)
        self.summarise = Summarise()
        self.answer = NotesReader()
        self.default = Reader()

    def forward(self, question: str) -> dspy.Prediction:
        """Answer ``question``.

        Returns:
            A prediction with ``answer``; ``answered`` (false after a refusal, or where it stands nowhere); ``level``
            (``summary``, or ``default`` for an answer forced from the passages); ``thought`` (all thoughts);
            ``citations`` (sentences with the answer, of the passages that were learnt from); ``passages`` (ids, ranked:
            those learnt from, then the others found); ``hops`` (one a search); ``stopped`` (``sufficient``,
            ``nothing_new`` or ``max_hops``).
        """
        question = one_line(question)
        trail, knowledge, thoughts = Trail(self.index, self.k), Knowledge(), list[str]()
        stopped = self._learn(question, trail, knowledge, thoughts)
        sources, level = knowledge.sources(), "summary"
        notes = [*knowledge.lines(), *thoughts]
        answer = self.answer(question=question, notes=notes).answer if notes else ""
        if is_refusal(answer) and not trail.hops:  # it thought that it knew
            trail.search(question)
        passages = round_robin([[*sources, *trail.passages()]])
        if passages and is_refusal(answer):
            answer, level = self.default(question=question, passages=passages[: self.k]).answer, "default"
        lines = [*knowledge.lines(), *map(passage_line, sources or passages)]
        given = concluded(answer, question, lines, forced=True, refused=level == "default")
        return dspy.Prediction(
            **given,
            level=level,
            thought=" ".join(thoughts),
            citations=cite_answer(given["answer"], sources or passages),
            passages=[passage.id for passage in passages],
            hops=trail.hops,
            stopped=stopped,
        )

    def _learn(self, question: str, trail: Trail, knowledge: Knowledge, thoughts: list[str]) -> str:
        """Let knowledge and thoughts grow; why that ended."""
        for _ in range(self.max_hops):
            step = self.think(question=question, knowledge=knowledge, thoughts=thoughts)
            if step.thought:
                thoughts.append(step.thought)
            if not step.retrieve:
                return "sufficient"
            needs = self.identify(question=question, knowledge=knowledge, thoughts=thoughts).needs
            found = [
                self._look_up(question, trail, knowledge, thoughts, name, queries)
                for name, queries in needs or [(OTHER, [question])]
            ]
            if not any(found):
                return "nothing_new"
        return "max_hops"

    def _look_up(
        self,
        question: str,
        trail: Trail,
        knowledge: Knowledge,
        thoughts: Sequence[str],
        name: str,
        queries: Sequence[str],
    ) -> bool:
        """Learn about one entity; whether a passage is new for it."""
        entity, thought = knowledge.entity(name), thoughts[-1] if thoughts else ""
        found = round_robin([trail.search(query, thought) for query in queries])[: self.k]
        new = [passage for passage in found if passage.id not in entity.read]
        if not new:
            return False
        entity.read.update(passage.id for passage in new)
        summary = self.summarise(
            question=question, thoughts=thoughts, entity=entity.name, queries=queries, passages=new
        ).summary
        if summary:
            entity.summaries.append(summary)
            entity.sources.append(new)
        return True
