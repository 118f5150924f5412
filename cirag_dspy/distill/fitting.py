"""What became of training rows that are too long for their student, counted and told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from cirag_dspy.errors import RunError

_EXAMPLES = 5


@dataclass
class EncodeReport:
    """What became of the rows. Replies are never shortened, nor is what asks for them.

    `kept` and `split` count conversations given; `shortened` token rows whose prompt lost evidence or turns, `lost` the
    tokens of these; `dropped` replies that do not fit however much may go. `by_predictor` has these three of each
    predictor concerned, `examples` tells of the first few. `rows`, `tokens` and `learnt` are what is left to train on.
    """

    kept: int = 0
    split: int = 0
    shortened: int = 0
    lost: int = 0
    dropped: int = 0
    rows: int = 0
    tokens: int = 0
    learnt: int = 0
    max_length: int = 0
    by_predictor: dict[str, dict[str, int]] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """All of it by name."""
        return asdict(self)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> EncodeReport:
        """The report that `as_dict` gave; what else stands there is passed over."""
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})

    def note(self, predictor: str, where: str, before: int, after: int | None) -> None:
        """Count a row that had `before` tokens and has `after` now; None: it was dropped."""
        counts = self.by_predictor.setdefault(predictor, {"shortened": 0, "lost": 0, "dropped": 0})
        if after is None:
            self.dropped += 1
            counts["dropped"] += 1
            became = f"{before} tokens, dropped: no more of its evidence may go"
        else:
            self.shortened += 1
            self.lost += before - after
            counts["shortened"] += 1
            counts["lost"] += before - after
            became = f"{before} tokens, shortened to {after}"
        if len(self.examples) < _EXAMPLES:
            self.examples.append(f"{where}: {became}")

    def require_whole(self) -> None:
        """Refuse rows that do not fit as they are.

        Raises:
            RunError: Some were shortened or dropped; the first of them are named.
        """
        if self.shortened or self.dropped:
            raise RunError(
                f"{told_fit(self.as_dict())}, and --strict takes none; the first: {'; '.join(self.examples)}; "
                "raise lora.max_length"
            )


def told_fit(report: Mapping[str, Any]) -> str:
    """What a report says of rows that were too long, in a line; empty where none was.

    Args:
        report: Of `EncodeReport.as_dict`; those of older versions say nothing of it.
    """
    shortened, dropped = report.get("shortened", 0), report.get("dropped", 0)
    if not shortened and not dropped:
        return ""
    parts = [f"{shortened} of {report['rows']} rows shortened by {report['lost']} tokens in all"] if shortened else []
    parts += [f"{dropped} dropped"] if dropped else []
    by = "; ".join(
        f"{name or 'rows'} {counts['shortened']} by {counts['lost']}"
        + (f", {counts['dropped']} dropped" if counts["dropped"] else "")
        for name, counts in report.get("by_predictor", {}).items()
    )
    return f"{', '.join(parts)} to fit in {report.get('max_length')} tokens ({by})"
