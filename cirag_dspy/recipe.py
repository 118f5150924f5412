"""A recipe, ``programs/NAME.toml``: what to compile, from what, with which LMs. Checked before anything is called."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from cirag_dspy.advice import without_secrets
from cirag_dspy.benchmarks import DATASETS
from cirag_dspy.distill.settings import LoraSettings
from cirag_dspy.errors import CiragError, DataError
from cirag_dspy.files import read_text
from cirag_dspy.lms import is_local
from cirag_dspy.systems import SYSTEMS, build_system, check_settings, settings_of

T = TypeVar("T")

DISTILLATION = "trajectory_distillation"
METRICS = ("em", "f1")
_MEASURE = ("metric", "threshold")
# Everywhere else a number must be above 0.
_MAY_BE_ZERO = frozenset(
    {"skip", "val", "triples", "seed", "dropout", "warmup", "weight_decay", "threshold", "max_depth", "accept"}
)


@dataclass(frozen=True)
class RecipeLMs:
    """``[lm]``: who does what.

    Args:
        teacher: Answers the training questions: any LM string, or ``annotations``.
        student: What is trained, or, for an optimizer of prompts, what is prompted.
        extraction: Writes the triples of the training corpora; empty: the teacher.
        prompt: Writes the instructions that ``mipro`` and ``gepa`` try; empty: the student.
        max_tokens: Of a reply, at training and later.
        api_base: Address of the remote ones among them.
    """

    teacher: str = "annotations"
    student: str = "embedded"
    extraction: str = ""
    prompt: str = ""
    max_tokens: int = 256
    api_base: str = ""


@dataclass(frozen=True)
class RecipeData:
    """``[[data]]``: training questions, with a corpus and an index of their own.

    Args:
        dataset: One of ``DATASETS``.
        split: ``train`` unless there is a reason.
        limit: This many questions, drawn at random by the recipe's ``seed``; all without it.
        skip: After this many of the draw: two entries of one data set share no question if one skips what the other
            takes.
        first: Take the file's first ones instead, in its order. Files may be sorted (MuSiQue's are by hops), so these
            are no sample.
        val: The last so many of them are kept for validation, and not trained on.
        triples: The triples of so many of its passages, as the extraction LM writes them, are trained on too; passages
            that support an answer come first.
        extraction: Writes the triples of its corpus; empty: what ``[lm]`` says.
        most: Rows of a predictor at most, of those that come from here.
    """

    dataset: str
    split: str = "train"
    limit: int | None = None
    skip: int = 0
    first: bool = False
    val: int = 0
    triples: int = 0
    extraction: str = ""
    most: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RecipeTriples:
    """``[[triples]]``: passages with the triples that some LM extracted; a JSONL file of ``title, text, triples``, in
    ``--data-dir`` or where the command is run.
    """

    file: str
    limit: int | None = None
    skip: int = 0


@dataclass(frozen=True)
class Distillation:
    """``[options]`` of ``trajectory_distillation``.

    Args:
        metric: The official ``em`` or ``f1`` of the data set.
        threshold: A trajectory is trained on if it scores at least this.
        shorten: Whether the student's prompts are cut down to the names of task and fields.
        contrast: Whether the teacher is asked again for each answer, with less evidence and with more.
        also: Further systems whose teacher trajectories are trained on; the student then serves them too. A name with a
            colon, ``cirag:sentences``, is a system with other settings, say one level of the cascade alone: for more to
            learn from, not served.
        most: Rows of a predictor at most.
    """

    metric: str = "em"
    threshold: float = 1.0
    shorten: bool = True
    contrast: bool = True
    also: tuple[str, ...] = ()
    most: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """A recipe that was checked.

    ``systems`` holds the settings of the main system, then of those in ``also``; ``options`` and ``lora`` what the
    recipe sets of them, and of an optimizer of prompts also ``metric`` and ``threshold``.
    """

    name: str
    system: str
    optimizer: str
    systems: dict[str, dict[str, Any]]
    lm: RecipeLMs
    data: tuple[RecipeData, ...]
    triples: tuple[RecipeTriples, ...]
    options: dict[str, Any]
    lora: dict[str, Any]
    seed: int
    embedder: str

    @property
    def distillation(self) -> Distillation:
        """The options of ``trajectory_distillation``."""
        return Distillation(**self.options)

    @property
    def lora_settings(self) -> LoraSettings:
        """``[lora]`` over the paper's defaults."""
        return LoraSettings(**self.lora)

    @property
    def distils(self) -> bool:
        """Whether a student is trained, or prompts are optimized."""
        return self.optimizer == DISTILLATION

    @property
    def extraction(self) -> str:
        """The LM that writes the triples of the training corpora."""
        return self.lm.extraction or self.lm.teacher

    def as_dict(self) -> dict[str, Any]:
        """The whole recipe, for the record of a program; no key or password of an address is in it."""
        whole = asdict(self)
        whole["lm"]["api_base"] = without_secrets(self.lm.api_base)
        return whole


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read and check a recipe.

    Args:
        path: The TOML file; its stem is the recipe's name, with another optimizer than the file's followed by that.
        overrides: ``lora.rank=16`` and the like, typed as TOML (a bare word is a text), put over the file. What names a
            key of ``[[data]]`` or ``[[triples]]`` goes for all of them. With another ``optimizer``, what the file says
            to its own (``[options]``, ``[lora]``, ``[[triples]]``) is left out.

    Raises:
        DataError: The file can't be read, or something in it is missing, unknown or of the wrong kind.
    """
    try:
        whole = tomllib.loads(read_text(path))
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not TOML: {error}") from None
    try:
        name = path.stem
        optimizer = [override for override in overrides if override.partition("=")[0].strip() == "optimizer"]
        for override in optimizer:
            before = whole.get("optimizer")
            _override(whole, override)
            if whole["optimizer"] != before:
                name = f"{path.stem}-{whole['optimizer']}"
                _leave_out(whole)
        for override in overrides:
            _override(whole, override)
        return _recipe(name, whole)
    except CiragError as error:
        raise DataError(f"{path}: {error}") from None


def system_of(name: str) -> str:
    """The system of a name in ``Recipe.systems``: what stands before the colon."""
    return name.partition(":")[0]


def read_lora(overrides: Sequence[str]) -> LoraSettings:
    """``lora.rank=16`` and the like as settings.

    Raises:
        DataError: One is unknown, or of the wrong kind.
    """
    whole: dict[str, Any] = {}
    for override in overrides:
        _override(whole, override)
    _known(whole, ["lora"], "--set")
    return _table(LoraSettings, whole.get("lora", {}), "[lora]")


def literal(text: str) -> Any:
    """What stands behind the equals sign of ``--set``: a value of TOML or JSON, or else a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return None if text.strip() == "null" else text.strip()


