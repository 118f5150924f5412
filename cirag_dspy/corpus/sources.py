"""Which source each passage comes from: adding, updating and removing sources."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cirag_dspy.corpus.ingest import Document, OnError
from cirag_dspy.corpus.store import NEW_TOKEN, Store
from cirag_dspy.errors import DataError
from cirag_dspy.schema import Passage

_LISTED = "IN (SELECT value FROM json_each(?))"
# Sources whose names begin with that of a folder; `_under` gives the two values.
_UNDER = "(source >= ? AND source < ?)"


@dataclass
class AddReport:
    """Passages that an ``add`` inserted, found already there, deleted, and skipped for want of text."""

    added: int = 0
    unchanged: int = 0
    removed: int = 0
    skipped: int = 0

    def include(self, other: AddReport) -> None:
        """Add the counts of another report."""
        for name, number in vars(other).items():
            setattr(self, name, getattr(self, name) + number)


def listed(store: Store) -> Iterator[tuple[str, int]]:
    """The sources, of rows their file, with the number of their passages, sorted."""
    yield from store.connection.execute(
        "SELECT CASE WHEN file IS NULL OR file LIKE '%/' THEN source ELSE file END AS name, count(DISTINCT passage) "
        "FROM origins GROUP BY name ORDER BY name"
    )


def of_passages(store: Store, ids: Iterable[str]) -> dict[str, list[str]]:
    """The sources of passages by id."""
    found: dict[str, list[str]] = {}
    rows = store.connection.execute(
        "SELECT p.id, o.source FROM passages p JOIN origins o ON o.passage = p.key "
        f"WHERE p.id {_LISTED} ORDER BY o.source",
        (json.dumps(list(ids)),),
    )
    for id, source in rows:
        found.setdefault(id, []).append(source)
    return found


def start_run(store: Store) -> int:
    """Number of a new pass over a corpus: tells which rows of a file came again."""
    with store.transaction() as connection:
        run = 1 + int(store.meta("run") or 0)
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('run', ?)", (run,))
    return run


def put(
    store: Store, documents: Iterable[Document], run: int, report: AddReport, on_error: OnError | None = None
) -> list[str]:
    """Make each source hold exactly the passages given, in one transaction; ``report`` is added to.

    Args:
        store: The store of the index.
        documents: Sources with their passages.
        run: Number of this pass over the corpus.
        report: Counts of it.
        on_error: Called with the error of a document that is then passed over; None raises it.

    Returns:
        The sources that stay as they were, though they may not have come.

    Raises:
        DataError: If an id or a source stands for two different texts.
    """
    kept = []
    with store.transaction() as connection:
        removed = report.removed
        for document in documents:
            if document.unread:
                kept.append(document.source)
                continue
            connection.execute("SAVEPOINT document")
            try:
                report.include(_put(connection, document, run))
            except DataError as error:
                if on_error is None:
                    raise
                connection.execute("ROLLBACK TO document")
                on_error(error)
            connection.execute("RELEASE document")
        if report.removed > removed:
            connection.execute(NEW_TOKEN)
    return kept


def remove(store: Store, source: str) -> int:
    """Delete the passages of a source, of all rows of a file, or of all files of a folder, that no other source has.

    Returns:
        The number of passages deleted.
    """
    return _remove(store, f"source = ? OR file = ? OR {_UNDER}", (source, source, *_under(source)))


def prune(store: Store, file: str, run: int, kept: Sequence[str] = ()) -> int:
    """Delete the rows of a file, or the files of a folder, that did not come in a run and are not to be kept.

    Returns:
        The number of passages deleted.
    """
    if file in kept:
        return 0
    inside, values = "file = ?", [file]
    if file.endswith("/"):
        inside, values = f"{_UNDER} AND (file IS NULL OR file LIKE '%/')", list(_under(file))
    return _remove(
        store,
        f"{inside} AND run < ? AND NOT EXISTS (SELECT 1 FROM json_each(?) WHERE value IN (source, file) "
        "OR (value LIKE '%/' AND substr(source, 1, length(value)) = value))",
        (*values, run, json.dumps(kept)),
    )


def _under(folder: str) -> tuple[str, str]:
    """Bounds of the names within a folder: behind the slash comes the digit 0."""
    return folder.rstrip("/") + "/", folder.rstrip("/") + "0"


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


def _put(connection: sqlite3.Connection, document: Document, run: int) -> AddReport:
    """Make one source hold exactly its passages: what is new is inserted, what it no longer has is deleted."""
    source, report = document.source, AddReport()
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
        id, key = _find(connection, passage, source, run, report)
        stale.pop(id, None)
        if key is None:
            report.added += 1
            sentences = json.dumps(passage.sentences, ensure_ascii=False)
            key = connection.execute(
                "INSERT INTO passages (id, content, title, sentences) VALUES (?, ?, ?, ?)",
                (id, passage.content, passage.title, sentences),
            ).lastrowid
        else:
            report.unchanged += 1
        connection.execute(
            "INSERT OR REPLACE INTO origins (source, passage, file, run) VALUES (?, ?, ?, ?)",
            (source, key, document.file, run),
        )
    if any(seen == run for _, seen in stale.values()):
        raise DataError(f"{source}: comes twice in one corpus with different texts: give each source a name of its own")
    keys = [key for key, _ in stale.values()]
    connection.execute(f"DELETE FROM origins WHERE source = ? AND passage {_LISTED}", (source, json.dumps(keys)))
    report.removed += _drop_orphans(connection, keys)
    return report


def _find(
    connection: sqlite3.Connection, passage: Passage, source: str, run: int, report: AddReport
) -> tuple[str, int | None]:
    """The id that a passage of a source has in the index, and its key if it is there with the same text.

    Ids are those of a source: where a passage of another one has the same id and another text, the id is
    ``SOURCE#ID``. A passage of the source itself from an earlier run makes way.
    """
    own = source if source.endswith(f"#{passage.id}") else f"{source}#{passage.id}"
    for id in (own, passage.id):
        row = connection.execute("SELECT key, content FROM passages WHERE id = ?", (id,)).fetchone()
        if row and row[1] == passage.content:
            return id, row[0]
        if row is None:
            continue
        other = connection.execute(
            "SELECT source FROM origins WHERE passage = ? AND (source != ? OR run = ?) ORDER BY source = ? DESC",
            (row[0], source, run, source),
        ).fetchone()
        if other is None:
            connection.execute("DELETE FROM passages WHERE key = ?", (row[0],))
            report.removed += 1
            return id, None
        if other[0] == source:
            raise DataError(
                f"{source}: passage id {passage.id} is already that of another text: give each text an id of its own"
            )
        return own, None
    return passage.id, None
