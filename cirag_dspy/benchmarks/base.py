"""What a benchmark is: questions with their gold annotations, and the passages they are asked of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy

from cirag_dspy.benchmarks.gold import Gold, Resolver
from cirag_dspy.errors import DataError
from cirag_dspy.schema import Passage


@dataclass(frozen=True)
class Benchmark:
    """Questions and the corpus of one run.

    Args:
        name: Data set, one of ``DATASETS``.
        split: ``train``, ``dev`` or ``test``.
        examples: One ``dspy.Example`` a question, with ``question`` as its input; fields in ``Question.example``.
        passages: The corpus: the union of the questions' own paragraphs (IRCoT's rule), or the given one.
        notes: What a report should say: setting, counts, and ``warnings``, a list of one-line strings.
        source: Hub id and revision, or file path and SHA-256.
    """

    name: str
    split: str
    examples: list[dspy.Example]
    passages: list[Passage]
    notes: dict[str, Any] = field(default_factory=dict)
    source: str = ""

    @property
    def corpus_hash(self) -> str:
        """SHA-256 over the sorted passage ids, as ``CorpusIndex.corpus_hash`` of an index with just this corpus: an id
        that the corpus brought counts with the hash of its text, and passages without text don't count.
        """
        contents = {p.id: Passage.create(p.title, p.sentences).id for p in self.passages if p.text}
        lines = (f"{id}\n" if id == contents[id] else f"{id} {contents[id]}\n" for id in sorted(contents))
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @property
    def ids_sha256(self) -> str:
        """SHA-256 over the questions' ids, in order."""
        return hashlib.sha256("\n".join(example.id for example in self.examples).encode()).hexdigest()


@dataclass(frozen=True)
class Question:
    """One question as a layout describes it, its gold not yet looked up in the corpus.

    Args:
        id: Id of the data set; where it has none, data set, split and row number.
        question: The question.
        answers: Accepted answers, the main one first.
        type: Question type in the data set's own words, or empty.
        hops: Number of facts that it takes, where known.
        paragraphs: The question's own paragraphs with the data set's index of each.
        gold: What supports the answer, in order.
        supporting: Official sentence-level gold, ``(title, sentence index)``, exactly as published.
        evidences: Gold triples ``(head, relation, tail)``.
        evidence_golds: For each gold triple all its accepted forms (2Wiki with an alias file), else empty.
        decomposition: Sub-questions, ``{"question", "answer"}``, and ``"gold"`` where a paragraph is named.
        support_idxs: Official paragraph-level gold (MuSiQue).
        answerable: Whether there is an answer; if not, ``answers`` is empty and right is to abstain.
    """

    id: str
    question: str
    answers: Sequence[str]
    type: str = ""
    hops: int | None = None
    paragraphs: Sequence[tuple[int, Passage]] = ()
    gold: Sequence[Gold] = ()
    supporting: Sequence[tuple[str, int]] = ()
    evidences: Sequence[tuple[str, str, str]] = ()
    evidence_golds: Sequence[Sequence[tuple[str, str, str]]] = ()
    decomposition: Sequence[dict[str, Any]] = ()
    support_idxs: Sequence[int] = ()
    answerable: bool = True

    def example(self, dataset: str, resolver: Resolver) -> dspy.Example:
        """The question with its gold resolved to the corpus.

        ``supporting`` and ``evidences`` stay as published, for the official scores. ``gold_passages`` and
        ``gold_sentences`` (``(passage id, sentence index)``) hold what is in the corpus, for retrieval and teachers,
        ``gold_missing`` counts the gold passages that are not; ``gold_titles`` are the pages named, where the gold is
        pages (HotpotQA, 2Wiki) and not paragraphs (MuSiQue, NQ);
        ``paragraphs`` maps the question's own paragraphs, by their ids in the corpus, to the data set's index of each.
        """
        own = [passage for _, passage in self.paragraphs]
        passages, sentences, missing = resolver.resolve(self.gold, own)
        steps = []
        for step in self.decomposition:
            gold = step.get("gold")
            found = resolver.find(gold, own) if gold is not None else None
            steps.append(
                {key: value for key, value in step.items() if key != "gold"}
                | ({"passage_id": found.id} if found is not None else {})
            )
        paragraphs: dict[str, int] = {}
        for index, passage in self.paragraphs:
            found = resolver.find(Gold(passage.title, passage=passage), own)
            paragraphs.setdefault((found or passage).id, index)
        return dspy.Example(
            id=self.id,
            question=self.question,
            answer=self.answers[0] if self.answers else "",
            answers=list(dict.fromkeys(self.answers)),
            type=self.type,
            hops=self.hops,
            supporting=list(self.supporting),
            gold_passages=passages,
            gold_sentences=sentences,
            gold_missing=missing,
            gold_titles=list(dict.fromkeys(gold.title for gold in self.gold if gold.passage is None)),
            evidences=list(self.evidences),
            evidence_golds=[list(forms) for forms in self.evidence_golds],
            decomposition=steps,
            support_idxs=list(self.support_idxs),
            paragraphs=paragraphs,
            dataset=dataset,
            **({} if self.answerable else {"answerable": False}),
        ).with_inputs("question")


def assemble(
    name: str,
    split: str,
    questions: Iterable[Question],
    *,
    corpus: Sequence[Passage] | None = None,
    notes: dict[str, Any] | None = None,
    source: str = "",
) -> Benchmark:
    """Join questions and corpus, resolve the gold, and note what the corpus lacks.

    Raises:
        DataError: There is no question, or two share an id.
    """
    questions = list(questions)
    if not questions:
        raise DataError(f"no examples in {name} {split} ({source})")
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise DataError(f"{name} {split}: two questions have the id {question.id!r} ({source})")
        seen.add(question.id)
    paragraphs = (passage for question in questions for _, passage in question.paragraphs)
    passages = list({passage.id: passage for passage in (paragraphs if corpus is None else corpus)}.values())
    resolver = Resolver(passages)
    examples = [question.example(name, resolver) for question in questions]
    notes = dict(notes or {})
    warnings = list(notes.pop("warnings", []))
    if not passages:
        warnings.append(f"{name} {split} has no passages of its own: give a corpus to retrieve from")
    elif resolver.missing:
        warnings.append(
            f"{resolver.missing} of {resolver.total} gold passages are not in the corpus; "
            "recall counts them as not found"
        )
    if resolver.skipped:
        warnings.append(f"{resolver.skipped} gold sentences lie beyond the end of their passage and are left out")
    notes |= {
        "questions": len(examples),
        "passages": len(passages),
        "gold_total": resolver.total,
        "gold_missing": resolver.missing,
        "gold_sentences_skipped": resolver.skipped,
        "warnings": warnings,
    }
    return Benchmark(name, split, examples, passages, notes, source)
