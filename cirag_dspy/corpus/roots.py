"""Where the sources of an index come from: each folder or file that was read has a name there, and a place on the disk.

Sources are named relative to it, so that a folder that was moved is known again.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from cirag_dspy.corpus.ingest import TEXTS, Document, read_corpus, root_name, text_files
from cirag_dspy.corpus.store import Store
from cirag_dspy.errors import DataError
from cirag_dspy.files import printable

_KEY = "roots"
# Documents of a folder that are compared with those of one that is gone.
_COMPARED = 200
# A folder's sources: their names begin with its name and a slash, and they are no rows of a file.
_WITHIN = "(source >= ? || '/' AND source < ? || '0' AND (file IS NULL OR file LIKE '%/'))"


class Roots:
    """The roots of an index by name; the path of a folder ends with a slash.

    An index of before roots, whose sources were absolute paths, is taken over at once; ``renamed`` is the number of
    its sources then.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._placed: dict[Path, tuple[str, int]] = {}
        known = store.meta(_KEY)
        self.paths: dict[str, str] = {} if known is None else json.loads(str(known))
        self.renamed = 0 if known is not None or store.read_only else self._take_over()

    def name(self, document: Document) -> Document:
        """The document under the name that its root has in the index."""
        if document.root is None:
            return document
        if document.root not in self._placed:
            self._placed[document.root] = self._place(document.root), len(root_name(document.root))
        name, old = self._placed[document.root]
        file = None if document.file is None else name + document.file[old:]
        return replace(document, source=name + document.source[old:], file=file)

    def find(self, source: str) -> str:
        """The name in the index of a source that may be given by its path."""
        if source.rstrip("/") in self.paths:
            return source.rstrip("/")
        path = str(Path(source).resolve())
        for name, root in self.paths.items():
            if root.rstrip("/") == path:
                return name
            if root.endswith("/") and path.startswith(root):
                return f"{name}/{printable(path.removeprefix(root))}"
        return source

    def gone(self) -> list[str]:
        """The sources, or all of a root (``NAME/``), that are no longer on the disk; names, sorted."""
        return sorted(source for name, path in self.paths.items() for source in self._gone_of(name, path))

    def forget(self, name: str) -> None:
        """Drop a root that has no sources left."""
        if name in self.paths and not self._sources(name, 1):
            self._write({key: path for key, path in self.paths.items() if key != name})

    def _gone_of(self, name: str, path: str) -> Iterator[str]:
        if _is_gone(path):
            yield f"{name}/" if path.endswith("/") else name
        elif path.endswith("/"):
            closed: list[OSError] = []
            there = {f"{name}/{file}" for file, _ in text_files(Path(path), closed.append)}
            hidden = [f"{name}/{printable(os.path.relpath(str(error.filename), path))}/" for error in closed]
            if f"{name}/./" not in hidden:
                yield from (s for s in self._sources(name) if s not in there and not s.startswith(tuple(hidden)))

    def _sources(self, name: str, limit: int = -1) -> list[str]:
        rows = self._store.connection.execute(
            f"SELECT DISTINCT source FROM origins WHERE source = ? OR file = ? OR {_WITHIN} LIMIT ?",
            (name, name, name, name, limit),
        )
        return [source for (source,) in rows]

    # Naming

    def _place(self, root: Path) -> str:
        """The name of a root: its own, one within a known folder, that of a folder or file that was moved, or new."""
        is_folder = root.is_dir()
        path = f"{root}/" if is_folder else str(root)
        rows = not is_folder and root.suffix.lower() not in TEXTS
        for place in [root, *([] if rows else root.parents)]:
            inside = root.relative_to(place).as_posix()
            known = self._at(place)
            if known and inside == ".":
                if self.paths[known] != path:
                    self._write(self.paths | {known: path})
                return known
            if known and not any(part.startswith(".") for part in inside.split("/")):
                return f"{known}/{printable(inside)}"
        name = self._moved(path) or self._new_name(root, self.paths)
        self._write(self.paths | {name: path}, [name] if is_folder else [])
        return name

    def _at(self, place: Path) -> str | None:
        """The root at a place, in upper or lower case."""
        for name, path in self.paths.items():
            if path.rstrip("/") == str(place) or (
                Path(path).name.casefold() == place.name.casefold() and _same(path, place)
            ):
                return name
        return None

    def _moved(self, path: str) -> str | None:
        """The root that is gone and has the same content, or of a folder: the same name and files."""
        best: tuple[int, int, int] | None = None
        found = None
        for name, old in self.paths.items():
            same_name = Path(old).name == Path(path).name
            alike = (old.endswith("/") and path.endswith("/")) or (same_name and old[-1:] != "/" != path[-1:])
            if not alike or not _is_gone(old):
                continue
            compared, names, contents = self._shared(name, Path(path))
            if path.endswith("/") and same_name:
                moved = names > 0
            else:
                moved = contents > 0 and 2 * names >= min(compared, len(self._sources(name, _COMPARED)))
            score = (contents, names, _common_end(old, path))
            if moved and (best is None or score > best):
                best, found = score, name
        return found

    def _shared(self, name: str, path: Path) -> tuple[int, int, int]:
        """Documents looked at, those whose name a root has, and those with the same passages."""
        compared = names = contents = 0
        old = len(root_name(path))
        try:
            for document in islice(read_corpus(path, on_error=lambda error: None), _COMPARED):
                ids = [
                    id
                    for (id,) in self._store.connection.execute(
                        "SELECT p.content FROM origins o JOIN passages p ON p.key = o.passage WHERE o.source = ?",
                        (name + document.source[old:],),
                    )
                ]
                compared += 1
                names += bool(ids)
                contents += bool(ids) and {p.content for p in document.passages} <= set(ids)
        except DataError:
            pass
        return compared, names, contents

    def _new_name(self, root: Path, paths: dict[str, str]) -> str:
        first = printable(root.name) or "root"
        number, name = 1, first
        while name in paths or self._sources(name, 1):
            number += 1
            name = f"{first} ({number})"
        return name

    def _write(self, paths: dict[str, str], folders: Sequence[str] = ()) -> None:
        """Store roots; each of these folders takes over the roots within it."""
        with self._store.transaction() as connection:
            for name in folders:
                if name in paths:
                    paths = _absorb(connection, paths, name)
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_KEY, json.dumps(paths)))
        self.paths = paths

    # Taking over

    def _take_over(self) -> int:
        """Name the sources that are absolute paths; their passages are not touched."""
        select = "SELECT DISTINCT file FROM origins WHERE file LIKE '/%'"
        files = [file for (file,) in self._store.connection.execute(select)]
        select = "SELECT DISTINCT source FROM origins WHERE file IS NULL AND source LIKE '/%'"
        singles = [source for (source,) in self._store.connection.execute(select)]
        texts = [source for source in singles if Path(source).suffix.lower() in TEXTS]
        if not files and not texts:
            return 0
        renamed = 0
        paths: dict[str, str] = {}
        with self._store.transaction() as connection:
            for path in sorted([*files, *texts]):
                name = self._new_name(Path(path), paths)
                paths[name] = path
                start = name + "/" * path.endswith("/")
                file = start if path in files else None
                renamed += connection.execute(
                    "UPDATE OR REPLACE origins SET source = ? || substr(source, ?), file = ? "
                    + ("WHERE source = ? AND file IS NULL" if file is None else "WHERE file = ?"),
                    (start, len(path) + 1, file, path),
                ).rowcount
        self._write(paths, [name for name, path in paths.items() if path.endswith("/")])
        return renamed


