"""Settings of systems from the command line: flags and ``--set``, each to the systems that have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cirag_dspy.errors import RunError

# Settings that have an option of their own, which says more than the setting.
_OPTIONS = {"extract": "--extract and --calls say", "threads": "--threads says"}


def settings_by_system(
    systems: Sequence[str], flags: Mapping[str, Any], overrides: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """The settings that each system is given.

    Args:
        systems: The systems that are run.
        flags: Settings that go to all systems that have them.
        overrides: ``NAME=VALUE``, to all that have it, and ``SYSTEM.NAME=VALUE``, to one, which goes before.

    Raises:
        RunError: Nobody has such a setting, there is no such system, or it refuses a value.
        DataError: A value is of the wrong type.
    """
    from cirag_dspy.evaluate.variants import share
    from cirag_dspy.recipe import checked_settings, literal
    from cirag_dspy.systems import check_settings, settings_of

    shared: dict[str, Any] = dict(flags)
    own: dict[str, dict[str, Any]] = {system: {} for system in systems}
    for override in overrides:
        name, equals, text = override.partition("=")
        system, dot, knob = name.strip().rpartition(".")
        if not equals or not knob or (dot and not system):
            raise RunError(f"--set {override}: give NAME=VALUE, or SYSTEM.NAME=VALUE")
        if system and system not in systems:
            raise RunError(f"--set {override}: {system} is not run; there are {', '.join(systems)}")
        if knob in _OPTIONS:
            raise RunError(f"--set {override}: {_OPTIONS[knob]} that")
        if system and knob not in settings_of(system):
            check_settings(system, **{knob: literal(text)})
        (own[system] if system else shared)[knob] = literal(text)
    given = share(systems, shared)
    return {system: checked_settings(system, given[system] | own[system], f"{system}:") for system in systems}
