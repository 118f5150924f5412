"""Whole systems by name. Each is a ``dspy.Module`` that takes an index and answers ``forward(question)``."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from cirag_dspy.errors import RunError
from cirag_dspy.modules.search import SearchIndex

SYSTEMS = {
    "cirag": "cirag_dspy.systems.cirag:CIRAGModule",
    "native_rag": "cirag_dspy.systems.native_rag:NativeRAG",
}


def build_system(name: str, index: SearchIndex, **knobs: Any) -> Any:
    """The system ``name`` over ``index``.

    Args:
        name: One of ``SYSTEMS``.
        index: What it searches.
        knobs: Its constructor arguments; those that are ``None`` keep their defaults.

    Raises:
        RunError: There is no such system, it has no such knob, or it refuses a value.
    """
    if name not in SYSTEMS:
        raise RunError(f"unknown system {name!r}; there are {', '.join(SYSTEMS)}")
    module, _, attribute = SYSTEMS[name].partition(":")
    system = getattr(import_module(module), attribute)
    given = {knob: value for knob, value in knobs.items() if value is not None}
    known = [knob for knob in inspect.signature(system).parameters if knob != "index"]
    if unknown := [knob for knob in given if knob not in known]:
        raise RunError(f"system {name} has no setting {', '.join(unknown)}; it has {', '.join(known)}")
    try:
        return system(index, **given)
    except ValueError as error:
        raise RunError(f"system {name}: {error}") from None


def settings_of(name: str, **knobs: Any) -> dict[str, Any]:
    """Every knob of a system with the value it will have: given ones over the constructor's defaults."""
    module, _, attribute = SYSTEMS[name].partition(":")
    parameters = inspect.signature(getattr(import_module(module), attribute)).parameters
    defaults = {knob: parameter.default for knob, parameter in parameters.items() if knob != "index"}
    return defaults | {knob: value for knob, value in knobs.items() if value is not None}
