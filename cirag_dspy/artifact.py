"""A saved program, ``optimized/NAME/``: DSPy state, what it needs to run, and the adapter of a trained student.

    program.json   state of the main system (prompts and demonstrations), as ``dspy.Module.save`` writes it; no LM
    SYSTEM.json    the same of each further system that the student serves
    meta.json      systems and settings, LMs by role, hashes, how it was made; written last, so half a save is none
    adapter/       a peft adapter

Nothing in it is executed or unpickled, and no key is in it. The folder may be moved.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import dspy

from cirag_dspy.adapter import LineAdapter
from cirag_dspy.errors import CorpusIndexError, ModelError, RunError
from cirag_dspy.files import digest, path_errors, read_json, sha256, write_json
from cirag_dspy.lms import base_folder, load_lm, split_spec
from cirag_dspy.lms.weights import MARK, model_folder
from cirag_dspy.modules.extract import Extract
from cirag_dspy.systems import SYSTEMS, build_system, settings_of

if TYPE_CHECKING:
    from cirag_dspy.modules.search import SearchIndex

logger = logging.getLogger(__name__)

META, PROGRAM, ADAPTER = "meta.json", "program.json", "adapter"
READER, EXTRACTION = "reader", "extraction"
_FORMAT = 1
_AGAIN = "compile it again"
_EDGE = 2**20
_WEIGHTS = "adapter_model.safetensors"
_ADAPTER_FILES = ("adapter_config.json", _WEIGHTS, "training.json")
_LM_SETTINGS = ("max_tokens", "max_completion_tokens", "temperature", "top_p", "seed", "api_base")
_NEARBY = ("localhost", "127.0.0.1", "::1")

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

    Args:
        program: One of ``SYSTEMS``.
        folder: Made if need be; a program in it is replaced, other files stay.
        settings: What ``program`` was built with, beside its index.
        lm: Its LM: a spec or a ``dspy.LM``, or both roles' (``reader``, ``extraction``). Of a local one with an adapter
            the adapter is copied into the folder. Keys are not kept; the address of a remote one is.
        called: How the LMs are called (``max_tokens``, ``temperature``, ...), as far as ``lm`` does not say.
        also: Further systems with their settings, that the same LMs serve.
        meta: What else is worth knowing: the optimizer's report, the recipe, scores. JSON.

    Raises:
        RunError: The folder can't be written; the program is none of ``SYSTEMS``; or what was written does not give the
            same prompts when it is read back.
        ModelError: The adapter is missing, or not in safetensors.
    """
    from cirag_dspy.evaluate.manifest import versions

    folder = Path(folder).expanduser()
    by_role = dict(lm) if isinstance(lm, Mapping) else {} if lm is None else {READER: lm}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / META).unlink(missing_ok=True)
        programs: dict[str, Any] = {}
        for module, knobs in ((program, settings or {}), *also):
            name = system_name(module)
            file = f"{name}.json" if programs else PROGRAM
            programs[name] = {"file": file, **_save_state(module, name, knobs, folder / file)}
        lms = {role: _keep_lm(one, called or {}, folder, role) for role, one in by_role.items()}
        kept = {"format": _FORMAT, "system": next(iter(programs)), "programs": programs, "lms": lms}
        made = {"saved": datetime.now(UTC).isoformat(timespec="seconds"), "versions": versions()}
        write_json(folder / META, {**kept, **(meta or {}), **made})
    except OSError as error:
        raise RunError(f"{folder} can't be written: {error.strerror or error}; choose another folder") from None
    return folder


def load(
    folder: str | Path,
    index: SearchIndex | str | Path | None = None,
    lm: str | dspy.LM | None = None,
    *,
    system: str | None = None,
    **options: Any,
) -> Any:
    """The program of a folder that ``save`` or ``cirag-dspy compile`` wrote, ready to be asked.

    Args:
        folder: The folder, or its ``program.json``.
        index: What it searches: an index, or the folder of one. Without it the program can't be asked yet.
        lm: Another LM than the saved one.
        system: One of the folder's systems; default: its main one.
        options: Of the LM, as ``load_lm`` takes them: ``api_base`` and ``cache`` among them.

    Raises:
        RunError: The folder holds no program, or a damaged one.
        ModelError: Its LM can't be had, or is not the one it was saved with.
        CorpusIndexError: ``index`` is no usable index.
    """
    saved = Saved.read(folder)
    if isinstance(index, str | Path):
        from cirag_dspy.corpus.index import CorpusIndex

        index = CorpusIndex.open(index)
    program = saved.program(index, system)
    if lm is not None:
        program.set_lm(lm if isinstance(lm, dspy.LM) else load_lm(lm, **options))
    elif saved.meta["lms"]:
        saved.attach(program, **options)
    return program


