"""The state of a module as DSPy keeps it, made plain when it is written and checked whole before any of it is taken."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import dspy
import orjson
from dspy.adapters.utils import format_field_value
from dspy.utils.saving import get_dependency_versions

from cirag_dspy.adapter import LineAdapter
from cirag_dspy.errors import StateError
from cirag_dspy.files import read_text
from cirag_dspy.modules.keys import without_keys
from cirag_dspy.modules.plain import plain

logger = logging.getLogger(__name__)

State = dict[str, Any]

METADATA = "metadata"
_OPTIONAL: State = {"traces": [], "train": [], "lm": None, "fields": {}}
_KINDS = {"demos": list, "traces": list, "train": list, "signature": dict, "fields": dict}


def predictors(module: dspy.Module) -> dict[str, dspy.Predict]:
    """Predictors by name, those of sub-modules that DSPy takes for compiled, and passes over, included."""
    return {name.removeprefix("self."): one for name, one in module.named_sub_modules(dspy.Predict)}


def dump(module: dspy.Module, *, lms: bool = True) -> State:
    """The state of each predictor as ``dspy.Module.dump_state`` has it, in plain values; its LM only with ``lms``.

    Raises:
        StateError: A demonstration has a value that JSON has no form for; predictor, demonstration and field are named.
    """
    return {name: _dumped(name, predictor, lms) for name, predictor in predictors(module).items()}


def to_file(state: State) -> bytes:
    """The content of a state file, as ``dspy.Module.save`` writes it, without any key of an LM."""
    whole = {name: {**entry, "lm": without_keys(entry["lm"])} for name, entry in state.items()}
    whole[METADATA] = {"dependency_versions": get_dependency_versions()}
    return orjson.dumps(whole, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def read(file: Path) -> Any:
    """What a state file holds.

    Raises:
        StateError: It is missing, or no JSON.
    """
    try:
        return json.loads(read_text(file))
    except OSError as error:
        raise StateError(f"can't be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise StateError("is damaged: it is not JSON") from None


def warn_of_versions(file: Path, state: Any) -> None:
    """Say, as DSPy does, where a file was written by another version of a package."""
    saved = state.get(METADATA, {}) if isinstance(state, dict) else {}
    versions = saved.get("dependency_versions") if isinstance(saved, dict) else None
    here = get_dependency_versions()
    for name, version in versions.items() if isinstance(versions, dict) else ():
        if name in here and version != here[name]:
            logger.warning("%s was saved with %s %s, and this is %s", file, name, version, here[name])


def check(module: dspy.Module, state: Any, *, partly: bool = False) -> None:
    """Refuse what is not the state of this module.

    Args:
        module: The module.
        state: What a file holds.
        partly: Whether the module may lack predictors of the state.

    Raises:
        StateError: It says what was expected and what was found.
    """
    if not isinstance(state, Mapping):
        raise StateError(f"is damaged: it holds no object but a {type(state).__name__}")
    own = predictors(module)
    # A part that was compiled on its own is left out of a file that DSPy wrote.
    needed = {name for name, _ in module.named_predictors()}
    found = {str(name) for name in state} - {METADATA}
    if not needed <= found or not (partly or found <= own.keys()):
        raise StateError(f"is of another program: expected predictors {_listed(own)}, found {_listed(found)}")
    for name in own.keys() & found:
        _check_entry(name, state[name], own[name])


def load(module: dspy.Module, state: Any, *, lms: bool = True, partly: bool = False, **options: Any) -> None:
    """Take over a state, or nothing of it.

    Args:
        module: The module.
        state: As ``dump`` has it.
        lms: Whether to take over LMs; without, the predictors have none afterwards.
        partly: Whether the module may lack predictors of the state.
        options: Of ``dspy.Predict.load_state``.

    Raises:
        StateError: It is not the state of this module, or is damaged.
    """
    check(module, state, partly=partly)
    loaded = {}
    for name, predictor in predictors(module).items():
        if name in state:
            loaded[name] = _loaded(name, predictor, state[name], lms, options)
    for name, predictor in predictors(module).items():
        if name in loaded:
            predictor.__dict__.update(loaded[name])


def _dumped(name: str, predictor: dspy.Predict, lms: bool) -> State:
    twin = copy.copy(predictor)
    twin.lm = predictor.lm if lms else None
    twin.demos = [
        _demonstration(f"{name}, demonstration {number}", demo, predictor.signature)
        for number, demo in enumerate(predictor.demos, 1)
    ]
    for kind in ("traces", "train"):
        setattr(twin, kind, _checked(f"{name}, {kind}", list(getattr(predictor, kind))))
    try:
        state: State = twin.dump_state()
    except Exception as error:  # of an LM that can't be told in words
        raise StateError(f"{name}: its LM can't be saved ({_line(error)}): save the program without it") from None
    return state


def _demonstration(where: str, demo: Any, signature: type[dspy.Signature]) -> State:
    if not isinstance(demo, dspy.Example | Mapping):
        raise StateError(f"{where} is a {type(demo).__name__}, not a dspy.Example: leave it out")
    items = demo.items(include_dspy=True) if isinstance(demo, dspy.Example) else demo.items()
    return {str(key): _field(f"{where}, field {key}", key, value, signature) for key, value in items}


def _field(where: str, name: Any, value: Any, signature: type[dspy.Signature]) -> Any:
    """A plain value that a prompt shows as it shows the value itself: what it shows, where no other does."""
    made = _checked(where, value)
    field = signature.fields.get(name)
    if field is None or field.annotation is dspy.History or isinstance(value, str):
        return made
    shown = _shown(field, value)
    return made if shown is None or _shown(field, made) == shown else _checked(where, shown)


def _shown(field: Any, value: Any) -> str | None:
    """A value as prompts show it; ``None`` where DSPy can't show it, as a list of numbers in a field of text."""
    try:
        return str(format_field_value(field, value))
    except Exception:  # of whatever class
        return None


