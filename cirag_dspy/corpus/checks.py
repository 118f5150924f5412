"""What an encoder gives is checked before it is kept or searched with: an index trusts nobody's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cirag_dspy.corpus.embedder import Encoder, unit
from cirag_dspy.errors import ModelError
from cirag_dspy.text import one_line


def passage_vectors(encoder: Encoder, texts: Sequence[str], dimension: int | None = None) -> np.ndarray:
    """Unit float32 vectors ``[n, d]`` of texts, as the encoder gives them, in order.

    Args:
        encoder: Any encoder.
        texts: At least one.
        dimension: What ``d`` must be; None takes that of the encoder.

    Raises:
        ModelError: It gave another number of vectors, of another length or kind, or one that is zero or not finite; the
            text is named.
    """
    d = encoder.dimension if dimension is None else dimension
    return _checked(encoder.name, encoder.encode_passages(texts), texts, d)


def query_vector(encoder: Encoder, text: str, dimension: int | None = None) -> np.ndarray:
    """Unit float32 vector ``[d]`` of a query; arguments and errors as of ``passage_vectors``."""
    d = encoder.dimension if dimension is None else dimension
    vector = encoder.encode_query(text)
    try:
        rows = np.asarray(vector)[None]
    except (ValueError, TypeError, RuntimeError) as error:
        raise ModelError(f"embedder {encoder.name} gave no vector for the query {_short(text)} ({error})") from error
    return np.asarray(_checked(encoder.name, rows, [text], d)[0])


def unusable(vectors: np.ndarray) -> np.ndarray:
    """Which rows ``[n]`` of a matrix ``[n, d]`` are no directions: not finite, or zero."""
    return ~np.isfinite(vectors).all(axis=1) | ~vectors.any(axis=1)


def _checked(name: str, given: Any, texts: Sequence[str], dimension: int) -> np.ndarray:
    try:
        rows = np.asarray(given)
    except (ValueError, TypeError, RuntimeError) as error:  # ragged lists; tensors on a GPU or of a kind numpy lacks
        raise ModelError(
            f"embedder {name} gave no matrix of numbers for {len(texts)} texts, the first {_short(texts[0])} "
            f"({one_line(str(error))[:120]}): it must give float arrays of {dimension} columns"
        ) from error
    if rows.shape != (len(texts), dimension):
        raise ModelError(
            f"embedder {name} gave an array of shape {rows.shape} for {len(texts)} texts, the first "
            f"{_short(texts[0])}, where {(len(texts), dimension)} is needed: each text must have one vector of the "
            "embedder's dimension"
        )
    if rows.dtype.kind not in "fiu":
        raise ModelError(f"embedder {name} gave values of type {rows.dtype}, not real numbers")
    bad = np.flatnonzero(unusable(rows))
    if len(bad):
        row = rows[bad[0]]
        what = "zero" if np.isfinite(row).all() else "not finite"
        more = f", and for {len(bad) - 1} more" if len(bad) > 1 else ""
        raise ModelError(
            f"embedder {name} gave a vector that is {what} for {_short(texts[bad[0]])}{more}: load it in another "
            "precision, or leave the text out"
        )
    return unit(rows)


def _short(text: str) -> str:
    """The beginning of a text, quoted, on one line."""
    line = one_line(text)
    return repr(line if len(line) <= 60 else f"{line[:60]}...")
