"""What a system returned for a question, as plain values: any shape that can be read is, no other ends a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import dspy

from cirag_dspy.advice import lm_advice
from cirag_dspy.plain import plain, shown
from cirag_dspy.text import one_line

_MOST = 100_000


def outcome(prediction: Any) -> dict[str, Any]:
    """The fields of a row that a prediction gives.

    Args:
        prediction: A ``dspy.Prediction``, or another mapping. Its ``answer`` is text, a number, or several of these,
            which are joined by commas; None and NaN are no answer.

    Returns:
        ``answer``; ``answered``, as the prediction says, else whether there is an answer; ``level`` and ``stopped`` as
        text (the last two None where there are none), ``passages`` as ids, ``citations``, ``hops`` and ``triples``. An
        item of another shape than ours is kept as far as it can be read.

    Raises:
        TypeError: It is no prediction, or its answer is none of the above; says what it is.
    """
    if isinstance(prediction, dspy.Example):
        prediction = dict(prediction.items())
    if not isinstance(prediction, Mapping):
        raise TypeError(f"the system returned {_kind(prediction)}, expected a dspy.Prediction")
    answer = _answer(prediction.get("answer"))
    answered = prediction.get("answered")
    return {
        "answer": answer,
        "answered": bool(answer) if answered is None else bool(plain(answered)) and bool(answer),
        "level": label(prediction.get("level")),
        "passages": [_id(passage) for passage in _items(prediction.get("passages"))],
        "citations": [_citation(item) for item in _items(prediction.get("citations"))],
        "hops": [_hop(item) for item in _items(prediction.get("hops"))],
        "triples": [_triple(item) for item in _items(prediction.get("triples"))],
        "stopped": label(prediction.get("stopped")),
    }


def label(value: Any) -> str | None:
    """A name for groups of rows: text, whatever it was."""
    made = plain(value)
    if isinstance(made, list):
        return ", ".join(map(_line, made)) or None
    return None if made is None or made == "" else _line(made)


def told(error: BaseException) -> str:
    """An exception as one line of at most 500 letters, whatever its text is or does."""
    text = lm_advice(error) if isinstance(error, dspy.LMError) else one_line(shown(error))
    return f"{type(error).__name__}: {text}"[:500] if text else type(error).__name__


def _answer(value: Any) -> str:
    if isinstance(value, str):
        return str(plain(value))
    value = plain(value) if not isinstance(value, Mapping) else value
    if value is None:  # NaN, too: what a table has where there is nothing
        return ""
    if isinstance(value, list) and not any(isinstance(item, list | dict) for item in value):
        return ", ".join(filter(None, map(_answer, value)))
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(f"the answer is {_kind(value)}, expected text")


def _items(value: Any) -> list[Any]:
    """The items of a list in any form; what is no list is a list of one."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return []
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        return [value]
    return list(islice(value, _MOST))


def _get(item: Any, *names: str) -> Any:
    """The first field or attribute of these names, None where there is none."""
    for name in names:
        found = item.get(name) if isinstance(item, Mapping | dspy.Example) else getattr(item, name, None)
        if found is not None and not callable(found):
            return found
    return None


def _id(item: Any) -> str:
    """The id of a passage: of a passage or a hit, what stands there."""
    if isinstance(item, str):
        return str(plain(item))
    found = _get(_get(item, "passage") or item, "id", "passage_id")
    return _line(item if found is None else found)


def _citation(item: Any) -> dict[str, Any]:
    if isinstance(item, str | bytes):
        return {"title": "", "sentence": None, "text": plain(item), "passage_id": ""}
    sentence = plain(_get(item, "sentence", "sent_id"))
    return {
        "title": _line(_get(item, "title")),
        "sentence": sentence if isinstance(sentence, int) and not isinstance(sentence, bool) else None,
        "text": _line(_get(item, "text")),
        "passage_id": _line(_get(item, "passage_id", "id")),
    }


def _hop(item: Any) -> dict[str, Any]:
    if isinstance(item, str | bytes | int | float):
        item = {"query": item}
    return {
        "query": _line(_get(item, "query")),
        "candidates": len(_items(_get(item, "candidates"))),
        "thought": _line(_get(item, "thought")),
        "core": [" | ".join(_triple(triple)) for triple in _items(_get(item, "core"))],
        "next_query": _line(_get(item, "next_query")),
        "error": _line(_get(item, "error")),
    }


def _triple(item: Any) -> list[str]:
    """Head, relation and tail."""
    parts = [_get(item, name) for name in ("head", "relation", "tail")]
    if any(part is not None for part in parts):
        return [_line(part) for part in parts]
    parts = item.split(" | ") if isinstance(item, str) else _items(item)
    return [_line(part) for part in [*parts, "", "", ""][:3]]


def _line(value: Any) -> str:
    made = plain(value)
    return "" if made is None else made if isinstance(made, str) else shown(made)


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
