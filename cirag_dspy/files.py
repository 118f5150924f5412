"""Text files as editors save them, files that are written whole or not at all, printable names, and hashes."""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cirag_dspy.errors import RunError
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
    """The encoding of a text file by its first four bytes: that of its byte-order mark, UTF-8 without one.

    Decoding with it leaves the mark out.
    """
    return next((name for mark, name in _MARKS if start.startswith(mark)), "utf-8-sig")


def read_text(path: Path, errors: str = "strict") -> str:
    """A text file as editors save it: UTF-8 with or without a byte-order mark, UTF-16 or UTF-32 with one.

    Line ends become line feeds.

    Raises:
        OSError: The file can't be read.
        UnicodeDecodeError: It is in another encoding, unless ``errors`` says what to do with its bytes then.
    """
    data = path.read_bytes()
    return data.decode(encoding_of(data[:4]), errors).replace("\r\n", "\n").replace("\r", "\n")


def printable(name: str | os.PathLike[str]) -> str:
    """A path, or another name from outside, as one line of valid Unicode.

    Bytes that are not UTF-8 and control characters are escaped as Python does; what can be shown stays as it is.
    """
    return _UNPRINTABLE.sub(_escaped, os.fspath(name))


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    # A file name's byte that is not UTF-8 comes as half a character (PEP 383).
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else match[0].encode("unicode_escape").decode()


def write_text(path: Path, text: str) -> None:
    """Write a text file; who reads meanwhile, or after a kill, finds the old one or the new one."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


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
        raise RunError(f"{path} can't be read: {error.strerror}; {advice}") from None
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
