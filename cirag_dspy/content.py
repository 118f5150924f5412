"""Hashes of large files: every byte counts, and is read once."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from cirag_dspy.files import sha256, write_json
from cirag_dspy.paths import cache_dir

_SMALL = 2**20  # bytes: not worth remembering
_SETTLED = 2.0  # seconds: a file changed later than this before it was hashed may change again within one clock tick
_EDGE = 2**20
_HEX = re.compile(r"[0-9a-f]{12,64}")
_FORMER: dict[str, str] = {}


def content_hash(path: Path) -> str:
    """SHA-256 of a file, read whole.

    The hash of a large file is kept in the cache folder with the file's size, times and inode, and is computed again
    when any of these changes. The time of the last change of the inode is among them, which a program that rewrites a
    file in place can't set back.
    """
    path = path.resolve()
    before = _state(path)
    if before[0] < _SMALL:
        return sha256(path)
    note = cache_dir() / "hashes" / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}.json"
    if known := _noted(note, before):
        return known
    found = sha256(path)
    if _state(path) == before and time.time() - max(before[1:3]) / 1e9 > _SETTLED:
        try:
            note.parent.mkdir(parents=True, exist_ok=True)
            write_json(note, {"file": path.name, "state": before, "sha256": found})
        except (OSError, ValueError):
            pass  # a cache that can't be written costs time only
    return found


def _state(path: Path) -> list[int]:
    """Size, times of the last change of content and inode, inode and device."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev]


def _noted(note: Path, state: list[int]) -> str | None:
    try:
        kept = json.loads(note.read_bytes())
        if kept["state"] == state and re.fullmatch("[0-9a-f]{64}", kept["sha256"]):
            return str(kept["sha256"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass  # none, or a damaged one
    return None


def edges(path: Path) -> bytes:
    """The first and last MiB of a file, all that earlier versions hashed of large weights."""
    with path.open("rb") as stream:
        first = stream.read(_EDGE)
        stream.seek(max(0, path.stat().st_size - _EDGE))
        return first + stream.read()


def remember_former(now: str, before: str) -> None:
    """Note what a hash was called by earlier versions, which hashed a sample of the bytes or fewer files."""
    if now != before:
        _FORMER[now] = before


def former(text: str) -> str:
    """A text with each hash that this process computed as earlier versions wrote it."""
    return _HEX.sub(lambda found: _FORMER.get(found[0], found[0]), text)


def same_content(known: object, now: str | None) -> bool:
    """Whether a recorded hash (or a text with some) is that of now, whichever version recorded it."""
    return known == now or (isinstance(known, str) and now is not None and known == former(now))


def combined(files: Iterable[tuple[str, Path]]) -> str:
    """SHA-256 over names and contents of files."""
    digest = hashlib.sha256()
    for name, file in files:
        digest.update(f"{name}\0{content_hash(file)}\0".encode())
    return digest.hexdigest()
