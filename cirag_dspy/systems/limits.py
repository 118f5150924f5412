"""What the systems ask of their numbers."""

from __future__ import annotations


def require_at_least(least: int, **knobs: int) -> None:
    """Raise ValueError if a knob is smaller."""
    for name, value in knobs.items():
        if value < least:
            raise ValueError(f"{name} must be at least {least}, not {value}")


def require_share(**knobs: float) -> None:
    """Raise ValueError if a knob is not from 0 to 1."""
    for name, value in knobs.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must be from 0 to 1, not {value}")
