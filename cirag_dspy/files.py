"""Files that are written whole or not at all, and hashes of what is in them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cirag_dspy.errors import RunError


def write_text(path: Path, text: str) -> None:
    """Write a text file; who reads meanwhile, or after a kill, finds the old one or the new one."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write an object as JSON."""
    write_text(path, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def write_lines(path: Path, values: Iterable[Any]) -> None:
    """Write values as JSON, one a line; the folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values))


def read_json(path: Path, advice: str) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        RunError: There is none; it ends with ``advice``, what to do then.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
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
