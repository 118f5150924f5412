"""Which source each passage comes from: adding, updating and removing sources."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cirag_dspy.corpus.ingest import Document
from cirag_dspy.corpus.store import NEW_TOKEN, Store
from cirag_dspy.errors import DataError
from cirag_dspy.schema import Passage

_LISTED = "IN (SELECT value FROM json_each(?))"


@dataclass
class AddReport:
    """Passages that an ``add`` inserted, found already there, deleted, and skipped for want of text."""

    added: int = 0
    unchanged: int = 0
    removed: int = 0
    skipped: int = 0


def start_run(store: Store) -> int:
    """Number of a new pass over a corpus: tells which rows of a file came again."""
    with store.transaction() as connection:
        run = 1 + int(store.meta("run") or 0)
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('run', ?)", (run,))
    return run


def put(store: Store, documents: Iterable[Document], run: int, report: AddReport) -> None:
    """Make each source hold exactly the passages given, in one transaction; ``report`` is added to.

    Raises:
        DataError: If an id or a source stands for two different texts.
    """
    with store.transaction() as connection:
        removed = report.removed
        for document in documents:
            _put(connection, document, run, report)
        if report.removed > removed:
            connection.execute(NEW_TOKEN)


def remove(store: Store, source: str) -> int:
    """Delete the passages of a source, or of all rows of a file, that no other source has; returns how many."""
    return _remove(store, "? IN (source, file)", (source,))


def prune(store: Store, file: str, run: int) -> int:
    """Delete the rows of a file that did not come in a run; returns the number of passages gone."""
    return _remove(store, "file = ? AND run < ?", (file, run))


def _remove(store: Store, condition: str, values: tuple[str | int, ...]) -> int:
    with store.transaction() as connection:
        rows = connection.execute(f"DELETE FROM origins WHERE {condition} RETURNING passage", values).fetchall()
        removed = _drop_orphans(connection, [key for (key,) in rows])
        if removed:
            connection.execute(NEW_TOKEN)
    return removed


def _drop_orphans(connection: sqlite3.Connection, keys: Sequence[int]) -> int:
    return connection.execute(
        f"DELETE FROM passages WHERE key {_LISTED} AND NOT EXISTS (SELECT 1 FROM origins WHERE passage = key)",
        (json.dumps(keys),),
    ).rowcount


def _put(connection: sqlite3.Connection, document: Document, run: int, report: AddReport) -> None:
    """Make one source hold exactly its passages: what is new is inserted, what it no longer has is deleted."""
    source = document.source
    stale = {
        id: (key, seen)
        for id, key, seen in connection.execute(
            "SELECT p.id, p.key, o.run FROM origins o JOIN passages p ON p.key = o.passage WHERE o.source = ?",
            (source,),
        )
    }
    for passage in document.passages:
        if not passage.text:
            report.skipped += 1
            continue
        content = Passage.create(passage.title, passage.sentences).id
        stale.pop(passage.id, None)
        row = connection.execute("SELECT key, content FROM passages WHERE id = ?", (passage.id,)).fetchone()
        if row and row[1] != content:
            other = connection.execute(
                "SELECT source FROM origins WHERE passage = ? AND (source != ? OR run = ?)", (row[0], source, run)
            ).fetchone()
            if other:
                raise DataError(
                    f"{source}: passage id {passage.id} is already that of another text in {other[0]}: "
                    "give each text an id of its own"
                )
            connection.execute("DELETE FROM passages WHERE key = ?", (row[0],))
            report.removed += 1
            row = None
        if row:
            report.unchanged += 1
            key = row[0]
        else:
            report.added += 1
            sentences = json.dumps(passage.sentences, ensure_ascii=False)
            key = connection.execute(
                "INSERT INTO passages (id, content, title, sentences) VALUES (?, ?, ?, ?)",
                (passage.id, content, passage.title, sentences),
            ).lastrowid
        connection.execute(
            "INSERT OR REPLACE INTO origins (source, passage, file, run) VALUES (?, ?, ?, ?)",
            (source, key, document.file, run),
        )
    if any(seen == run for _, seen in stale.values()):
        raise DataError(f"{source}: comes twice in one corpus with different texts: give each source a name of its own")
    keys = [key for key, _ in stale.values()]
    connection.execute(f"DELETE FROM origins WHERE source = ? AND passage {_LISTED}", (source, json.dumps(keys)))
    report.removed += _drop_orphans(connection, keys)
