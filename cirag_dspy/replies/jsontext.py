"""JSON in a reply: what a text is as JSON, also nearly, and what is inside the wrappers that LMs put around it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

import json_repair

_FENCED = re.compile(r"\A\s*(?:```|~~~)[\w-]*[^\S\n]*\n?(?P<inner>.*?)\s*(?:```|~~~)?\s*\Z", re.S)
_NAMED = re.compile(r"\A(?:json|jsonc|javascript|js|python)\s*(?=[\[{])", re.I)
_TAGGED = re.compile(r"\A<(\w+)>\s*(?P<inner>[\[{].*[\]}])\s*</\1>\Z", re.S)
_LOOKS_BROKEN = re.compile(r"\A(?:\{\s*[\"'“\w][^{}|]{0,80}?[\"'”\w ]\s*:|\[\s*(?:\[\s*)*[{\"'“])", re.S)
_CALLED = (
    "tool_calls",
    "function",
    "function_call",
    "arguments",
    "parameters",
    "action_input",
    "tool_input",
    "content",
)
_MOST_BRACKETS, _LONGEST = 2000, 200_000
# Keys under which a reply's object lies, or a field's text in it: tool calls, messages, envelopes of one key.
_ENVELOPES = (
    *("function", "function_call", "tool_call", "tool_calls", "action_input", "tool_input", "json_input", "json"),
    *("arguments", "parameters", "params", "args", "kwargs", "input", "inputs", "properties"),
    *("message", "messages", "content", "response", "reply", "result", "results", "output", "outputs", "data"),
    *("final", "final_output", "final_answer", "text", "value", "values", "items", "list", "answer_text"),
)


def load_json(text: str) -> Any:
    """The JSON object or array that a text is, but for code fences or a tag around it; ``None`` if it is none.

    Single quotes, comments, trailing commas, bare keys, Python's constants and a missing bracket at the end are
    understood. Prose with JSON in it is no JSON.
    """
    text = text.strip()
    if text.startswith(("```", "~~~")) and (fenced := _FENCED.match(text)):
        text = fenced["inner"].strip()
    text = _NAMED.sub("", text)
    if tagged := _TAGGED.match(text):
        text = tagged["inner"]
    if not text.startswith(("{", "[")):
        return None
    for strict in True, False:
        with suppress(ValueError, RecursionError):
            value = json.loads(text, strict=strict)
            return value if isinstance(value, (dict, list)) else None
    with suppress(ValueError, RecursionError):
        value, end = json.JSONDecoder(strict=False).raw_decode(text)
        return None if text[end:].strip(" \n,;.}]`") else value  # several objects, or prose behind one
    return _repaired(text)


def _repaired(text: str) -> Any:
    ends = text.rstrip(",;.").endswith(("}", "]", '"', "'"))
    if (
        not ends
        or not _LOOKS_BROKEN.match(text)
        or len(text) > _LONGEST
        or re.search(r"[}\]]\s*\n\s*[^\s}\],\[\"']", text)
    ):
        return None
    if text.count("[") + text.count("{") > _MOST_BRACKETS:
        return None
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        value = ast.literal_eval(text)  # Python's own notation; constants only
        return value if isinstance(value, (dict, list)) and value else None
    with suppress(Exception):  # a lenient parser of arbitrary text: whatever it stumbles over is no JSON
        value = json_repair.loads(text)
        return value if isinstance(value, (dict, list)) and value else None
    return None


def objects_in(text: str) -> Iterator[tuple[int, int, Any]]:
    """The JSON objects in a text, with where each begins and ends; what lies inside one of them is not told again."""
    decoder, place = json.JSONDecoder(strict=False), 0
    while (start := text.find("{", place)) >= 0:
        place = start + 1
        if not re.match(r"\{\s*[\"}]", text[start : start + 200]):
            continue
        with suppress(ValueError, RecursionError):
            value, place = decoder.raw_decode(text, start)
            yield start, place, value


def key(name: Any) -> str:
    """How the name of a field is compared: ``Next Query``, ``next-query`` and ``the final next_query`` are one."""
    lowered = re.sub(r"\W+|_", "", str(name).casefold())
    return lowered


def find_fields(value: Any, names: Collection[str], required: Collection[str]) -> dict[str, Any]:
    """The fields of a reply in its JSON, whatever that is wrapped in; empty if there are none.

    Looked through are objects of one key, lists of one, JSON in strings, and the parts of tool calls and messages.
    What else holds strings is text: JSON that is quoted in one field is never another one's value.
    """
    wanted = {key(name): name for name in names}
    lead = {f"{word}{short}": name for short, name in wanted.items() for word in ("final", "the", "thefinal", "my")}
    best: dict[str, Any] = {}
    todo, looked = [value], 0
    while todo and looked < 200:
        looked += 1
        value = todo.pop(0)
        if isinstance(value, str):
            todo += [loaded] if (loaded := load_json(value)) is not None else []
        elif isinstance(value, list):
            merged: dict[str, Any] = {}
            for item in value if all(isinstance(item, dict) for item in value) else []:
                merged = {**item, **merged}
            todo += [merged] if len(value) > 1 and merged else value if len(value) == 1 else []
        elif isinstance(value, dict):
            keyed = {key(name): part for name, part in reversed(value.items())}
            found = {name: keyed[long] for long, name in lead.items() if long in keyed}
            found |= {name: keyed[short] for short, name in wanted.items() if short in keyed}
            if found and set(required) <= found.keys():
                inner = _same_again(found, names, required)
                return inner or found
            best = best or found
            if not found:
                todo += _inside(value)
    return best


def _same_again(found: dict[str, Any], names: Collection[str], required: Collection[str]) -> dict[str, Any]:
    """A field that holds an object, or JSON, with that field again."""
    if len(found) != 1:
        return {}
    (value,) = found.values()
    value = load_json(value) if isinstance(value, str) else value
    if isinstance(value, dict) and set(map(key, value)) & set(map(key, names)):
        return find_fields(value, names, required)
    return {}


def _inside(value: dict[Any, Any]) -> list[Any]:
    """Where in an object that is no reply itself the reply may lie."""
    if len(value) == 1:
        return list(value.values())
    named = [part for name, part in value.items() if str(name).lower() in _ENVELOPES]
    return [*named, *(part for part in value.values() if isinstance(part, (dict, list)))]


def as_text(value: Any, name: str = "") -> str:
    """A JSON value as the lines that parsers read; lists become one item a line, rows of a table JSON arrays.

    An object that says no more than the text it wraps, ``{"text": "Oslo"}`` or ``{NAME: "Oslo"}``, is that text.
    A field (``name``) that is true or false says yes or no.
    """
    value = unwrap(value, name)
    if value is None:
        return "none"
    if isinstance(value, bool) and name:
        return "yes" if value else "no"
    if isinstance(value, list) and value:
        return "\n".join(map(as_line, value))
    return value if isinstance(value, str) else _dump(value)


def as_line(value: Any) -> str:
    """An item of a JSON list: its text, or a JSON array or object on one line."""
    value = unwrap(value) if isinstance(value, dict) else value
    return value if isinstance(value, str) else _dump(value)


def unwrap(value: Any, name: str = "") -> Any:
    """What is inside objects of one key that only wrap it, lists of one object or text, and JSON in a string."""
    for _ in range(20):
        if isinstance(value, dict) and len(value) == 1:
            ((only, inner),) = value.items()
            if str(only).lower() not in _ENVELOPES and key(only) != key(name):
                break
            value = inner
        elif isinstance(value, list) and len(value) == 1 and isinstance(value[0], (str, dict)):
            value = value[0]
        elif isinstance(value, str) and (loaded := load_json(value)) is not None:
            if not isinstance(loaded, dict) or unwrap(loaded, name) is loaded:
                break
            value = loaded
        else:
            break
    return value


def payload(value: Any) -> Any:
    """What is inside the wrappers of JSON: ``unwrap``, and the arguments of a tool call or the content of a message."""
    for _ in range(20):
        value = unwrap(value)
        if isinstance(value, str) and isinstance(inside := load_json(value), (dict, list)):
            value = unwrap(inside)
        called = {str(name).lower(): part for name, part in value.items()} if isinstance(value, dict) else {}
        inner = next((called[name] for name in _CALLED if name in called), None)
        loaded = load_json(inner) if isinstance(inner, str) else inner
        if not isinstance(loaded, (dict, list)):
            break
        value = loaded
    return value


def _dump(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError, TypeError):
        return ""
