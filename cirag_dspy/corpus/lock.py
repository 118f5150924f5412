"""One writer at a time for an index: a lock on its folder that ends with the process that holds it."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock

from cirag_dspy.errors import CorpusIndexError, IndexInUseError

NAME = "writer.lock"
_TAKEN = (errno.EAGAIN, errno.EACCES)


class WriterLock:
    """Excludes other writers of a folder, in this process and others; readers need no lock.

    It is an advisory ``flock`` on a file in the folder. The system gives it back when the process ends, even by kill
    -9; the file says who holds it and is removed at the end. On NFS it holds between machines where the server has
    locks (Linux since 2.6.12); SQLite, which keeps the index, is safe there for one machine at a time only.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._threads = RLock()
        self._depth = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock; a thread that holds it may do so again, other threads of this object wait for it.

        Raises:
            IndexInUseError: Another holds it, named with its process, host and time.
            CorpusIndexError: The folder can't be written, or its file system has no locks.
        """
        with self._threads:
            if self._depth:
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1
                return
            file = self._take()
            self._depth = 1
            try:
                yield
            finally:
                self._depth = 0
                with suppress(OSError):
                    (self._folder / NAME).unlink()
                os.close(file)

    def _take(self) -> int:
        import fcntl  # not at import: there is none on Windows

        path = self._folder / NAME
        while True:
            try:
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise CorpusIndexError(
                    f"index {self._folder} cannot be written to ({error.strerror}): copy it to a folder that can"
                ) from error
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(file, path):
                    os.truncate(file, 0)
                    os.pwrite(file, _me(), 0)
                    return file
                os.close(file)  # its former holder removed it between our two steps
            except OSError as error:
                holder = _holder(file)
                os.close(file)
                if error.errno in _TAKEN:
                    raise IndexInUseError(f"index {self._folder} is in use by {holder}: wait until it ends") from None
                raise CorpusIndexError(
                    f"index {self._folder} can't be locked ({error.strerror}): free room, or move it to a local disk"
                ) from error


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False


def _me() -> bytes:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return json.dumps({"process": os.getpid(), "host": socket.gethostname(), "since": now}).encode()


def _holder(file: int) -> str:
    """Who wrote the file, in words. It is empty for the moment between locking and writing."""
    try:
        said = json.loads(os.pread(file, 1000, 0))
        return f"process {int(said['process'])} on {str(said['host'])[:100]} since {str(said['since'])[:40]}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
