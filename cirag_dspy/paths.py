"""Where the package keeps what it can make again: converted weights and indexes of benchmarks."""

from __future__ import annotations

import os
from pathlib import Path

from cirag_dspy.errors import RunError


def cache_dir() -> Path:
    """``$CIRAG_DSPY_CACHE``, else ``cirag-dspy`` in the user's cache folder. Not created here."""
    given = os.environ.get("CIRAG_DSPY_CACHE")
    base = Path(given or os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    try:
        base = base.expanduser()
    except RuntimeError:
        raise RunError(f"{base}: there is no such home folder; CIRAG_DSPY_CACHE names another folder") from None
    return base if given else base / "cirag-dspy"
