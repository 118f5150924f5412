"""Ablations: one system with each combination of some settings, from a named grid or a TOML file."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cirag_dspy.errors import DataError
from cirag_dspy.evaluate.variants import Variant
from cirag_dspy.files import read_text
from cirag_dspy.systems import SYSTEMS
from cirag_dspy.text import one_line

# Beside settings of the system: when triples are extracted, and whether its LM is the student or the student's base.
EXTRACT, STUDENT = "extract", "student"
_TOP = ("system", "settings", "product", "variants")

_LEVELS = ("triples", "sentences", "passages")


@dataclass(frozen=True)
class Grid:
    """Points of a space of settings.

    Args:
        name: Of the ablation.
        points: Settings by the name of their variant, the reference first.
        system: The system they are of, empty where it is open.
        settings: Of every variant.
        knob: The name of the one number that they differ in, for the x axis of a drawing; empty: none.
    """

    name: str
    points: Mapping[str, Mapping[str, Any]]
    system: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    knob: str = ""

    def variants(self, system: str, settings: Mapping[str, Any]) -> list[Variant]:
        """The points as variants of a system, over settings that go for all of them."""
        return [_variant(name, system, {**self.settings, **settings, **point}) for name, point in self.points.items()]

    @property
    def xs(self) -> list[float] | None:
        """Where the points lie on the x axis, if they differ in one number."""
        return [point[self.knob] for point in self.points.values()] if self.knob else None

    def reference(self, settings: Mapping[str, Any]) -> str:
        """The first point that changes nothing of these settings (the paper's, or a program's), else the first."""
        same = (
            name
            for name, point in self.points.items()
            if all(key in settings and _shown(settings[key]) == _shown(value) for key, value in point.items())
        )
        return next(same, next(iter(self.points)))


def find_grid(name: str) -> Grid:
    """A grid of ``GRIDS``, the paper's ablations (section 4.5, table 3, figures 6 to 8), or one in a TOML file.

    Raises:
        DataError: There is none of this name, or the file can't be used.
    """
    if name.endswith(".toml"):
        return read_grid(Path(name))
    if name not in GRIDS:
        raise DataError(f"no ablation {name!r}: give one of {', '.join(GRIDS)}, or a TOML file")
    return GRIDS[name]


def read_grid(path: Path) -> Grid:
    """A grid from a TOML file.

    ``system`` names the system, ``[settings]`` go for all variants, ``[product]`` has a list of values for each of some
    settings, of which every combination is run, and each ``[[variants]]`` has one variant: a ``name`` and settings.
    Settings may also be ``extract`` (``online`` or ``offline``) and ``student`` (false: the base of the LM).

    Raises:
        DataError: The file can't be read, or something in it is unknown, missing or named twice.
    """
    try:
        whole = tomllib.loads(read_text(path))
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not TOML: {error}") from None
    if unknown := [key for key in whole if key not in _TOP]:
        raise DataError(f"{path} has no key {', '.join(unknown)}; there are {', '.join(_TOP)}")
    system, settings, product = whole.get("system", ""), whole.get("settings", {}), whole.get("product", {})
    listed = whole.get("variants", [])
    if system not in ("", *SYSTEMS):
        raise DataError(f"{path}: system must be one of {', '.join(SYSTEMS)}, not {system!r}")
    if not isinstance(settings, dict) or not isinstance(product, dict):
        raise DataError(f"{path}: [settings] and [product] must be tables")
    if odd := [key for key, values in product.items() if not isinstance(values, list) or not values]:
        raise DataError(f"{path}: [product] {odd[0]} must be a list of values")
    if not isinstance(listed, list) or not all(isinstance(one, dict) and one.get("name") for one in listed):
        raise DataError(f"{path}: variants must be tables with a name each: write [[variants]]")
    points = [*_product(product), *((one_line(str(one["name"])), _without_name(one)) for one in listed)]
    names = [name for name, _ in points]
    if twice := [name for name in names if names.count(name) > 1]:
        raise DataError(f"{path}: two variants are named {twice[0]!r}")
    if not points:
        raise DataError(f"{path} has no variants: give [product] lists of values, or [[variants]]")
    return _grid(path.stem, points, system=system, settings=settings)


def _product(product: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for values in itertools.product(*product.values()) if product else ():
        point = dict(zip(product, values, strict=True))
        yield ", ".join(f"{key}={_shown(value)}" for key, value in point.items()), point


def _grid(name: str, points: Sequence[tuple[str, Mapping[str, Any]]], **options: Any) -> Grid:
    by_name = dict(points)
    keys = {tuple(point) for point in by_name.values()}
    knob = next(iter(keys))[0] if len(keys) == 1 and len(next(iter(keys))) == 1 else ""
    numbers = all(_is_number(point.get(knob)) for point in by_name.values())
    return Grid(name, by_name, knob=knob if numbers else "", **options)


def _variant(name: str, system: str, point: Mapping[str, Any]) -> Variant:
    settings = {key: value for key, value in point.items() if key not in (EXTRACT, STUDENT)}
    extract, student = point.get(EXTRACT, ""), point.get(STUDENT, True)
    if extract not in ("", "online", "offline"):
        raise DataError(f"{name}: extract must be online or offline, not {extract!r}")
    if not isinstance(student, bool):
        raise DataError(f"{name}: student must be true or false, not {student!r}")
    if "threads" in settings:
        raise DataError(f"{name}: threads is no setting to vary; --threads says it for all")
    return Variant(name, system, settings, extract, student)


def _without_name(one: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in one.items() if key != "name"}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "+".join(map(_shown, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _granularities() -> Iterator[tuple[str, dict[str, Any]]]:
    """All levels, each pair, each alone."""
    for size in (3, 2, 1):
        for levels in itertools.combinations(_LEVELS, size):
            yield "all levels" if size == 3 else "+".join(levels), {"levels": list(levels)}


GRIDS = {
    grid.name: grid
    for grid in (
        _grid("granularity", list(_granularities())),
        _grid("n", list(_product({"n": range(10, 101, 10)}))),
        _grid("hops", list(_product({"max_hops": range(1, 7)}))),
        _grid("ranker", [("ranked", {"rank": True}), ("not ranked", {"rank": False})]),
        _grid("extraction", [("offline", {EXTRACT: "offline"}), ("online", {EXTRACT: "online"})]),
        _grid("distillation", [("student", {STUDENT: True}), ("base", {STUDENT: False})]),
        _grid(
            "decomposition",
            [("decomposed", {"max_depth": 2}), ("not decomposed", {"max_depth": 0})],
            system="d2f_reag",
        ),
    )
}
