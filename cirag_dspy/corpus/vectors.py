"""Exact inner-product search over passage vectors: FAISS, in a file derived from the store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from cirag_dspy.corpus.store import Store

SCORE_DIGITS = 6  # scores closer than this are ties: equal texts encoded in two batches differ beyond it


class VectorIndex:
    """All passage vectors of a store as they were when it was loaded; ids are the keys of the passages.

    The file ends with the store's token, so one that belongs to other vectors is noticed and built again, without
    encoding. Searching is thread-safe.
    """

    def __init__(self, faiss_index: Any) -> None:
        self._index = faiss_index

    @classmethod
    def load(cls, store: Store, dimension: int, path: Path) -> VectorIndex:
        """Read the file if it belongs to the store as it is, else build from the store's vectors and write it."""
        import faiss

        token = store.token().encode()
        if token and path.is_file():
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - len(token)))
                written = file.read()
            if written == token:
                try:
                    index = faiss.read_index(str(path))
                except RuntimeError:
                    index = None
                if index is not None and index.ntotal == store.vector_count() and index.d == dimension:
                    return cls(index)
        index = faiss.IndexIDMap2(faiss.IndexFlatIP(dimension))
        for keys, vectors in store.vectors():
            index.add_with_ids(vectors, keys)
        if token and not store.read_only:
            temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
            faiss.write_index(index, str(temporary))
            with temporary.open("ab") as file:
                file.write(token)
            temporary.replace(path)
        return cls(index)

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def search(self, query: np.ndarray, k: int) -> list[tuple[int, float]]:
        """Up to ``k`` keys with their scores, best first, ties by key.

        Args:
            query: Unit vector ``[d]``.
            k: Largest number of results.
        """
        wanted = min(k, len(self))
        if wanted <= 0:
            return []
        fetch = wanted
        while True:
            # FAISS keeps any of those that tie for the last place: look further until the tie is seen whole.
            fetch = min(2 * fetch + 8, len(self))
            scores, keys = self._index.search(query.reshape(1, -1).astype(np.float32), fetch)
            found = [
                (int(key), round(float(score), SCORE_DIGITS))
                for key, score in zip(keys[0], scores[0], strict=True)
                if key >= 0
            ]
            if fetch == len(self) or found[-1][1] < found[wanted - 1][1]:
                return sorted(found, key=lambda hit: (-hit[1], hit[0]))[:wanted]