def _checked(where: str, value: Any) -> Any:
    try:
        made = plain(value)
        orjson.dumps(made)
    except TypeError as error:
        raise StateError(f"{where} can't be saved as JSON: {_line(error)}; make it text, or leave it out") from None
    return made


def _check_entry(name: str, entry: Any, predictor: dspy.Predict) -> None:
    if not isinstance(entry, Mapping):
        raise StateError(f"is damaged: {name} is no object")
    if unknown := entry.keys() - {"lm", *_KINDS}:
        raise StateError(f"is damaged: {name} has {_listed(unknown)}, which no predictor has")
    whole = {**_OPTIONAL, **entry}
    for kind, of in _KINDS.items():
        if not isinstance(whole.get(kind), of):
            raise StateError(f"is damaged: {name} has no {kind}")
    if not isinstance(whole["lm"], dict | None):
        raise StateError(f"is damaged: the LM of {name} is no object")
    if not all(isinstance(demo, dict) for demo in whole["demos"]):
        raise StateError(f"is damaged: a demonstration of {name} is no object")
    _check_signature(name, whole["signature"], predictor.signature)


def _check_signature(name: str, saved: Mapping[str, Any], signature: type[dspy.Signature]) -> None:
    fields = saved.get("fields")
    fields = fields if isinstance(fields, list) and all(isinstance(field, dict) for field in fields) else [{}]
    texts = [text for field in fields for text in (field.get("prefix"), field.get("description"))]
    if not all(isinstance(text, str) for text in (saved.get("instructions"), *texts)):
        raise StateError(f"is damaged: the signature of {name} lacks its instructions, or a text of a field")
    # The names of fields are not in DSPy's state, but their prefixes are; optimizers change that of the last.
    expected = [field["prefix"] for field in signature.dump_state()["fields"]]
    found = [field["prefix"] for field in fields]
    if len(found) != len(expected) or found[:-1] != expected[:-1]:
        raise StateError(
            f"is of another program: {name} has other fields: expected {_listed(expected, sort=False)}, "
            f"found {_listed(found, sort=False)}"
        )


def _loaded(name: str, predictor: dspy.Predict, entry: State, lms: bool, options: State) -> State:
    """What the predictor would become, tried on a copy of it."""
    twin = copy.copy(predictor)
    try:
        twin.load_state({**copy.deepcopy({**_OPTIONAL, **entry}), **({} if lms else {"lm": None})}, **options)
        # DSPy makes a signature anew and forgets its name, by which copied facts are told from numbered ones.
        twin.signature.__name__ = predictor.signature.__name__
        LineAdapter().format(twin.signature, twin.demos, {})
    except Exception as error:  # a file can be wrong in any way
        raise StateError(f"is damaged: {name}: {_line(error)}") from None
    return {kind: getattr(twin, kind) for kind in ("lm", *_KINDS)}


def _listed(names: Iterable[Any], *, sort: bool = True) -> str:
    names = [" ".join(str(name).split())[:60] for name in names]
    names = sorted(names) if sort else names
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "") or "none"


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text[:300] if isinstance(error, TypeError) else f"{type(error).__name__}: {text[:300]}"
