"""Write a program into a folder: all of it, checked, and in place of the old one only when it is complete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dspy

from cirag_dspy.artifact import lms
from cirag_dspy.artifact.attributes import attributes
from cirag_dspy.artifact.layout import FORMAT, META, PROGRAM, READER, replacing
from cirag_dspy.artifact.rendering import prompts
from cirag_dspy.artifact.saved import RESERVED, Saved, origin_of
from cirag_dspy.errors import RunError
from cirag_dspy.files import path_errors, write_json
from cirag_dspy.modules.plain import plain
from cirag_dspy.modules.state import dump, to_file
from cirag_dspy.systems import SYSTEMS, build_system

Part = tuple[dspy.Module, Mapping[str, Any]]


@path_errors(RunError)
def save(
    program: dspy.Module,
    folder: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    lm: str | dspy.LM | Mapping[str, str | dspy.LM] | None = None,
    called: Mapping[str, Any] | None = None,
    also: Sequence[Part] = (),
    meta: Mapping[str, Any] | None = None,
) -> Path:
    """Save a program so that ``load`` gives it back; the program itself is not changed.

    Prompts, demonstrations, settings and LMs are those that the program has now. What was loaded with it and is not
    part of it, its further systems and how it was made, is kept, and so are the saved LMs where no predictor has one:
    DSPy's optimizers take them away.

    Args:
        program: One of ``SYSTEMS``.
        folder: Made if need be. A program in it is replaced as a whole or, after an error or a kill, not at all; other
            files stay.
        settings: Settings to save in place of the program's own.
        lm: Its LM in place of its predictors': a spec or a ``dspy.LM``, or both roles' (``reader``, ``extraction``);
            ``{}`` for none. Of a local one with an adapter the adapter is copied into the folder. Keys are not kept;
            the address of a remote one is.
        called: How the LMs are called (``max_tokens``, ``temperature``, ...), as far as ``lm`` does not say.
        also: Further systems with their settings, that the same LMs serve.
        meta: What else is worth knowing: the optimizer's report, the recipe, scores. JSON.

    Raises:
        RunError: The folder can't be written; the program is none of ``SYSTEMS``; or what was written does not give the
            same prompts when it is read back. A ``StateError`` where a demonstration can't be written as JSON.
        ModelError: The adapter is missing, not in safetensors, or not the one that the LM was loaded with.
    """
    from cirag_dspy.evaluate.manifest import versions

    folder = Path(folder).expanduser()
    parts = [(program, settings or {}), *also]
    main = system_name(program)
    origin = origin_of(program)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder) as part:
            programs = dict(_programs(parts, part))
            if origin is not None:
                for name in (name for name in origin.saved.systems if name not in programs):
                    programs[name] = {**origin.saved.meta["programs"][name], "file": f"{name}.json"}
                    (part / f"{name}.json").write_bytes(to_file(origin.states[name]))
            named = _lms(program, main, lm, called or {})
            kept = {role: one and lms.keep(one, part, role) for role, one in named.items()}
            more = {**(origin.made() if origin else {}), **_checked(meta or {})}
            written = {"saved": datetime.now(UTC).isoformat(timespec="seconds"), "versions": versions()}
            content = {"format": FORMAT, "system": main, "programs": programs, "lms": kept, **more, **written}
            write_json(part / META, content)
            for module, _ in parts:
                _compare(module, part, folder)
    except OSError as error:
        raise RunError(f"{folder} can't be written: {error.strerror or error}; choose another folder") from None
    return folder


def system_name(program: dspy.Module) -> str:
    """The name of a program's class in ``SYSTEMS``.

    Raises:
        RunError: It has none.
    """
    path = f"{type(program).__module__}:{type(program).__qualname__}"
    name = next((name for name, where in SYSTEMS.items() if where == path), None)
    if name is None:
        raise RunError(f"{type(program).__name__} is none of {', '.join(SYSTEMS)}: save it with its own save() method")
    return name


def _programs(parts: Sequence[Part], folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Write the state of each system, and yield its name and what ``meta.json`` says of it."""
    for number, (program, settings) in enumerate(parts):
        name = system_name(program)
        file = f"{name}.json" if number else PROGRAM
        (folder / file).write_bytes(to_file(dump(program, lms=False)))
        own = program.settings()
        try:
            known = plain({**own, **settings})
            build_system(name, None, **known)
            usual = attributes(build_system(name, None, **own))
        except TypeError as error:
            raise RunError(f"settings of {name} can't be saved: {error}") from None
        entry: dict[str, Any] = {"file": file, "settings": known}
        if changed := {path: value for path, value in attributes(program).items() if value != usual.get(path)}:
            entry["attributes"] = changed
        yield name, entry


def _lms(
    program: dspy.Module, system: str, lm: str | dspy.LM | Mapping[str, str | dspy.LM] | None, called: Mapping[str, Any]
) -> dict[str, lms.Named | None]:
    """The LMs to save by role: those given, else the program's own, else those that it was loaded with."""
    if lm is not None:
        given = lm if isinstance(lm, Mapping) else {READER: lm}
        named = {role: lms.described(one, called) for role, one in given.items()}
        return {role: one for role, one in named.items() if one is not None}
    origin = origin_of(program)
    return lms.by_role(program, system) or (origin.lms() if origin else {})


def _checked(meta: Mapping[str, Any]) -> dict[str, Any]:
    if taken := sorted(RESERVED & meta.keys()):
        raise RunError(f"meta can't hold {', '.join(taken)}: {META} has these of its own")
    try:
        made: dict[str, Any] = plain(meta)
    except TypeError as error:
        raise RunError(f"meta can't be saved as JSON: it holds {error}") from None
    return made


def _compare(program: dspy.Module, part: Path, folder: Path) -> None:
    """Load what was written, and compare what the two programs would send.

    Raises:
        RunError: They differ.
    """
    name = system_name(program)
    before, after = prompts(program), prompts(Saved.read(part).program(None, name))
    if changed := sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key)):
        raise RunError(f"{folder} would not give the same prompts back ({', '.join(changed)}), so nothing was saved")
