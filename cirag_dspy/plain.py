"""Values of any kind as JSON can hold them, for every file and result that is written."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import os
from collections.abc import Iterable, Mapping, Set
from datetime import date, time
from itertools import islice
from typing import Any

_DEPTH, _ITEMS, _BITS = 40, 100_000, 10_000
_HOLDERS = ("tolist", "toDict", "model_dump")  # numpy and torch; DSPy's examples; pydantic


def plain(value: Any) -> Any:
    """A value as text, numbers, booleans, None, lists and dictionaries with text as keys; never raises.

    NaN and infinities become None, since JSON has neither; sets sorted lists; bytes the text they hold; numpy values,
    dataclasses, pydantic models and DSPy's examples what they hold; halves of surrogate pairs are escaped. Whatever has
    no such form, holds itself, is nested deeper than 40, or raises when it is read, becomes text (``shown``).
    """
    return _plain(value, frozenset())


def shown(value: Any) -> str:
    """``str`` of a value as valid Unicode; the name of its class where that raises."""
    try:
        return _text(str(value))
    except Exception:
        return f"<{type(value).__name__} without a text>"


def dump(value: Any, indent: int | None = None) -> str:
    """A value as valid JSON, whatever it holds; letters of all scripts as they are."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, indent=indent)


def _plain(value: Any, above: frozenset[int]) -> Any:
    """``above`` has the ids of what the value is in."""
    if id(value) in above or len(above) > _DEPTH:
        return shown(value)
    try:
        return _written(value, above | {id(value)})
    except Exception:  # a foreign object may do anything when it is looked at
        return shown(value)


def _written(value: Any, above: frozenset[int]) -> Any:
    if isinstance(value, enum.Enum):
        return _plain(value.value, above)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(str.__str__(value))
    if isinstance(value, int):
        return int(value) if int(value).bit_length() < _BITS else shown(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, os.PathLike):
        return _text(os.fsdecode(value))
    if isinstance(value, date | time):
        return value.isoformat()
    for method in _HOLDERS:
        if callable(getattr(type(value), method, None)):
            return _plain(getattr(value, method)(), above)
    return _collection(value, above)


def _collection(value: Any, above: frozenset[int]) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name, None), above) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        made: dict[str, Any] = {}
        for key, item in value.items():
            name = _key(key, above)
            while name in made:  # 1 and "1": neither takes the other's place
                name += f" ({type(key).__name__})"
            made[name] = _plain(item, above)
        return made
    if isinstance(value, Set):
        return sorted((_plain(item, above) for item in value), key=lambda item: (type(item).__name__, str(item)))
    if isinstance(value, Iterable) and not isinstance(value, type):
        return [_plain(item, above) for item in islice(value, _ITEMS)]
    return shown(value)


def _key(key: Any, above: frozenset[int]) -> str:
    made = _plain(key, above)
    return made if isinstance(made, str) else json.dumps(made, ensure_ascii=False)


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode("utf-8")
