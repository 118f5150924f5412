"""DSPy's cache of replies, read so that an entry that can't be is a miss: asked again, paid again, and written anew."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import dspy
from dspy.clients.call_result import CACHE_FORMAT, CallResult

logger = logging.getLogger(__name__)


class ReadableCache:
    """A disk cache whose damaged entries are not there.

    A cut-off pickle, a class that no longer exists, a file that may not be read, a damaged or locked database, or a
    record that is no reply: each is removed where it can be. It does not choose what is kept; that is the cache's.

    Args:
        cache: The ``diskcache`` that DSPy keeps replies in.
    """

    def __init__(self, cache: Any) -> None:
        self._cache = cache
        self._told = False

    def get(self, key: str, default: Any = None) -> Any:
        """The record under a key; ``default`` where there is none that can be read."""
        try:
            record = self._cache.get(key)
            if record is None or _is_sound(record):
                return default if record is None else record
            reason = "no reply of this version of DSPy"
        except Exception as error:  # whatever the file holds, it is no answer
            reason = type(error).__name__
        with suppress(Exception):
            self._cache.delete(key)
        if not self._told:
            self._told = True
            logger.warning("an entry of DSPy's reply cache can't be read (%s); its LM call is made again", reason)
        return default

    def set(self, key: str, value: Any) -> Any:
        """Keep a record."""
        return self._cache.set(key, value)

    def __contains__(self, key: str) -> bool:
        with suppress(Exception):
            return key in self._cache
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)


def guard_reply_cache() -> None:
    """Let DSPy read its cache of replies through ``ReadableCache``; entries that can be read stay as they are."""
    cache = dspy.cache
    if getattr(cache, "enable_disk_cache", False) and not isinstance(cache.disk_cache, ReadableCache):
        cache.disk_cache = ReadableCache(cache.disk_cache)


def _is_sound(record: Any) -> bool:
    """Whether a record is what DSPy keeps: replies, of LiteLLM as they came, and vectors and rows of its retrievers."""
    if not isinstance(record, dict) or "_dspy_format" not in record:
        return not isinstance(record, str | bytes | int | float)
    if record["_dspy_format"] != CACHE_FORMAT:
        return False
    try:
        CallResult.load(record)
    except Exception:
        return False
    return True
