"""Where the package keeps what it can make again: converted weights and indexes of benchmarks."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """``$CIRAG_DSPY_CACHE``, else ``cirag-dspy`` in the user's cache folder. Not created here."""
    if given := os.environ.get("CIRAG_DSPY_CACHE"):
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "cirag-dspy"