@dataclass(frozen=True)
class Saved:
    """A folder with a saved program, its ``meta.json`` read and checked; nothing is loaded yet."""

    folder: Path
    meta: dict[str, Any]

    @classmethod
    @path_errors(RunError)
    def read(cls, folder: str | Path) -> Saved:
        """The saved program of a folder, or of a ``program.json`` in one.

        Raises:
            RunError: There is none, or it is damaged.
        """
        folder = Path(folder).expanduser()
        if folder.suffix.lower() in (".pkl", ".pickle"):
            raise RunError(f"{folder}: a pickle can run anything when it is read, so none is; save the program as JSON")
        if folder.is_file():
            folder = folder.parent
        if not (folder / META).is_file():
            raise RunError(f"{folder} holds no saved program: it has no {META}, which cirag-dspy compile writes")
        meta = read_json(folder / META, _AGAIN)
        if meta.get("format") != _FORMAT:
            raise RunError(f"{folder} is of format {meta.get('format')!r}, not {_FORMAT}: compile it again")
        programs, lms = meta.get("programs"), meta.get("lms")
        well_formed = (
            isinstance(programs, dict)
            and meta.get("system") in programs
            and all(_is_entry(entry, file=str, settings=dict) for entry in programs.values())
            and all(Path(entry["file"]).name == entry["file"] for entry in programs.values())
            and isinstance(lms, dict)
            and all(_is_entry(entry, base=str) for entry in lms.values())
            and all(entry.get("adapter") in (None, ADAPTER, f"{ADAPTER}-{role}") for role, entry in lms.items())
        )
        if not well_formed:
            raise RunError(f"{folder / META} is damaged: it names no system, settings and LMs; compile it again")
        return cls(folder, meta)

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @property
    def system(self) -> str:
        """The main system."""
        return str(self.meta["system"])

    @property
    def systems(self) -> tuple[str, ...]:
        """All systems that it holds, the main one first."""
        return tuple(self.meta["programs"])

    @cached_property
    def sha256(self) -> str:
        """Over all that an answer depends on: states, settings, LMs and the adapter; not over scores and dates."""
        files = [_hash_of(self.folder / entry["file"]) for entry in self.meta["programs"].values()]
        return digest([self.meta["programs"], self.meta["lms"], files])

    def settings(self, system: str | None = None) -> dict[str, Any]:
        """The settings of a system, those of the main one by default.

        Raises:
            RunError: It does not hold this system.
        """
        settings = self._entry(system)["settings"]
        return {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}

    def program(self, index: SearchIndex | None = None, system: str | None = None, **knobs: Any) -> Any:
        """A system with its prompts, demonstrations and settings, ``knobs`` over them; without an LM.

        Raises:
            RunError: It does not hold this system, or its state is damaged.
        """
        name, entry = system or self.system, self._entry(system)
        try:
            program = build_system(name, _NoIndex() if index is None else index, **self.settings(system) | knobs)
        except TypeError as error:
            raise RunError(f"{self.folder / META} is damaged: settings of {name}: {error}; compile it again") from None
        load_state(program, self.folder / entry["file"], partly=bool(knobs))
        return program

    def extracts(self) -> bool:
        """Whether one of its systems extracts triples."""
        return next(self._extractors(), None) is not None

    def extractor(self) -> Extract:
        """The module that extracts triples as its systems do, without an LM.

        Raises:
            RunError: None of them does.
        """
        for module in self._extractors():
            return module
        raise RunError(f"{self.folder} extracts no triples: leave the program out")

    def _extractors(self) -> Iterator[Extract]:
        for system in self.systems:
            yield from (module for _, module in self.program(None, system).named_sub_modules(Extract))

    def attach(self, program: dspy.Module, **options: Any) -> None:
        """Give a program the saved LMs, each predictor that of its role."""
        program.set_lm(self.lm(READER, **options))
        if EXTRACTION in self.meta["lms"]:
            for _, module in program.named_sub_modules(Extract):
                module.set_lm(self.lm(EXTRACTION, **options))

    def lm(self, role: str = READER, **options: Any) -> dspy.LM:
        """The LM of a role, ``options`` over the saved ones; its name has the hash of its content."""
        spec, settings = self.lm_spec(role, api_base=options.get("api_base"))
        return load_lm(spec, **settings | options)

    def lm_spec(self, role: str = READER, api_base: str | None = None) -> tuple[str, dict[str, Any]]:
        """The LM string of a role and how the LM is called; the adapter is checked.

        A saved address is used as it is only on this machine: anywhere else it would be sent the user's key on the word
        of a file.

        Raises:
            RunError: No LM was saved, or its address must be confirmed.
            ModelError: The adapter is missing, or not the saved one; or the base is another.
        """
        kept = self.meta["lms"].get(role) or self.meta["lms"].get(READER)
        if kept is None:
            raise RunError(f"{self.folder} was saved without an LM: name one")
        address = kept.get("api_base")
        if address and not api_base and urlsplit(address).hostname not in _NEARBY:
            raise RunError(f"{self.folder} asks an LM at {address}: give that as the API base if you trust it")
        spec = kept["base"]
        if place := kept.get("adapter"):
            adapter = self.folder / place
            if not (adapter / _WEIGHTS).is_file():
                raise ModelError(
                    f"{adapter} is missing: copy it from where {self.folder.name} was made, or compile again"
                )
            if _adapter_hash(adapter) != kept.get("adapter_sha256"):
                raise ModelError(
                    f"{adapter} is not the adapter that this program was saved with: compile again, or name the LM "
                    f"{spec}+{adapter} to use it all the same"
                )
            _check_base(spec, adapter, kept)
            spec = f"{spec}+{adapter}"
        return spec, {key: kept[key] for key in _LM_SETTINGS if kept.get(key) is not None}

    def _entry(self, system: str | None) -> dict[str, Any]:
        name = system or self.system
        if name not in self.systems:
            held = ", ".join(self.systems)
            raise RunError(f"{self.folder} holds {held}, not {name}: compile it with {name} in [options] also")
        entry: dict[str, Any] = self.meta["programs"][name]
        return entry


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