def checked_settings(system: str, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Settings of a system, each of the type of its default, and found good by the system itself.

    Args:
        system: One of ``SYSTEMS``.
        given: Values as TOML has them.
        where: What a message calls the place that they come from.

    Raises:
        DataError: One is unknown, or of the wrong kind.
        RunError: The system refuses a value.
    """
    defaults = settings_of(system)
    _known(given, defaults, where)
    checked = {
        key: None
        if value is None and defaults[key] is None
        else _typed(value, _kind_of(defaults[key]), key, f"{where} {key}")
        for key, value in given.items()
    }
    check_settings(system, **checked)
    return checked


def _recipe(name: str, whole: dict[str, Any]) -> Recipe:
    _known(whole, _TOP, "it")
    system = _choice(whole, "system", SYSTEMS)
    optimizer = _choice(whole, "optimizer", _optimizers())
    lms = _table(RecipeLMs, whole.get("lm", {}), "[lm]")
    data = _tables(RecipeData, whole, "data")
    for entry, where in zip(data, _places("data", data), strict=True):
        if entry.dataset not in DATASETS:
            raise DataError(f"{where} dataset must be one of {', '.join(DATASETS)}, not {_shown(entry.dataset)}")
        if entry.limit is not None and entry.val >= entry.limit:
            raise DataError(f"{where} val leaves none of {entry.limit} questions to train on")
    orders: dict[tuple[str, str], bool] = {}
    for entry, where in zip(data, _places("data", data), strict=True):
        if orders.setdefault((entry.dataset, entry.split), entry.first) != entry.first:
            raise DataError(f"{where} first must be the same in all entries of {entry.dataset}")
    triples = _tables(RecipeTriples, whole, "triples")
    options = _options(optimizer, whole.get("options", {}))
    if lms.student == "annotations":
        raise DataError("[lm] student must be a model; annotations can only teach")
    if optimizer == DISTILLATION:
        if not data and not triples:
            raise DataError("it lacks [[data]]: at least one set of training questions")
        if not is_local(lms.student):
            raise DataError(f"[lm] student must be embedded or local/..., as it is trained, not {_shown(lms.student)}")
    else:
        if len(data) != 1:
            raise DataError(f"{optimizer} takes one [[data]], not {len(data)}")
        for section in ("lora", "triples"):
            if section in whole:
                raise DataError(f"[{section}] is for {DISTILLATION}; {optimizer} trains nothing")
    systems = _systems(system, options.get("also", ()), whole.get("settings", {}))
    if optimizer == DISTILLATION:
        predictors = _predictors(systems)
        _known(options.get("most", {}), predictors, "[options] most")
        for entry, where in zip(data, _places("data", data), strict=True):
            _known(entry.most, predictors, f"{where} most")
    return Recipe(
        name=name,
        system=system,
        optimizer=optimizer,
        systems=systems,
        lm=lms,
        data=data,
        triples=triples,
        options=options,
        lora=_lora(whole["lora"]) if "lora" in whole else {},
        seed=_typed(whole.get("seed", 0), int, "seed", "seed"),
        embedder=_typed(whole.get("embedder", "embedded"), str, "embedder", "embedder"),
    )


_TOP = ("system", "optimizer", "seed", "embedder", "settings", "lm", "data", "triples", "options", "lora")
_ARRAYS = ("data", "triples")


def _optimizers() -> tuple[str, ...]:
    from cirag_dspy.distill.options import OPTIMIZERS

    return (DISTILLATION, *OPTIMIZERS)


def _systems(system: str, also: Sequence[str], given: Any) -> dict[str, dict[str, Any]]:
    """Settings by system: ``[settings]`` are the main one's, ``[settings.NAME]`` those of one of ``also``."""
    if not isinstance(given, dict):
        raise DataError("[settings] must be a table")
    if unknown := [name for name in also if system_of(name) not in SYSTEMS or name == system]:
        others = ", ".join(name for name in SYSTEMS if name != system)
        raise DataError(f"[options] also must be some of {others}, or SYSTEM:LABEL, not {', '.join(unknown)}")
    own = {name: value for name, value in given.items() if not isinstance(value, dict)}
    tables = {system: own} | {name: (own if system_of(name) == system else {}) | given.get(name, {}) for name in also}
    if stray := [name for name, value in given.items() if isinstance(value, dict) and name not in tables]:
        raise DataError(f"[settings.{stray[0]}] is for a system that [options] also names; it names {_listed(also)}")
    checked: dict[str, dict[str, Any]] = {}
    for name, settings in tables.items():
        where = "[settings]" if name == system else f"[settings.{name}]"
        checked[name] = checked_settings(system_of(name), settings, where)
    return checked


def _predictors(systems: Mapping[str, Mapping[str, Any]]) -> dict[str, None]:
    """The names of the systems' predictors, each once."""
    built = [build_system(system_of(name), None, **settings) for name, settings in systems.items()]
    return dict.fromkeys(name for program in built for name, _ in program.named_predictors())


def _options(optimizer: str, given: Any) -> dict[str, Any]:
    """``[options]``, with ``[options.NAME]`` for the optimizer of that name over them."""
    if not isinstance(given, dict):
        raise DataError("[options] must be a table")
    names = _optimizers()
    common = {key: value for key, value in given.items() if key not in names}
    options = common | given.get(optimizer, {})
    of_prompts = {key: value for key, value in options.items() if key not in _MEASURE}
    own = options if optimizer == DISTILLATION else {key: options[key] for key in options if key not in of_prompts}
    checked = _table(Distillation, own, "[options]")
    if checked.metric not in METRICS:
        raise DataError(f"[options] metric must be em or f1, not {_shown(checked.metric)}")
    if optimizer == DISTILLATION:
        return {key: getattr(checked, key) for key in options}
    from cirag_dspy.distill.options import check_options

    if keys := [key for key in of_prompts if "api_key" in key]:
        raise DataError(f"[options] {keys[0]}: keys don't belong in a recipe; give it in the environment")
    try:
        check_options(optimizer, of_prompts)
    except CiragError as error:
        raise DataError(f"[options] {error}") from None
    return {"metric": checked.metric, "threshold": checked.threshold} | of_prompts


def _lora(given: Any) -> dict[str, Any]:
    checked = _table(LoraSettings, given, "[lora]")
    return {key: getattr(checked, key) for key in given}


def _leave_out(whole: dict[str, Any]) -> None:
    """Take out of a recipe what it says to its own optimizer; measure and threshold go for any."""
    for section in ("lora", "triples"):
        whole.pop(section, None)
    if isinstance(options := whole.get("options"), dict):
        kept = (*_MEASURE, *_optimizers())
        whole["options"] = {key: value for key, value in options.items() if key in kept}


def _override(whole: dict[str, Any], override: str) -> None:
    name, equals, text = override.partition("=")
    section, dot, key = name.strip().partition(".")
    if not equals or section not in _TOP:
        raise DataError(f"--set {override}: give one of {', '.join(_TOP)}, such as lora.rank=16")
    value = literal(text)
    if not dot:
        whole[section] = value
    elif section in _ARRAYS:
        if not whole.get(section):
            raise DataError(f"--set {override}: it has no [[{section}]]")
        for entry in whole[section]:
            entry[key] = value
    else:
        table = whole.setdefault(section, {})
        *parents, last = key.split(".") if section in ("settings", "options") else [key]
        for parent in parents:
            table = table.setdefault(parent, {}) if isinstance(table, dict) else None
        if not isinstance(table, dict):
            raise DataError(f"--set {override}: {section} is no table")
        table[last] = value


def _tables(kind: type[T], whole: Mapping[str, Any], section: str) -> tuple[T, ...]:
    given = whole.get(section, [])
    if not isinstance(given, list):
        raise DataError(f"{section} must be a list of tables: write [[{section}]]")
    return tuple(_table(kind, entry, where) for entry, where in zip(given, _places(section, given), strict=True))


def _places(section: str, entries: Sequence[Any]) -> list[str]:
    """How messages name the tables of a list: by number where there are several."""
    return [f"[[{section}]]{f' {number}' if len(entries) > 1 else ''}" for number, _ in enumerate(entries, 1)]


def _table(kind: type[T], given: Any, where: str) -> T:
    """A table as a dataclass, its keys and types checked."""
    if not isinstance(given, dict):
        raise DataError(f"{where} must be a table")
    known = fields(kind)  # type: ignore[arg-type]
    _known(given, [known_field.name for known_field in known], where)
    for known_field in known:
        required = known_field.default is MISSING and known_field.default_factory is MISSING
        if required and known_field.name not in given:
            raise DataError(f"{where} lacks {known_field.name}")
    hints = get_type_hints(kind)
    values = {key: _typed(value, hints[key], key, f"{where} {key}") for key, value in given.items()}
    try:
        return kind(**values)
    except CiragError as error:
        raise DataError(f"{where} {error}") from None


def _known(given: Mapping[str, Any], known: Sequence[str] | Mapping[str, Any], where: str) -> None:
    if unknown := [key for key in given if key not in known]:
        raise DataError(f"{where} has no key {', '.join(unknown)}; there are {', '.join(known)}")


def _choice(whole: Mapping[str, Any], key: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    if key not in whole:
        raise DataError(f"it lacks {key}: one of {', '.join(known)}")
    if whole[key] not in list(known):
        raise DataError(f"{key} must be one of {', '.join(known)}, not {_shown(whole[key])}")
    return str(whole[key])


def _kind_of(default: Any) -> Any:
    """The type of a system's setting, by its default; an optional one (``extract``) is a text."""
    return tuple[str, ...] if isinstance(default, tuple) else type(default) if default is not None else str


def _typed(value: Any, kind: Any, name: str, where: str) -> Any:
    """The value as a field of type ``kind``; ``name`` decides whether a number may be 0."""
    kinds = str(kind)
    zero = name in _MAY_BE_ZERO
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if "Mapping" in kinds or kind is dict:
        if isinstance(value, dict):
            return {key: _typed(inner, int, key, f"{where}.{key}") for key, inner in value.items()}
        wanted = "a table"
    elif "tuple" in kinds:
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return tuple(value)
        wanted = "a list of names"
    elif "bool" in kinds:
        if isinstance(value, bool):
            return value
        wanted = "true or false"
    elif "float" in kinds:
        if number and (value > 0 or (zero and value == 0)):
            return float(value)
        wanted = "a number, 0 or more" if zero else "a number above 0"
    elif "int" in kinds:
        if number and isinstance(value, int) and (value > 0 or (zero and value == 0)):
            return value
        wanted = "a whole number, 0 or more" if zero else "a positive integer"
    else:
        if isinstance(value, str):
            return value
        wanted = "a text"
    raise DataError(f"{where} must be {wanted}, not {_shown(value)}")


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
