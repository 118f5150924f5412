"""Values of any kind as JSON has them, so that demonstrations can be saved and predictions printed."""

from __future__ import annotations

import dataclasses
import enum
import math
import os
from collections.abc import Mapping, Sequence, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import dspy
import pydantic

_WRITTEN = (Decimal, Fraction, UUID, complex)
_INTEGERS = range(-(2**63), 2**64)  # what orjson, and so DSPy, writes and reads


def plain(value: Any) -> Any:
    """A value as text, numbers, booleans, None, lists and dictionaries with text as keys; nothing is shared with it.

    Sets become sorted lists, dataclasses, pydantic models and examples dictionaries, numpy values Python's, paths and
    dates text, bytes the text they hold, NaN and infinities None.

    Raises:
        TypeError: It has no such form: a function, a generator, an object of another class, text that is no Unicode, or
            a value that holds itself.
    """
    try:
        return _plain(value)
    except RecursionError:
        raise TypeError(f"a {type(value).__name__} that is nested without end") from None
    except ValueError as error:  # of a pydantic model with a field that has no such form
        raise TypeError(f"a {type(value).__name__} ({str(error).splitlines()[0]})") from None


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return _plain(value.value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return int(value) if int(value) in _INTEGERS else str(int(value))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, os.PathLike):
        return _text(os.fsdecode(value))
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, _WRITTEN):
        return str(value)
    if type(value).__module__ == "numpy":
        return _plain(value.tolist())
    return _collection(value)


def _collection(value: Any) -> Any:
    if isinstance(value, pydantic.BaseModel):
        return _plain(value.model_dump(mode="json", fallback=_plain))
    if isinstance(value, dspy.Example):
        return _plain(dict(value.items(include_dspy=True)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        made = {_key(key): _plain(item) for key, item in value.items()}
        if len(made) < len(value):
            raise TypeError("a dictionary with two keys that are one as text")
        return made
    if isinstance(value, Set):
        return sorted(map(_plain, value), key=lambda item: (type(item).__name__, str(item)))
    if isinstance(value, Sequence) or type(value).__name__ == "deque":
        return [_plain(item) for item in value]
    raise TypeError(f"a {type(value).__name__}")


def _key(key: Any) -> str:
    made = _plain(key)
    return made if isinstance(made, str) else str(made)


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise TypeError("text with half a surrogate pair, which is no Unicode") from None
    return str.__str__(value)
