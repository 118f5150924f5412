"""What steers a program beside its settings: plain attributes of its parts, and call options of its predictors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dspy

from cirag_dspy.errors import RunError
from cirag_dspy.modules.keys import without_keys
from cirag_dspy.modules.plain import plain


def attributes(program: dspy.Module) -> dict[str, Any]:
    """Numbers, texts and the like that steer a program's parts, and the call options of its predictors, by path."""
    found: dict[str, Any] = {}
    for path, part in program.named_sub_modules(dspy.Module):
        names = ["config"] if isinstance(part, dspy.Predict) else [n for n in vars(part) if not n.startswith("_")]
        for name in names:
            value = getattr(part, name)
            if isinstance(part, dspy.Predict) or isinstance(value, bool | int | float | str | tuple):
                found[f"{path}.{name}".removeprefix("self.")] = without_keys(plain(value))
    return found


def set_attributes(program: dspy.Module, saved: Any, file: Path, *, partly: bool = False) -> None:
    """Set plain attributes that the program has to values of their kinds.

    Args:
        program: The program.
        saved: As ``attributes`` gives them.
        file: Where they are from.
        partly: Whether the program may lack some, as it does where a setting leaves a part out.

    Raises:
        RunError: One is not there, or of another kind.
    """
    if not isinstance(saved, dict):
        raise RunError(f"{file} is damaged: attributes are no object; compile it again")
    known = attributes(program)
    parts = {path.removeprefix("self").lstrip("."): part for path, part in program.named_sub_modules(dspy.Module)}
    for path, value in saved.items():
        if path not in known and partly:
            continue
        if path not in known or _kind(value) is not _kind(known[path]):
            raise RunError(f"{file} is damaged: the program has no attribute {path} like {value!r}; compile it again")
        part, _, name = path.rpartition(".")
        setattr(parts[part], name, tuple(value) if isinstance(value, list) else value)


def _kind(value: Any) -> type:
    return float if type(value) is int else type(value)
