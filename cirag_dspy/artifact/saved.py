"""Read a saved program: check it, build it, give it its LMs."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import dspy

from cirag_dspy.artifact.attributes import set_attributes
from cirag_dspy.artifact.layout import (
    ADAPTER,
    EXTRACTION,
    FORMAT,
    META,
    READER,
    WEIGHTS,
    adapter_hash,
    finish,
    hash_of,
    is_entry,
)
from cirag_dspy.artifact.lms import CLIENT, SETTINGS, Named
from cirag_dspy.content import same_content
from cirag_dspy.errors import CorpusIndexError, ModelError, RunError, StateError
from cirag_dspy.files import digest, path_errors, read_json
from cirag_dspy.lms import base_folder, load_lm
from cirag_dspy.lms.weights import weights_hash
from cirag_dspy.modules import state as states
from cirag_dspy.modules.extract import Extract
from cirag_dspy.modules.keys import without_keys
from cirag_dspy.systems import SYSTEMS, build_system

if TYPE_CHECKING:
    from cirag_dspy.modules.search import SearchIndex

logger = logging.getLogger(__name__)

RESERVED = {"format", "system", "programs", "lms", "saved", "versions"}
_AGAIN = "compile it again"
_NEARBY = ("localhost", "127.0.0.1", "::1")


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
        try:
            if folder.is_file():
                folder = folder.parent
            finish(folder)
        except OSError as error:
            raise RunError(f"{folder} can't be read, or its last save not be finished: {error.strerror}") from None
        if not (folder / META).is_file():
            raise RunError(f"{folder} holds no saved program: it has no {META}, which cirag-dspy compile writes")
        meta = read_json(folder / META, _AGAIN)
        if meta.get("format") != FORMAT:
            raise RunError(f"{folder} is of format {meta.get('format')!r}, not {FORMAT}: compile it again")
        programs, lms = meta.get("programs"), meta.get("lms")
        well_formed = (
            isinstance(programs, dict)
            and isinstance(meta.get("system"), str)
            and meta.get("system") in programs
            and all(is_entry(entry, file=str, settings=dict) for entry in programs.values())
            and all(Path(entry["file"]).name == entry["file"] for entry in programs.values())
            and isinstance(lms, dict)
            and all(_is_lm(role, entry) for role, entry in lms.items())
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
        files = [hash_of(self.folder / entry["file"]) for entry in self.meta["programs"].values()]
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
        program = self._program(index, system, knobs)
        others = (name for name in self.systems if name != (system or self.system))
        found = {name: states.dump(self._program(None, name, {}), lms=False) for name in others}
        program.origin = Origin(Saved(self.folder.resolve(), copy.deepcopy(self.meta)), found)
        return program

    def _program(self, index: SearchIndex | None, system: str | None, knobs: dict[str, Any]) -> Any:
        name, entry = system or self.system, self._entry(system)
        try:
            program = build_system(name, _NoIndex() if index is None else index, **self.settings(system) | knobs)
        except TypeError as error:
            raise RunError(f"{self.folder / META} is damaged: settings of {name}: {error}; compile it again") from None
        set_attributes(program, entry.get("attributes", {}), self.folder / META, partly=bool(knobs))
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
        lms = {role: entry and self.lm(role, **options) for role, entry in self.meta["lms"].items()}
        extracting = {
            id(one) for _, part in program.named_sub_modules(Extract) for one in states.predictors(part).values()
        }
        system = next((name for name in self.systems if SYSTEMS[name].endswith(f":{type(program).__name__}")), "")
        for name, predictor in states.predictors(program).items():
            usual = lms.get(EXTRACTION if id(predictor) in extracting else READER, lms.get(READER))
            predictor.lm = lms.get(f"{system}.{name}", usual)

    def lm(self, role: str = READER, **options: Any) -> dspy.LM:
        """The LM of a role, ``options`` over the saved ones; its name has the hash of its content."""
        spec, settings = self.lm_spec(role, api_base=options.get("api_base"))
        kept = self._lm_entry(role)
        return load_lm(spec, **settings | {name: kept[name] for name in CLIENT if name in kept} | options)

    def lm_spec(self, role: str = READER, api_base: str | None = None) -> tuple[str, dict[str, Any]]:
        """The LM string of a role and how the LM is called; the adapter is checked.

        A saved address is used as it is only on this machine: anywhere else it would be sent the user's key on the word
        of a file.

        Raises:
            RunError: No LM was saved, or its address must be confirmed.
            ModelError: The adapter is missing, or not the saved one; or the base is another.
        """
        kept = self._lm_entry(role)
        address = kept.get("api_base")
        if address and not api_base and urlsplit(address).hostname not in _NEARBY:
            raise RunError(f"{self.folder} asks an LM at {address}: give that as the API base if you trust it")
        spec = kept["base"]
        if place := kept.get("adapter"):
            adapter = self.folder / place
            if not (adapter / WEIGHTS).is_file():
                raise ModelError(
                    f"{adapter} is missing: copy it from where {self.folder.name} was made, or compile again"
                )
            if adapter_hash(adapter) != kept.get("adapter_sha256"):
                raise ModelError(
                    f"{adapter} is not the adapter that this program was saved with: compile again, or name the LM "
                    f"{spec}+{adapter} to use it all the same"
                )
            _check_base(spec, adapter, kept)
            spec = f"{spec}+{adapter}"
        return spec, {key: without_keys(kept[key]) for key in (*SETTINGS, "api_base") if key in kept}

    def _lm_entry(self, role: str) -> dict[str, Any]:
        kept: dict[str, Any] | None = self.meta["lms"].get(role) or self.meta["lms"].get(READER)
        if kept is None:
            raise RunError(f"{self.folder} was saved without an LM: name one")
        return kept

    def _entry(self, system: str | None) -> dict[str, Any]:
        name = system or self.system
        if name not in self.systems:
            held = ", ".join(self.systems)
            raise RunError(f"{self.folder} holds {held}, not {name}: compile it with {name} in [options] also")
        entry: dict[str, Any] = self.meta["programs"][name]
        return entry


@dataclass(frozen=True)
class Origin:
    """Where a loaded program is from, and what else was there; kept with the program and its copies.

    Args:
        saved: The folder, absolute, with its ``meta.json``.
        states: The states of its other systems, by system.
    """

    saved: Saved
    states: dict[str, Any]

    def made(self) -> dict[str, Any]:
        """How the program was made: the optimizer's report, the recipe, notes."""
        return {name: value for name, value in self.saved.meta.items() if name not in RESERVED}

    def lms(self) -> dict[str, Named | None]:
        """The saved LMs by role: the spec of each and how it is called.

        Raises:
            ModelError: An adapter is missing, or not the saved one.
        """
        found: dict[str, Named | None] = {}
        for role, entry in self.saved.meta["lms"].items():
            spec, called = self.saved.lm_spec(role, api_base=entry.get("api_base")) if entry else ("", {})
            client = {name: entry[name] for name in CLIENT if name in entry} if entry else {}
            found[role] = (spec, {**called, **client}) if entry else None
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> Origin:
        """Itself: it is never changed."""
        return self


