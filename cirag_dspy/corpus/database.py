"""The SQLite file behind an index: its tables, its connections, its transactions."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cirag_dspy.errors import CorpusIndexError

_SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS passages (
  key INTEGER PRIMARY KEY AUTOINCREMENT,  -- the FAISS id; never used twice
  id TEXT NOT NULL UNIQUE,
  content TEXT NOT NULL,                  -- hash of title and text: tells whether a given id means the same text
  title TEXT NOT NULL,
  sentences TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'done', 'empty', 'failed')),
  error TEXT NOT NULL DEFAULT '',
  dropped INTEGER NOT NULL DEFAULT 0,
  vector BLOB
);
CREATE INDEX IF NOT EXISTS passages_state ON passages (state);
CREATE INDEX IF NOT EXISTS passages_bare ON passages (key) WHERE vector IS NULL;
CREATE TABLE IF NOT EXISTS origins (
  source TEXT NOT NULL,
  passage INTEGER NOT NULL REFERENCES passages ON DELETE CASCADE,
  file TEXT,
  run INTEGER NOT NULL,
  PRIMARY KEY (source, passage)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS origins_passage ON origins (passage);
CREATE INDEX IF NOT EXISTS origins_file ON origins (file, run);
CREATE TABLE IF NOT EXISTS triples (
  key INTEGER PRIMARY KEY,
  passage INTEGER NOT NULL REFERENCES passages ON DELETE CASCADE,
  position INTEGER NOT NULL,
  sentence INTEGER NOT NULL,
  head TEXT NOT NULL,
  relation TEXT NOT NULL,
  tail TEXT NOT NULL,
  vector BLOB,
  UNIQUE (passage, head, relation, tail)
);
CREATE INDEX IF NOT EXISTS triples_bare ON triples (key) WHERE vector IS NULL;
"""
# Apart from the passages, so that an index made before there was this table only needs it added. A passage that is
# "done" there and has ``room`` here is cut: its reply ended at that many tokens.
_TRIES = """CREATE {kind} TABLE IF NOT EXISTS tries (
  passage INTEGER PRIMARY KEY {reference},
  useless INTEGER NOT NULL DEFAULT 0,     -- runs in which the LM listed no triple
  room INTEGER NOT NULL DEFAULT 0         -- tokens of the reply that was cut
);"""
_OWN_TRIES = _TRIES.format(kind="", reference="REFERENCES passages ON DELETE CASCADE")
_NO_TRIES = _TRIES.format(kind="TEMP", reference="")


def _advice(error: sqlite3.Error) -> str:
    if "full" in str(error) or "disk I/O" in str(error):
        return "free some room, then run the same again"
    if "locked" in str(error):
        return "wait until the other program is done with it"
    return "build it again"


class Database:
    """One connection per thread, one writer at a time; a committed transaction survives kill -9.

    Args:
        path: The file.
        create: Whether to make it where it is missing.
        read_only: Whether its folder cannot be written to. Transactions then raise.

    Raises:
        CorpusIndexError: If the file is missing or is no database of ours.
    """

    def __init__(self, path: Path, *, create: bool = False, read_only: bool = False) -> None:
        self.path = path
        self.read_only = read_only
        self._local = threading.local()
        self._writing = threading.RLock()
        self.closed = False
        if not create and not path.is_file():
            raise CorpusIndexError(f"index {path.parent} has no {path.name}: build it again")
        try:
            if create:
                self.connection.executescript(_SCHEMA)
            if not read_only and path.is_file():
                self.connection.executescript(_OWN_TRIES)
            tables = {name for (name,) in self.connection.execute("SELECT name FROM sqlite_master")}
        except sqlite3.Error as error:
            self.close()
            damaged = not isinstance(error, sqlite3.OperationalError)
            what = f"{path.name} is damaged" if damaged else f"{path.name} can't be opened"
            raise CorpusIndexError(f"index {path.parent}: {what} ({error}): {_advice(error)}") from error
        if not {"meta", "passages", "origins", "triples"} <= tables:
            self.close()
            raise CorpusIndexError(f"index {path.parent}: {path.name} lacks its tables: build it again")

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection of this thread."""
        if self.closed:
            raise CorpusIndexError(f"index {self.path.parent} is closed: open it again")
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            uri = self.path.resolve().as_uri()
            if self.read_only:
                wal = self.path.with_name(self.path.name + "-wal")
                # Without a log to share, SQLite need not create files beside the database.
                uri += "?mode=ro" if wal.exists() and wal.stat().st_size else "?mode=ro&immutable=1"
            connection = sqlite3.connect(uri, uri=True, timeout=60, isolation_level=None)
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA synchronous = NORMAL")
            if self.read_only and not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tries'").fetchone():
                connection.execute(_NO_TRIES)  # an old index: nothing is known, and nothing can be added to the file
            self._local.connection = connection
        return connection

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing.

        Raises:
            CorpusIndexError: If the file cannot be written: read-only folder, full disk, another program at it.
        """
        self.require_writable()
        with self._writing:
            connection = self.connection
            if connection.in_transaction:  # within one of this thread
                yield connection
                return
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise CorpusIndexError(
                    f"index {self.path.parent} could not be written ({error}): {_advice(error)}"
                ) from error
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def require_writable(self) -> None:
        """Raise CorpusIndexError where nothing can be written."""
        if self.read_only:
            raise CorpusIndexError(f"index {self.path.parent} cannot be written to: copy it to a folder that can")

    def meta(self, key: str) -> str | int | None:
        """A value of the index as a whole."""
        row = self.connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def close(self) -> None:
        """Refuse further work, and close the connection of this thread; the others close as their threads end.

        Closing one that a thread is using would crash the process.
        """
        self.closed = True
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
