"""Names of the files of a saved program, hashes of its adapter, and the replacement of one program by another."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cirag_dspy.content import content_hash
from cirag_dspy.errors import RunError
from cirag_dspy.files import digest

META, PROGRAM, ADAPTER = "meta.json", "program.json", "adapter"
READER, EXTRACTION = "reader", "extraction"
FORMAT = 1
WEIGHTS = "adapter_model.safetensors"
ADAPTER_FILES = ("adapter_config.json", WEIGHTS, "training.json")

_STAGED, _PART = ".saved", ".saving-"
_STALE = 3600  # seconds after which a part that was left behind by a kill is removed


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Yield an empty folder for the files of a program; at the end they replace those of the program in ``folder``.

    The renaming of that folder decides: before it the old program counts, after it the new one, whose files need only
    be moved into their places. Whoever reads or saves next does that if this process can't.

    Raises:
        OSError: The folder can't be written; the old program stays.
    """
    finish(folder)
    for left in folder.glob(f"{_PART}*"):
        if time.time() - left.stat().st_mtime > _STALE:
            shutil.rmtree(left, ignore_errors=True)
    part = Path(tempfile.mkdtemp(prefix=_PART, dir=folder))
    try:
        yield part
        try:
            part.rename(folder / _STAGED)
        except OSError:  # another save was faster: it goes first
            finish(folder)
            part.rename(folder / _STAGED)
        finish(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def finish(folder: Path) -> None:
    """Move the files of a save that was interrupted into their places; safe to do again, and by several at once.

    Raises:
        OSError: The folder can't be written.
    """
    staged = folder / _STAGED
    if not staged.is_dir():
        return
    new = _files_of(staged)
    gone = [name for name in _files_of(folder) if name not in new] if new else []
    for weights in (Path(name) for name in new if name.endswith(WEIGHTS)):
        # While the weights wait here, so do all files of the adapter but its configuration: one that lacks is none.
        record = weights.with_name(ADAPTER_FILES[-1])
        if (staged / weights).is_file() and not (staged / record).is_file():
            gone.append(str(record))
    for name in gone:
        (folder / name).unlink(missing_ok=True)
    for name in reversed(new):
        _move(staged / name, folder / name)
    for place in (*filter(Path.is_dir, staged.glob("*")), *filter(Path.is_dir, folder.glob(f"{ADAPTER}*")), staged):
        with suppress(OSError):  # not empty
            place.rmdir()


def _files_of(folder: Path) -> list[str]:
    """The files of a program as its ``meta.json``, the first of them, names them; none where that can't be read."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        states = {Path(entry["file"]).name for entry in meta["programs"].values()}
        places = {Path(entry["adapter"]).name for entry in meta["lms"].values() if entry and entry.get("adapter")}
        return [META, *states, *(f"{place}/{name}" for place in places for name in reversed(ADAPTER_FILES))]
    return []


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    with suppress(FileNotFoundError):  # moved by another process, or not part of this adapter
        source.replace(target)


def adapter_hash(adapter: Path) -> str:
    """SHA-256 over the weights and their configuration."""
    return digest([hash_of(adapter / name) for name in ADAPTER_FILES[:2]])


def hash_of(file: Path) -> str:
    """SHA-256 of a file of a saved program.

    Raises:
        RunError: It can't be read.
    """
    try:
        return content_hash(file)
    except OSError as error:
        raise RunError(f"{file} can't be read: {error.strerror}; copy it there, or compile again") from None


def is_entry(entry: Any, **keys: type) -> bool:
    """Whether a value is an object with these keys of these types."""
    return isinstance(entry, dict) and all(isinstance(entry.get(key), kind) for key, kind in keys.items())
