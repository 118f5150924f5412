"""Files to documents: folders of text, JSON Lines, JSON and DPR's TSV, read as a stream."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cirag_dspy.errors import DataError
from cirag_dspy.files import path_errors
from cirag_dspy.schema import Passage
from cirag_dspy.text import split_sentences

PASSAGE_WORDS = 120
TEXT_FIELDS = ("text", "paragraph_text", "contents")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$", re.MULTILINE)
_ROW = "a row is {title?, text | paragraph_text | contents, id?}"


@dataclass(frozen=True)
class Document:
    """A source of the corpus (a file, or a row of one) and all its passages, in order.

    ``file`` names the file that the source is a row of, or the folder that it is a file of: once that was read to its
    end, sources that did not come again leave the index. Sources without one are only replaced or removed by name.
    """

    source: str
    passages: tuple[Passage, ...]
    file: str | None = None


@path_errors(DataError)
def read_corpus(path: str | Path) -> Iterator[Document]:
    """Documents of a corpus, in a fixed order.

    * A folder: its ``.txt`` and ``.md`` files at any depth; hidden files and links that lead outside are passed over.
      The title is the first heading (``.md``) or the file's stem.
    * One ``.txt`` or ``.md`` file.
    * ``.jsonl``, ``.json`` (a list) or ``.tsv`` (DPR: ``id, text, title``): a row is a passage, never cut; its id is
      the row's id, or without one the hash of title and text.

    Sources are absolute paths, so that two folders or files of one name stay apart; that of a row is ``PATH#ID``.

    Running text is cut into passages of whole sentences of about 120 words.

    Raises:
        DataError: If there is nothing to read, or a file or row is not as it should be; it names file and line.
    """
    path = Path(path)
    if path.is_dir():
        files = list(_text_files(path))
        if not files:
            raise DataError(f"{path}: no .txt or .md file in this folder: name a folder of texts, or a .jsonl file")
        root = path.resolve()
        return (_text_document(file, f"{root}/{file.relative_to(path).as_posix()}", f"{root}/") for file in files)
    if not path.is_file():
        raise DataError(f"{path}: no such file or folder")
    if path.suffix.lower() in {".txt", ".md"}:
        return iter([_text_document(path, str(path.resolve()))])
    if path.suffix.lower() in _READERS:
        return _row_documents(path)
    raise DataError(f"{path}: not a corpus that can be read: name a folder, or a .txt, .md, .jsonl, .json or .tsv file")


def cut(text: str, words: int = PASSAGE_WORDS) -> list[list[str]]:
    """Running text as passages: lists of whole sentences of at most ``words`` words together.

    Paragraphs (set apart by blank lines) stay whole where they fit. A sentence that is too long alone, as in a list or
    a table without full stops, is cut between words.
    """
    passages: list[list[str]] = [[]]
    filled = 0
    for paragraph in re.split(r"\n\s*\n", text):
        sentences = [piece for sentence in split_sentences(paragraph) for piece in _pieces(sentence, words)]
        if filled and filled + sum(map(_size, sentences)) > words:
            passages.append([])
            filled = 0
        for sentence in sentences:
            if filled and filled + _size(sentence) > words:
                passages.append([])
                filled = 0
            passages[-1].append(sentence)
            filled += _size(sentence)
    return [passage for passage in passages if passage]


def _size(sentence: str) -> int:
    """Length in words; text of scripts without blanks counts by its letters."""
    return max(len(sentence.split()), len(sentence) // 8)


def _pieces(sentence: str, words: int) -> Iterator[str]:
    parts = sentence.split()
    if len(parts) <= words:
        yield sentence
        return
    for start in range(0, len(parts), words):
        yield " ".join(parts[start : start + words])


def other_files(folder: Path) -> list[str]:
    """Files of a folder that ``read_corpus`` passes over for their kind, hidden ones left out."""
    taken = set(_text_files(folder))
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path not in taken and not any(p.startswith(".") for p in path.relative_to(folder).parts)
    )


def _text_files(folder: Path) -> Iterator[Path]:
    root = folder.resolve()
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(parent, name)
            if name.startswith(".") or file.suffix.lower() not in {".txt", ".md"} or not file.is_file():
                continue
            if file.resolve().is_relative_to(root):
                yield file


def _text_document(path: Path, source: str, folder: str | None = None) -> Document:
    text = _decode(path.read_bytes(), str(path))
    title = path.stem
    if path.suffix.lower() == ".md":
        heading = _HEADING.search(text)
        if heading and heading[1]:
            title = heading[1]
            text = text[: heading.start()] + text[heading.end() :]
        text = _HEADING.sub(r"\n\n\1\n\n", text)
    return Document(source, tuple(Passage.create(title, sentences) for sentences in cut(text)), folder)


def _row_documents(path: Path) -> Iterator[Document]:
    for where, row in _READERS[path.suffix.lower()](path):
        passage = _row_passage(row, where)
        yield Document(f"{path.resolve()}#{passage.id}", (passage,), str(path.resolve()))


def _row_passage(row: Any, where: str) -> Passage:
    if not isinstance(row, dict):
        raise DataError(f"{where}: not an object: {_ROW}")
    field = next((name for name in TEXT_FIELDS if row.get(name) is not None), None)
    if field is None:
        raise DataError(f"{where}: no text among {', '.join(map(str, row)) or 'no fields'}: {_ROW}")
    text, title, id = row[field], row.get("title"), row.get("id")
    if isinstance(text, list) and all(isinstance(sentence, str) for sentence in text):
        text = tuple(text)
    elif not isinstance(text, str):
        raise DataError(f"{where}: {field} is neither a string nor a list of sentences: {_ROW}")
    elif field == "contents" and not title and "\n" in text:
        # Pyserini and FlashRAG put the title, often in quotes, on the first line of the contents.
        title, text = text.split("\n", 1)
        title = title.strip().strip('"')
    if not isinstance(title, str | None) or not isinstance(id, str | int | None):
        raise DataError(f"{where}: title must be a string, id a string or an integer: {_ROW}")
    return Passage.create(title or "", text, None if id is None else str(id))


def _jsonl(path: Path) -> Iterator[tuple[str, Any]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            where = f"{path}:{number}"
            text = _decode(line, where).strip()
            if text:
                yield where, _parse(text, where)


def _json(path: Path) -> Iterator[tuple[str, Any]]:
    rows = _parse(_decode(path.read_bytes(), str(path)), str(path))
    if not isinstance(rows, list):
        raise DataError(f"{path}: not a list of rows: {_ROW}")
    for number, row in enumerate(rows, 1):
        yield f"{path}: row {number}", row


def _tsv(path: Path) -> Iterator[tuple[str, Any]]:
    with path.open("rb") as lines:
        rows = csv.reader((_decode(line, f"{path}:{n}") for n, line in enumerate(lines, 1)), delimiter="\t")
        try:
            for row in rows:
                where = f"{path}:{rows.line_num}"
                if rows.line_num == 1 and row[:2] == ["id", "text"]:
                    continue
                if len(row) not in {2, 3}:
                    raise DataError(f"{where}: {len(row)} columns: a row is id, text and title, between tabs")
                yield where, dict(zip(("id", "text", "title"), row, strict=False))
        except csv.Error as error:
            raise DataError(f"{path}:{rows.line_num}: {error}: a row is id, text and title, between tabs") from error


def _decode(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: not UTF-8 (byte {error.start}): convert the file, e.g. with iconv -t utf-8"
        ) from error


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{where}: not JSON ({error}): {_ROW}") from error


_READERS: dict[str, Callable[[Path], Iterator[tuple[str, Any]]]] = {".jsonl": _jsonl, ".json": _json, ".tsv": _tsv}
