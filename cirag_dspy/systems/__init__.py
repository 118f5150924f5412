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
    "ircot": "cirag_dspy.systems.ircot:IRCoT",
    "flare": "cirag_dspy.systems.flare:FLARE",
    "react": "cirag_dspy.systems.react:ReAct",
}


def build_system(name: str, index: SearchIndex | None, **knobs: Any) -> Any:
    """The system ``name`` over ``index``.

    Args:
        name: One of ``SYSTEMS``.
        index: What it searches.
        knobs: Its constructor arguments.

    Raises:
        RunError: There is no such system, it has no such knob, or it refuses a value.
    """
    if name not in SYSTEMS:
        raise RunError(f"unknown system {name!r}; there are {', '.join(SYSTEMS)}")
    known = settings_of(name)
    if unknown := [knob for knob in knobs if knob not in known]:
        raise RunError(f"system {name} has no setting {', '.join(unknown)}; it has {', '.join(known)}")
    try:
        return _system(name)(index, **knobs)
    except ValueError as error:
        raise RunError(f"system {name}: {error}") from None


def check_settings(name: str, **knobs: Any) -> None:
    """Raise the error that ``build_system`` would, before an index or an LM is opened for nothing."""
    build_system(name, None, **knobs)


def settings_of(name: str, **knobs: Any) -> dict[str, Any]:
    """Every knob of a system with the value it will have: those given over the constructor's defaults."""
    parameters = inspect.signature(_system(name).__init__).parameters
    return {knob: p.default for knob, p in parameters.items() if knob not in ("self", "index")} | knobs


def _system(name: str) -> Any:
    module, _, attribute = SYSTEMS[name].partition(":")
    return getattr(import_module(module), attribute)
