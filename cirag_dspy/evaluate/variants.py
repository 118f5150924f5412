"""What a comparison runs: systems, or one system with different settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cirag_dspy.errors import RunError
from cirag_dspy.systems import SYSTEMS, check_settings, settings_of


@dataclass(frozen=True)
class Variant:
    """One row of a comparison.

    Args:
        name: In tables; its run folder is named after it.
        system: One of ``SYSTEMS``.
        settings: Of the system, over its defaults or those of a saved program.
        extract: When its triples are extracted, ``online`` or ``offline``; empty: as those of the others.
        student: Whether it is asked as the command says, or with the base that the LM was trained from, untaught: with
            the system's own prompts.
    """

    name: str
    system: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    extract: str = ""
    student: bool = True


def check_systems(names: Sequence[str]) -> None:
    """Raise RunError if a name is none of ``SYSTEMS``, or comes twice."""
    for name in names:
        if name not in SYSTEMS:
            raise RunError(f"unknown system {name!r}; there are {', '.join(SYSTEMS)}")
        if names.count(name) > 1:
            raise RunError(f"system {name} is named twice")


def check_reference(names: Sequence[str], against: str | None) -> str:
    """The name that the others are compared with: the first, unless one is given.

    Raises:
        RunError: The given one is not among them.
    """
    if against is not None and against not in names:
        raise RunError(f"--against must be one of {', '.join(names)}, not {against!r}")
    return against or names[0]


def share(systems: Sequence[str], settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Settings given to all systems, as each of them has them: ``k`` goes to those that have a ``k``.

    Raises:
        RunError: None of the systems has a setting of this name.
    """
    shared: dict[str, dict[str, Any]] = {system: {} for system in systems}
    for name, value in settings.items():
        having = [system for system in systems if name in settings_of(system)]
        if not having and len(systems) == 1:
            check_settings(systems[0], **{name: value})
        if not having:
            raise RunError(f"none of {', '.join(systems)} has a setting {name}")
        for system in having:
            shared[system][name] = value
    return shared


def passages_seen(settings: Mapping[str, Any]) -> dict[str, int]:
    """``k``, the passages that each search of a system gives a hop or a reader; and ``read``, how many the reader sees
    at most where that is a setting of its own: KiRAG's reader sees fewer, IRCoT's those of several searches.
    """
    reads = [settings[name] for name in ("read", "keep") if name in settings]
    return {"k": settings["k"], **({"read": reads[0]} if reads else {})} if "k" in settings else {}
