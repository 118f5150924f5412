"""The settings of the trainings: LoRA, and the aligner. Nothing heavy is imported to read or check them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from cirag_dspy.errors import RunError

_KINDS = {"int": (int,), "float": (int, float), "float | None": (int, float, type(None)), "str": (str,)}
_POSITIVE = ("rank", "alpha", "epochs", "batch_size", "learning_rate", "max_length", "save_every", "max_grad_norm")
_SCHEDULES = ("linear", "cosine", "constant")


@dataclass(frozen=True)
class LoraSettings:
    """How to train; the defaults are the paper's (appendix B.4), where it says.

    `alpha` None is twice the rank. `epochs` may be a fraction. `warmup` is the fraction of all steps in which the
    learning rate rises. `targets` is peft's: "all-linear", or names of layers, comma-separated. `save_every` counts
    optimizer steps between checkpoints, and changes nothing else. `max_length` holds a conversation of 4 hops with 30
    candidates each (2,200 to 2,600 tokens of English); memory goes by the longest row of a batch, not by it.

    Raises:
        RunError: A value is of the wrong type or out of range.
    """

    rank: int = 64
    alpha: float | None = None
    dropout: float = 0.0
    epochs: float = 2.0
    batch_size: int = 2
    learning_rate: float = 2e-4
    warmup: float = 0.03
    max_length: int = 4096
    weight_decay: float = 0.0
    targets: str = "all-linear"
    seed: int = 0
    save_every: int = 100
    schedule: str = "linear"
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        _check(self, positive=_POSITIVE, shares=("dropout", "warmup"))
        if self.schedule not in _SCHEDULES:
            raise RunError(f"no schedule {self.schedule!r}: use one of {', '.join(_SCHEDULES)}")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> LoraSettings:
        """The defaults with these values.

        Raises:
            RunError: A name is unknown, or a value is wrong.
        """
        known = [field.name for field in fields(cls)]
        if unknown := sorted(values.keys() - set(known)):
            raise RunError(f"no setting {', '.join(unknown)}: there are {', '.join(known)}")
        return cls(**values)

    def rate(self, step: int, total: int) -> float:
        """The learning rate of a step, counted from 0, of `total`."""
        rise = math.ceil(self.warmup * total)
        if step < rise:
            return self.learning_rate * (step + 1) / rise
        done = (step - rise) / max(1, total - rise)
        fall = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}
        return self.learning_rate * fall[self.schedule]


@dataclass(frozen=True)
class AlignerSettings:
    """How to train an aligner; the defaults are KiRAG's (appendix B.3), where it says.

    `negatives` wrong triples a row; `rows` a question at most. `temperature` divides the cosines of the loss. `val` is
    the share of the questions that is kept apart to choose the checkpoint by, by the recall of gold passages among the
    5 that have the best of the `n` best triples. `warmup` is the fraction of all steps in which the learning rate
    rises, before it falls to 0 in a line.

    Raises:
        RunError: A value is of the wrong type or out of range.
    """

    epochs: int = 10
    batch_size: int = 64
    learning_rate: float = 2e-5
    weight_decay: float = 0.01
    temperature: float = 0.01
    warmup: float = 0.1
    negatives: int = 7
    rows: int = 8
    val: float = 0.1
    n: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        positive = ("epochs", "batch_size", "learning_rate", "temperature", "negatives", "rows", "val", "n")
        _check(self, positive=positive, shares=("warmup", "val"))
        if not 0 <= self.seed < 2**32:  # NumPy takes no other
            raise RunError(f"seed must be at least 0 and below 2**32, not {self.seed}")

    def batches(self, questions: Collection[str]) -> int:
        """Batches of an epoch, an optimizer step each, over rows of these questions: one row of a question a batch."""
        return max([math.ceil(len(questions) / self.batch_size), *Counter(questions).values()])


def _check(settings: Any, positive: Sequence[str], shares: Sequence[str]) -> None:
    """Raise RunError if a value is not of its field's type, or not in its range."""
    for field in fields(settings):
        name, value = field.name, getattr(settings, field.name)
        if not isinstance(value, _KINDS[str(field.type)]) or isinstance(value, bool):
            raise RunError(f"{name} is of type {field.type}, and {value!r} is not")
    for name in positive:
        value = getattr(settings, name)
        if value is not None and not 0 < value < math.inf:
            raise RunError(f"{name} must be above 0, not {value}")
    for name in shares:
        if not 0 <= getattr(settings, name) < 1:
            raise RunError(f"{name} must be at least 0 and below 1, not {getattr(settings, name)}")
    if settings.weight_decay < 0:
        raise RunError(f"weight_decay must not be negative, and is {settings.weight_decay}")
