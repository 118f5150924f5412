"""Files of rows, a passage each: JSON Lines, JSON, and tab-separated values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from cirag_dspy.errors import DataError
from cirag_dspy.files import encoding_of, printable, read_text
from cirag_dspy.schema import Passage

TEXT_FIELDS = ("text", "paragraph_text", "contents")
_ROW = "a row is {title?, text | paragraph_text | contents, id?}"
_COLUMNS = ("id", "text", "title")
# A field as programs for tables write it where it holds a quote: in quotes, those inside doubled.
_QUOTED = re.compile(r'"(?:[^"]|"")*"')


def read_rows(path: Path) -> Iterator[Passage | DataError]:
    """The rows of a file as passages with the row's id, or without one the hash of title and text.

    ``.jsonl``: an object a line; ``.json``: a list of them; ``.tsv``: a row a line, its columns id, text and title, or
    as the first line names them. Nothing is quoted in a ``.tsv``, so a tab in a text is an error; only a field that is
    in quotes as a whole and doubles those inside (DPR's passages) is taken out of them.

    A row that cannot be read comes as the error that says where (``FILE:LINE``) and why; the rows behind it follow.

    Raises:
        DataError: If the file as a whole cannot be read.
    """
    try:
        for where, row in READERS[path.suffix.lower()](path):
            try:
                yield row if isinstance(row, DataError) else _passage(row, where)
            except DataError as error:
                yield error
    except OSError as error:
        raise DataError(f"{printable(path)}: cannot be read: {error.strerror}") from error


def not_text(where: str, error: UnicodeDecodeError) -> DataError:
    """What to say of a text in another encoding."""
    return DataError(
        f"{where}: not {error.encoding.upper()} (byte {error.start}): convert the file, e.g. with iconv -t utf-8"
    )


def _passage(row: Any, where: str) -> Passage:
    if not isinstance(row, dict):
        raise DataError(f"{where}: not an object: {_ROW}")
    field = next((name for name in TEXT_FIELDS if row.get(name) is not None), None)
    if field is None:
        raise DataError(f"{where}: no text among {', '.join(map(printable, row)) or 'no fields'}: {_ROW}")
    text, title, id = row[field], row.get("title"), row.get("id")
    if isinstance(text, list) and all(isinstance(sentence, str) for sentence in text):
        text = tuple(text)
    elif not isinstance(text, str):
        raise DataError(f"{where}: {field} is neither a string nor a list of sentences: {_ROW}")
    elif field == "contents" and not title and "\n" in text:
        # Pyserini and FlashRAG put the title, often in quotes, on the first line of the contents.
        title, text = text.split("\n", 1)
        title = title.strip().strip('"')
    if not isinstance(title, str | None) or not isinstance(id, str | int | None) or isinstance(id, bool):
        raise DataError(f"{where}: title must be a string, id a string or an integer: {_ROW}")
    return Passage.create(title or "", text, None if id is None else printable(str(id)))


def _lines(path: Path) -> Iterator[tuple[str, str | DataError]]:
    """The lines of a file with their places, or why one is no text; a line ends with a line feed."""
    name = printable(path)
    with path.open("rb") as file:
        encoding = encoding_of(file.read(4))
        file.seek(0)
        if encoding != "utf-8":
            try:
                lines = read_text(path).split("\n")
            except UnicodeDecodeError as error:
                raise not_text(name, error) from error
            yield from ((f"{name}:{number}", line) for number, line in enumerate(lines, 1))
            return
        for number, data in enumerate(file, 1):
            where = f"{name}:{number}"
            try:
                yield where, data.decode().removeprefix("\ufeff").removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError as error:
                yield where, not_text(where, error)


def _jsonl(path: Path) -> Iterator[tuple[str, Any]]:
    for where, line in _lines(path):
        if isinstance(line, DataError):
            yield where, line
        elif line.strip():
            try:
                yield where, _parse(line, where)
            except DataError as error:
                yield where, error


def _json(path: Path) -> Iterator[tuple[str, Any]]:
    name = printable(path)
    try:
        rows = _parse(read_text(path), name)
    except UnicodeDecodeError as error:
        raise not_text(name, error) from error
    if not isinstance(rows, list):
        raise DataError(f"{name}: not a list of rows: {_ROW}")
    for number, row in enumerate(rows, 1):
        yield f"{name}: row {number}", row


def _tsv(path: Path) -> Iterator[tuple[str, Any]]:
    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        return
    columns = _header(first[1])
    for where, line in lines if columns else chain([first], lines):
        if isinstance(line, DataError):
            yield where, line
            continue
        if not line.strip():
            continue
        fields = line.split("\t")
        known = columns or _COLUMNS
        if len(fields) != len(known) and (columns or len(fields) != 2):
            more = ": a text holds no tab" if len(fields) > len(known) else ""
            yield where, DataError(f"{where}: {len(fields)} columns: a row is {', '.join(known)}, between tabs{more}")
            continue
        row = dict(zip(known, map(_unquoted, fields), strict=False))
        yield where, {name: field for name, field in row.items() if field or name != "id"}


def _header(line: str | DataError) -> tuple[str, ...]:
    """The columns that a first line names, if it does."""
    names = [] if isinstance(line, DataError) else [name.strip(' "').lower() for name in line.split("\t")]
    given = tuple({"pid": "id", "_id": "id"}.get(name, name) for name in names)
    named = len(set(given)) == len(given) > 1 and set(given) <= {*_COLUMNS, *TEXT_FIELDS}
    return given if named and set(given) & set(TEXT_FIELDS) else ()


def _unquoted(field: str) -> str:
    if '""' in field[1:-1] and _QUOTED.fullmatch(field):
        return field[1:-1].replace('""', '"')
    return field


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON ({error}): {_ROW}") from error


READERS: dict[str, Callable[[Path], Iterator[tuple[str, Any]]]] = {".jsonl": _jsonl, ".json": _json, ".tsv": _tsv}
