"""The errors a user can meet. Each message is one line: what is wrong, where, and what to do."""

from __future__ import annotations


class CiragError(Exception):
    """Base of every error this package raises on purpose; the command line prints it and exits with 2."""


class DataError(CiragError):
    """A file of questions, passages or gold annotations is missing or is not in the layout it claims."""


class CorpusIndexError(CiragError):
    """An index folder cannot be used: it is missing, damaged, of another format or of another embedder."""


class IndexInUseError(CorpusIndexError):
    """Another process is adding to an index folder, or makes one there."""


class ModelError(CiragError):
    """A model cannot be had: no such folder, the hub is out of reach, or an optional package is missing."""


class RunError(CiragError):
    """A run cannot start or go on: its output folder belongs to other settings, or nothing is left to do."""


class StateError(RunError, ValueError):
    """A state, or a file with one, is not the one of this program, is damaged, or can't be written as JSON."""