def load_state(program: dspy.Module, file: Path, *, partly: bool = False) -> None:
    """Give a program the prompts and demonstrations of a file; LMs that it names are passed over.

    Args:
        program: The program.
        file: As ``dspy.Module.save`` writes it.
        partly: Whether the program may lack predictors of the file, as it does where a setting leaves them out.

    Raises:
        RunError: It is no JSON, or the state of another program.
    """
    state = read_json(file, _AGAIN)
    state.pop("metadata", None)
    predictors = dict(program.named_predictors())
    if odd := sorted(predictors.keys() - state.keys() if partly else predictors.keys() ^ state.keys()):
        raise RunError(f"{file} is the state of another program: {', '.join(odd[:3])} is in one and not in the other")
    try:
        for name, predictor in predictors.items():
            if len(state[name]["signature"]["fields"]) != len(predictor.signature.fields):
                raise ValueError(f"{name} has other fields")
        program.load_state({name: {**state[name], "lm": None} for name in predictors})
        prompts(program)
    except Exception as error:  # a file can be wrong in any way
        raise RunError(f"{file} is damaged ({type(error).__name__}: {error}): compile it again") from None


def prompts(program: dspy.Module) -> dict[str, str]:
    """What each predictor sends before its inputs: instructions, fields and demonstrations, as text."""
    adapter = LineAdapter()
    return {
        name: json.dumps(adapter.format(predictor.signature, predictor.demos, {}), ensure_ascii=False)
        for name, predictor in _all_predictors(program).items()
    }


def triples_writer(lm: dspy.LM, extract: Extract) -> str:
    """What an index calls the author of its triples: the LM, the calls a passage, and prompts that are not ours.

    A local student goes by its content, not by the folder that it lies in today.
    """
    own, plain = prompts(extract), prompts(Extract(extract.calls))
    mark = "" if own == plain else f"; prompts {hashlib.sha256(json.dumps(own).encode()).hexdigest()[:8]}"
    content = MARK.search(lm.model)
    base, adapter = split_spec(lm.model)
    name = f"{base}+adapter{content[0]}" if adapter and content else lm.model
    return f"{name} ({extract.calls}{mark})"