def origin_of(program: dspy.Module) -> Origin | None:
    """Where a program was loaded from; ``None`` if it was not."""
    origin = getattr(program, "origin", None)
    return origin if isinstance(origin, Origin) else None


def load_state(program: dspy.Module, file: Path, *, partly: bool = False) -> None:
    """Give a program the prompts and demonstrations of a file; LMs that it names are passed over.

    Args:
        program: The program.
        file: As ``dspy.Module.save`` writes it.
        partly: Whether the program may lack predictors of the file, as it does where a setting leaves them out.

    Raises:
        StateError: It is no JSON, or the state of another program.
    """
    try:
        states.load(program, states.read(file), lms=False, partly=partly)
    except StateError as error:
        raise StateError(f"{file} {error}; {_AGAIN}") from None


def _is_lm(role: str, entry: Any) -> bool:
    if entry is None:
        return role not in (READER, EXTRACTION)
    places = (None, ADAPTER, f"{ADAPTER}-{role}")
    return is_entry(entry, base=str) and entry.get("adapter") in places and Path(role).name == role


def _check_base(base: str, adapter: Path, kept: Mapping[str, Any]) -> None:
    try:
        now = weights_hash(base_folder(base))
    except ModelError as error:
        raise ModelError(f"{error}; where the base is elsewhere, name the LM local/FOLDER+{adapter}") from None
    if same_content(kept.get("base_sha256"), now):
        return
    if base != "embedded":
        raise ModelError(f"{base} is not the model that {adapter} was trained on: bring that back, or compile again")
    # The hub's copy of the embedded model and the packaged one, which was quantized, differ in rounding.
    logger.warning("%s was trained on another copy of the embedded model; answers may differ", adapter)


class _NoIndex:
    """Stands where a program's index would: whoever searches is told what is missing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise CorpusIndexError("this program was loaded without an index: load(folder, index=...)")
