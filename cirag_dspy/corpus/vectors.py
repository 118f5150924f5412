"""Exact inner-product search over passage vectors: FAISS, in a file derived from the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition
from typing import TYPE_CHECKING, Any

import numpy as np

from cirag_dspy.corpus.checks import unusable
from cirag_dspy.files import replacing

if TYPE_CHECKING:
    from cirag_dspy.corpus.store import Store

SCORE_DIGITS = 6  # scores closer than this are ties: equal texts encoded in two batches differ beyond it
_BATCH = 4096


class UnusableVectorsError(Exception):
    """Passages of a store, by key, have vectors that are not finite, zero or of another length."""

    def __init__(self, keys: list[int]) -> None:
        super().__init__(keys)
        self.keys = keys


class VectorIndex:
    """All passage vectors of a store as they were when it was last synchronised; ids are the keys of the passages.

    The file ends with the store's token, so one that belongs to other vectors is noticed and built again, without
    encoding. Searching is thread-safe; ``sync`` waits until no thread searches.
    """

    def __init__(self, faiss_index: Any, token: str = "") -> None:
        self._index = faiss_index
        self._token = token
        self._saved = token  # of the file
        self._gate = Condition()
        self._searching = 0

    @classmethod
    def load(cls, store: Store, dimension: int, path: Path) -> VectorIndex:
        """Read the file if it belongs to the store as it is, else build from the store's vectors.

        Raises:
            UnusableVectorsError: Some vectors are no directions.
        """
        import faiss

        token = store.token()
        index = _read(path, token) if token else None
        if index is None or index.ntotal != store.vector_count() or index.d != dimension:
            built = cls(faiss.IndexIDMap2(faiss.IndexFlatIP(dimension)))
            built.sync(store)
            return built
        if keys := _unusable_keys(index):
            raise UnusableVectorsError(keys)
        return cls(index, token)

    def sync(self, store: Store) -> None:
        """Take up what the store has and this has not, and drop what it has no longer; the rest is not touched.

        Raises:
            UnusableVectorsError: Some vectors are no directions.
        """
        token = store.token()
        if token == self._token:
            return
        wanted, here = store.vector_keys(), self._keys()
        gone, new = np.setdiff1d(here, wanted, assume_unique=True), np.setdiff1d(wanted, here, assume_unique=True)
        with self._gate:
            self._gate.wait_for(lambda: not self._searching)
            if gone.size:
                self._index.remove_ids(gone)
            for start in range(0, len(new), _BATCH):
                keys, vectors = store.vectors(new[start : start + _BATCH], self._index.d)
                if (bad := unusable(vectors)).any():
                    raise UnusableVectorsError(keys[bad].tolist())
                self._index.add_with_ids(vectors, keys)
        self._token = token

    def save(self, path: Path) -> None:
        """Write the file, unless it was read or written as it would be.

        Raises:
            OSError: It can't be written; the former one stays.
        """
        import faiss

        token = self._token
        if not token or token == self._saved:
            return
        with replacing(path) as part, part.open("wb") as file:
            faiss.write_index(self._index, faiss.PyCallbackIOWriter(file.write))  # type: ignore[attr-defined]
            file.write(token.encode())
        self._saved = token

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def _keys(self) -> np.ndarray:
        import faiss

        return np.asarray(faiss.vector_to_array(self._index.id_map))

    def search(self, query: np.ndarray, k: int) -> list[tuple[int, float]]:
        """Up to ``k`` keys with their scores, best first, ties by key.

        Args:
            query: Unit vector ``[d]``.
            k: Largest number of results.
        """
        with self._search():
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

    @contextmanager
    def _search(self) -> Iterator[None]:
        with self._gate:
            self._searching += 1
        try:
            yield
        finally:
            with self._gate:
                self._searching -= 1
                self._gate.notify_all()


def _ending(path: Path, size: int) -> bytes:
    """The last bytes of a file; none if there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read()
    except OSError:
        return b""


def _read(path: Path, token: str) -> Any:
    """The FAISS index in a file that ends with the token; None if there is none."""
    import faiss

    if _ending(path, len(token.encode())) != token.encode():
        return None
    try:
        return faiss.read_index(str(path))
    except RuntimeError:
        return None


def _unusable_keys(index: Any) -> list[int]:
    import faiss

    flat: Any = faiss.downcast_index(index.index)
    if not index.ntotal:
        return []
    vectors = faiss.rev_swig_ptr(flat.get_xb(), index.ntotal * index.d).reshape(-1, index.d)
    bad = np.concatenate([unusable(vectors[start : start + _BATCH]) for start in range(0, len(vectors), _BATCH)])
    found: list[int] = faiss.vector_to_array(index.id_map)[bad].tolist()
    return found