def _all_predictors(program: dspy.Module) -> dict[str, dspy.Predict]:
    """Predictors by name, those of sub-modules that DSPy takes for compiled, and passes over, included."""
    return {name.removeprefix("self."): one for name, one in program.named_sub_modules(dspy.Predict)}


def _save_state(program: dspy.Module, name: str, settings: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Write a program's state, read it back into a new one, and compare what the two would send."""
    bare = program.deepcopy()
    for _, module in bare.named_sub_modules(dspy.Module):
        module._compiled = False  # DSPy would leave a compiled sub-module out of the file
    bare.set_lm(None)
    part = file.with_name(f"{file.stem}.part.json")
    bare.save(part)
    part.replace(file)
    known = settings_of(name, **settings)
    fresh = build_system(name, None, **known)
    load_state(fresh, file)
    before, after = prompts(program), prompts(fresh)
    if changed := sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key)):
        file.unlink()
        raise RunError(f"{file} would not give the same prompts back ({', '.join(changed)}), so it was not kept")
    return {"settings": {key: list(value) if isinstance(value, tuple) else value for key, value in known.items()}}


def _keep_lm(lm: str | dspy.LM, called: Mapping[str, Any], folder: Path, role: str) -> dict[str, Any]:
    """What ``meta.json`` says of an LM; its adapter goes into the folder."""
    spec, called = (lm, called) if isinstance(lm, str) else (lm.model, {**called, **lm.kwargs})
    kept = {key: called[key] for key in _LM_SETTINGS if called.get(key) is not None}
    if "api_base" in kept:
        kept["api_base"] = _without_secrets(kept["api_base"])
    base, adapter = split_spec(spec)
    if base.startswith("local/") and (own := Path(base.removeprefix("local/")).expanduser()).is_dir():
        base = f"local/{own.resolve()}"  # the program may be loaded from anywhere
    if not adapter:
        return {"model": base, "base": base, **kept}
    place = ADAPTER if role == READER else f"{ADAPTER}-{role}"
    _copy_adapter(model_folder(adapter, adapter=True), folder / place)
    hashes = {"adapter_sha256": _adapter_hash(folder / place), "base_sha256": _weights_hash(base_folder(base))}
    return {"model": f"{base}+{place}", "base": base, "adapter": place, **hashes, **kept}


def _check_base(base: str, adapter: Path, kept: Mapping[str, Any]) -> None:
    try:
        now = _weights_hash(base_folder(base))
    except ModelError as error:
        raise ModelError(f"{error}; where the base is elsewhere, name the LM local/FOLDER+{adapter}") from None
    if now == kept.get("base_sha256"):
        return
    if base != "embedded":
        raise ModelError(f"{base} is not the model that {adapter} was trained on: bring that back, or compile again")
    # The hub's copy of the embedded model and the packaged one, which was quantized, differ in rounding.
    logger.warning("%s was trained on another copy of the embedded model; answers may differ", adapter)


def _copy_adapter(source: Path, target: Path) -> None:
    if not (source / _WEIGHTS).is_file():
        raise ModelError(f"{source} has no {_WEIGHTS}: only adapters in safetensors are saved")
    if source.resolve() == target.resolve():
        return
    target.mkdir(parents=True, exist_ok=True)
    for name in _ADAPTER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
        else:
            (target / name).unlink(missing_ok=True)


def _adapter_hash(adapter: Path) -> str:
    """SHA-256 over the weights and their configuration."""
    return digest([_hash_of(adapter / name) for name in _ADAPTER_FILES[:2]])


def _hash_of(file: Path) -> str:
    try:
        return sha256(file)
    except OSError as error:
        raise RunError(f"{file} can't be read: {error.strerror}; copy it there, or compile again") from None


def _weights_hash(folder: Path) -> str:
    """SHA-256 over size, first and last megabyte of each file of weights; configurations change with their writer."""
    edges = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as stream:
            edges.update(f"{file.name} {file.stat().st_size}".encode() + stream.read(_EDGE))
            stream.seek(max(0, file.stat().st_size - _EDGE))
            edges.update(stream.read())
    return edges.hexdigest()


def _without_secrets(address: str) -> str:
    """An address without user, password and query."""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class _NoIndex:
    """Stands where a program's index would: whoever searches is told what is missing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise CorpusIndexError("this program was loaded without an index: load(folder, index=...)")


def _is_entry(entry: Any, **keys: type) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(key), kind) for key, kind in keys.items())
