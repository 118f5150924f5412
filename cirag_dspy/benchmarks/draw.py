"""Which of a file's questions are taken: drawn at random by a seed, or the first ones."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from cirag_dspy.errors import DataError


@dataclass(frozen=True)
class Draw:
    """A choice of questions, as it is recorded with a run.

    Args:
        limit: This many questions; None: all.
        seed: Of ``random.Random``. The same seed, limit and number of questions give the same draw.
        first: Take the first ones of the file. Files may be sorted (MuSiQue's are by hops), so these are no sample.

    Raises:
        DataError: The limit is no positive number, or the seed a negative one or none.
    """

    limit: int | None = None
    seed: int = 0
    first: bool = False

    def __post_init__(self) -> None:
        """Refuse what would draw nothing, or something else each time."""
        if self.limit is not None and self.limit < 1:
            raise DataError(f"no examples: a limit of {self.limit} leaves none; give at least 1")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise DataError(f"the seed of a draw must be a whole number, 0 or more, not {self.seed!r}")

    def indices(self, count: int) -> list[int]:
        """Positions of the chosen among ``count`` questions, ascending."""
        if self.limit is None or self.limit >= count:
            return list(range(count))
        if self.first:
            return list(range(self.limit))
        return sorted(random.Random(self.seed).sample(range(count), self.limit))

    def record(self, count: int) -> dict[str, Any]:
        """What a manifest says of the draw: ``kind`` (``all``, ``first`` or ``random``), ``n``, ``of`` and ``seed``."""
        if self.limit is None or self.limit >= count:
            return {"kind": "all", "n": count, "of": count}
        kind = {"kind": "first"} if self.first else {"kind": "random", "seed": self.seed}
        return {**kind, "n": self.limit, "of": count}

    def warning(self, count: int) -> str:
        """One line on a draw that is no sample; empty where there is nothing to say."""
        if not self.first or self.record(count)["kind"] == "all":
            return ""
        return (
            f"the first {self.limit} of {count} questions are no sample: files may be sorted (MuSiQue's are by hops); "
            "without --first they are drawn at random"
        )


def permuted(count: int, seed: int = 0) -> list[int]:
    """All positions below ``count`` in the random order of a seed.

    Slices of it that do not overlap share no question, so that parts of one file (``skip`` and ``limit``) can be held
    apart.
    """
    return random.Random(seed).sample(range(count), count)


def told(draw: dict[str, Any]) -> str:
    """A recorded draw in words.

    >>> told({"kind": "random", "seed": 0, "n": 5, "of": 20})
    '5 of 20 questions drawn at random, --seed 0 --limit 5'
    """
    kinds = {
        "all": "all {n} questions",
        "first": "the first {n} of {of} questions, --first --limit {n}",
        "random": "{n} of {of} questions drawn at random, --seed {seed} --limit {n}",
    }
    return kinds[draw["kind"]].format(**draw)
