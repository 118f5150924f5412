"""Text files as editors save them, files that are written whole or not at all, printable names, and hashes."""

from __future__ import annotations

import codecs
import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from glob import escape
from pathlib import Path
from threading import get_ident
from typing import Any

from cirag_dspy.errors import CiragError, RunError
from cirag_dspy.plain import dump

# Longest first: the mark of UTF-32 begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Control characters, line and paragraph separators, marks that turn the direction of a line, halves of characters.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def encoding_of(start: bytes) -> str:
    """The encoding of a text file by its first four bytes: that of its byte-order mark, UTF-8 without one."""
    return next((name for mark, name in _MARKS if start.startswith(mark)), "utf-8")


def read_text(path: Path, errors: str = "strict") -> str:
    """A text file as editors save it: UTF-8 with or without a byte-order mark, UTF-16 or UTF-32 with one.

    Line ends become line feeds.

    Raises:
        OSError: The file can't be read.
        UnicodeDecodeError: It is in another encoding, unless ``errors`` says what to do with its bytes then.
    """
    data = path.read_bytes()
    text = data.decode(encoding_of(data[:4]), errors).removeprefix("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def printable(name: str | os.PathLike[str]) -> str:
    """A path, or another name from outside, as one line of valid Unicode.

    Bytes that are not UTF-8 and control characters are escaped as Python does; what can be shown stays as it is.
    """
    return _UNPRINTABLE.sub(_escaped, os.fspath(name))


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    # A file name's byte that is not UTF-8 comes as half a character (PEP 383).
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else match[0].encode("unicode_escape").decode()


def path_problem(error: BaseException) -> str:
    """What is wrong with a path or a file, as one line that names it; empty for an error that is about neither.

    Paths raise more than `OSError`: a NUL byte or half a character is a `ValueError`, a loop of links or an unknown
    home folder a `RuntimeError`.
    """
    if isinstance(error, OSError):
        reason = error.strerror or str(error) or type(error).__name__
        return printable(f"{os.fsdecode(error.filename)}: {reason}" if _is_name(error.filename) else reason)
    told = str(error)
    of_paths = (
        (ValueError, "null byte", "a path can't hold a NUL byte"),
        (ValueError, "null character", "a path can't hold a NUL byte"),
        (RuntimeError, "Symlink loop", printable(told)),
        (RuntimeError, "determine home directory", "~ names no home folder here"),
    )
    if isinstance(error, UnicodeEncodeError) and "surrogates" in error.reason:
        return f"{printable(str(error.object))!r:.80} can't be written as UTF-8"
    return next((line for kind, part, line in of_paths if isinstance(error, kind) and part in told), "")


def _is_name(value: object) -> bool:
    return isinstance(value, str | bytes | os.PathLike)


@contextlib.contextmanager
def path_errors(kind: type[CiragError], where: object = "", advice: str = "") -> Iterator[None]:
    """Turn what is raised inside about a path or a file into an error of ours.

    Args:
        kind: The error to raise.
        where: Put before the reason, unless the reason names it itself.
        advice: Put behind it.
    """
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        problem = path_problem(error)
        if not problem:
            raise
        name = printable(str(where))
        lead = f"{name}: " if name and name not in problem else ""
        raise kind(f"{lead}{problem}{f'; {advice}' if advice else ''}") from None


def require_folder(folder: Path, advice: str = "name another folder") -> None:
    """Check that a folder is there and can be written to, or can be made; nothing is made.

    Raises:
        RunError: It can't; it ends with ``advice``.
    """
    with path_errors(RunError, folder, advice):
        for place in (folder, *folder.absolute().parents):
            try:
                mode = place.stat().st_mode
            except FileNotFoundError:
                if place.is_symlink():
                    raise RunError(f"{printable(folder)}: {printable(place)} is a link to nothing; {advice}") from None
                continue
            if not stat.S_ISDIR(mode):
                raise RunError(f"{printable(folder)}: {printable(place)} is no folder; {advice}")
            if not os.access(place, os.W_OK | os.X_OK):
                raise RunError(f"{printable(folder)}: nothing can be written in {printable(place)}; {advice}")
            return


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new path beside ``path`` to write to; it takes the place of ``path`` at the end, and is removed on an error.

    Who reads meanwhile, or after a kill, finds the old file or the new one. What kills left behind more than an hour
    ago is removed.
    """
    path = path.resolve() if path.is_symlink() else path  # a link stays one
    start = f".{path.name[:50]}."  # four bytes a letter at most, and a name has at most 255
    part = path.with_name(f"{start}{os.getpid()}-{get_ident()}.part")
    try:
        yield part
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    for left in path.parent.glob(f"{escape(start)}*.part"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > 3600:
                left.unlink()


def disk_problem(error: BaseException | None) -> str:
    """The part of an error, of any library, that says a file could not be written for want of room; "" if none does."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return error.strerror or str(error)
        # safetensors, torch and SQLite have errors of their own.
        if found := re.search(r"No space left on device|Disk quota exceeded|File too large|disk is full", str(error)):
            return found[0]
        if "PytorchStreamWriter failed writing" in str(error) or "unexpected pos" in str(error):
            return "the file could not be written whole"
        error = error.__cause__ or error.__context__
    return ""


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all, as ``replacing`` does.

    Half a character, which UTF-8 can't hold, is written as JSON escapes it.
    """
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write an object as JSON, its values made plain."""
    write_text(path, dump(value, indent=2) + "\n")


def write_lines(path: Path, values: Iterable[Any]) -> None:
    """Write values as JSON, made plain, one a line; the folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(dump(value) + "\n" for value in values))


def read_json(path: Path, advice: str) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        RunError: There is none; it ends with ``advice``, what to do then.
    """
    try:
        value = json.loads(read_text(path))
    except OSError as error:
        raise RunError(f"{path} can't be read: {error.strerror or error}; {advice}") from None
    except (ValueError, RecursionError):
        raise RunError(f"{path} is damaged: it is not JSON; {advice}") from None
    if not isinstance(value, dict):
        raise RunError(f"{path} is damaged: it holds no object; {advice}")
    return value


def sha256(path: Path) -> str:
    """Of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest(value: Any) -> str:
    """SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
