"""Batches for contrastive training, where every other triple of a batch counts as wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from sentence_transformers.base.sampler import DefaultBatchSampler

from cirag_dspy.distill.links import Row


class QuestionBatchSampler(DefaultBatchSampler):
    """Every row once an epoch, and in no batch two rows of a question: what follows in one may follow later in another.

    The sampler of sentence-transformers, ``no_duplicates``, keeps the same text out of a batch only, and ends the epoch
    before all rows had their turn. Here, too, no row's right triple is another's wrong one; a row that therefore fits
    in no batch is left out of the epoch.

    Args:
        dataset: The rows as the trainer has them.
        rows: The same rows.
        batches: An epoch; at least as many as the rows of any question.
        batch_size: Not used: the rows are spread evenly over the batches.
        seed: With the epoch, of the order.
        options: Of the trainer's samplers, as it gives them.
    """

    def __init__(
        self, dataset: Any, batch_size: int, *, rows: Sequence[Row], batches: int, seed: int = 0, **options: Any
    ) -> None:
        super().__init__(dataset, batch_size, seed=seed, **options)
        self._rows = rows
        self._batches = batches

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[list[int]]:
        draw = random.Random(f"{self.seed}/{self.epoch}")
        by_question: dict[str, list[int]] = {}
        for number in draw.sample(range(len(self._rows)), len(self._rows)):
            by_question.setdefault(self._rows[number].question, []).append(number)
        batches = [_Batch() for _ in range(self._batches)]
        for numbers in sorted(by_question.values(), key=len, reverse=True):
            emptiest = sorted(batches, key=lambda batch: (len(batch.numbers), draw.random()))
            for number in numbers:
                if fitting := next((batch for batch in emptiest if batch.takes(self._rows[number])), None):
                    fitting.add(number, self._rows[number])
                    emptiest.remove(fitting)
        draw.shuffle(batches)
        yield from (batch.numbers for batch in batches if batch.numbers)


class _Batch:
    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._right: set[str] = set()
        self._wrong: set[str] = set()

    def takes(self, row: Row) -> bool:
        contradicted = row.positive in self._right or row.positive in self._wrong
        return not contradicted and self._right.isdisjoint(row.negatives)

    def add(self, number: int, row: Row) -> None:
        self.numbers.append(number)
        self._right.add(row.positive)
        self._wrong.update(row.negatives)
