"""The loss curve of a training, in as many points as a record needs."""

from __future__ import annotations

import math
from collections.abc import Sequence

POINTS = 500


def thinned(losses: Sequence[list[float]]) -> list[list[float]]:
    """``[step, loss, ...]`` in few points: each the last of a stretch of steps, with the stretch's mean loss."""
    width = math.ceil(len(losses) / POINTS)
    stretches = [losses[at : at + width] for at in range(0, len(losses), width)] if losses else []
    return [[s[-1][0], round(sum(entry[1] for entry in s) / len(s), 6), *s[-1][2:]] for s in stretches]
