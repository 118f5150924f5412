"""Rows as they come from a file or the hub: read with errors that name file, row and field. JSON only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cirag_dspy.errors import DataError
from cirag_dspy.files import read_text

ID_KEYS = ("_id", "id")


@dataclass(frozen=True)
class RawRow:
    """One row and where it came from (``"dev.json row 3"``, rows counted from 1). Field names are lower-cased."""

    where: str
    fields: Mapping[str, Any]

    def error(self, key: str, problem: str) -> DataError:
        """The error of a field that is not as its layout says."""
        return DataError(f"{self.where}: field {key!r} {problem}")

    def has(self, key: str) -> bool:
        """Whether the field is there and is not null."""
        return self.fields.get(key) is not None

    def text(self, key: str, default: str | None = None) -> str:
        """A string field; ``default`` where it is missing or null."""
        value = self.fields.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.error(key, "is missing" if value is None else f"is {type(value).__name__}, expected a string")
        return value

    def strings(self, key: str) -> list[str]:
        """A list of strings (a lone string is a list of one); empty where the field is missing or null."""
        value = self.fields.get(key)
        items = [value] if isinstance(value, str) else list(value) if isinstance(value, Sequence) else value
        if items is None:
            return []
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise self.error(key, "is no list of strings")
        return items

    def records(self, key: str) -> list[RawRow]:
        """A list of objects, each as a row of its own, so that their errors say where they stand."""
        value = self._json(key)
        if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
            raise self.error(key, "is missing" if value is None else "is no list of objects")
        return [RawRow(f"{self.where}, {key}[{index}]", item) for index, item in enumerate(value)]

    def table(self, key: str, *columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
        """A field that is a table, whatever its layout.

        Official files write ``[[a, b], ...]``, the hub ``{"x": [a, ...], "y": [b, ...]}`` or
        ``[{"x": a, "y": b}, ...]``; some mirrors put any of these into a JSON string.

        Args:
            key: The field. A missing or null one is an empty table.
            columns: For each column the names it goes by.

        Returns:
            The rows of the table, each with one value a column.
        """
        value = self._json(key)
        if value is None:
            return []
        if isinstance(value, Mapping):
            series = [self._named(key, value, names) for names in columns]
            if len({len(column) for column in series}) > 1:
                raise self.error(key, f"has columns of different lengths ({', '.join(str(len(c)) for c in series)})")
            return list(zip(*series, strict=True))
        if not isinstance(value, list):
            raise self.error(key, f"is {type(value).__name__}, expected a list")
        table = []
        for index, item in enumerate(value):
            if isinstance(item, Mapping):
                table.append(tuple(self._named(f"{key}[{index}]", item, names) for names in columns))
            elif isinstance(item, list | tuple) and len(item) >= len(columns):
                table.append(tuple(item[: len(columns)]))
            else:
                raise self.error(
                    f"{key}[{index}]", f"is no list of {len(columns)} ({' / '.join(c[0] for c in columns)})"
                )
        return table

    def _json(self, key: str) -> Any:
        value = self.fields.get(key)
        if isinstance(value, str):
            try:
                return json.loads(value)
            except json.JSONDecodeError as error:
                raise self.error(key, f"is a string, but no JSON ({error})") from error
        return value

    def _named(self, key: str, item: Mapping[str, Any], names: tuple[str, ...]) -> Any:
        for name in names:
            if name in item:
                return item[name]
        raise self.error(
            key, f"lacks {' or '.join(map(repr, names))} (it has {', '.join(map(str, item)) or 'nothing'})"
        )


def raw_rows(records: Iterable[Any], source: str) -> Iterator[RawRow]:
    """Number the records of ``source`` and check that each is an object."""
    for number, record in enumerate(records, 1):
        if not isinstance(record, Mapping):
            raise DataError(f"{source} row {number}: is {type(record).__name__}, expected an object with named fields")
        yield RawRow(f"{source} row {number}", {str(key).lower(): value for key, value in record.items()})


_OTHER_FORMATS = {
    b"\x1f\x8b": "packed with gzip",
    b"PK": "a zip archive",
    b"PAR1": "a Parquet file",
    b"BZh": "packed with bzip2",
    b"\xfd7zX": "packed with xz",
}
_HOLDERS = ("data", "rows", "questions", "examples", "instances")


def read_records(path: Path) -> list[Any]:
    """The records of a JSON list, of an object that holds one (``data``, ``rows``, ...), or of a JSON-lines file;
    which of them it is shows in its text, whatever its ending.

    Raises:
        DataError: The file cannot be read, or is none of them.
    """
    try:
        with path.open("rb") as stream:
            start = stream.read(4)
        for mark, kind in _OTHER_FORMATS.items():
            if start.startswith(mark):
                raise DataError(f"{path}: {kind}; give a JSON list or JSON lines, unpacked")
        content = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    try:
        if content.lstrip().startswith("["):
            return json.loads(content)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: not valid JSON, line {error.lineno}: {error.msg}") from error
    if content.lstrip().startswith("{") and (held := _held(content)) is not None:
        return held
    records = []
    for number, line in enumerate(content.split("\n"), 1):
        if not line.strip():
            continue
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            table = (
                "; a table (CSV, TSV) can't be read: make JSON lines of it" if number == 1 and line[:1] != "{" else ""
            )
            raise DataError(f"{path}: neither a JSON list nor JSON lines, line {number}: {error.msg}{table}") from error
    return records


def _held(content: str) -> list[Any] | None:
    """The records of one JSON object: the list that it holds, or itself where it holds none; None where it is none."""
    try:
        whole = json.loads(content)
    except json.JSONDecodeError:
        return None
    lists = [whole[key] for key in _HOLDERS if isinstance(whole.get(key), list)]
    return lists[0] if lists else [whole]