def _absorb(connection: sqlite3.Connection, paths: dict[str, str], name: str) -> dict[str, str]:
    """Let a folder take over the roots within it, folders and texts; returns the roots that are left."""
    kept = {}
    for other, path in paths.items():
        inside = path.removeprefix(paths[name]).rstrip("/")
        hidden = any(part.startswith(".") for part in inside.split("/"))
        text = path.endswith("/") or Path(path).suffix.lower() in TEXTS
        if other == name or not path.startswith(paths[name]) or hidden or not text:
            kept[other] = path
            continue
        connection.execute(
            "UPDATE OR REPLACE origins SET source = ? || substr(source, ?), "
            f"file = CASE WHEN file IS NULL THEN NULL ELSE ? END WHERE source = ? OR {_WITHIN}",
            (f"{name}/{printable(inside)}", len(other) + 1, f"{name}/", other, other, other),
        )
    return kept


def _is_gone(path: str) -> bool:
    try:
        os.stat(path)  # noqa: PTH116 (a path that ends with a slash must be a folder)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _same(path: str, place: Path) -> bool:
    """Whether two spellings (upper and lower case) are one folder or file of the disk."""
    try:
        return place.samefile(path) and (path.endswith("/") or place.stat().st_nlink == 1)
    except OSError:
        return False


def _common_end(one: str, other: str) -> int:
    pairs = zip(reversed(Path(one).parts), reversed(Path(other).parts), strict=False)
    return next((number for number, (a, b) in enumerate(pairs) if a != b), 0)
