"""The triples of passages with their vectors, in memory for the passages that hops keep coming back to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Lock, RLock
from typing import Protocol

import numpy as np

from cirag_dspy.corpus.lru import LRU
from cirag_dspy.corpus.store import Shelf
from cirag_dspy.schema import Triple


def fact(triple: Triple) -> str:
    """The text that is embedded for a triple."""
    return f"{triple.head} {triple.relation} {triple.tail}"


class TripleStore(Protocol):
    """Where triples are kept with vectors: a `Store` with the index's own, a `RankerStore` with a ranker's."""

    @property
    def read_only(self) -> bool: ...  # noqa: D102
    def shelves(self, ids: Iterable[str]) -> dict[str, Shelf]: ...  # noqa: D102
    def set_triple_vectors(self, triples: Sequence[Triple], vectors: np.ndarray) -> None: ...  # noqa: D102


class Shelves:
    """Reads triples through a cache of ``size`` passages; `drop` and `clear` tell it of changes in the store.

    Args:
        store: Where they are kept.
        encode: Texts to unit vectors ``[n, d]``.
        size: Passages in memory, and half the number of vectors of triples that the store doesn't have.
    """

    def __init__(self, store: TripleStore, encode: Callable[[Sequence[str]], np.ndarray], size: int = 2048) -> None:
        self._store = store
        self._encode = encode
        self._shelves: LRU[str, Shelf] = LRU(size)
        self._loose: LRU[str, np.ndarray] = LRU(2 * size)
        self._lock = RLock()
        self._encoding = Lock()

    def get(self, passage_ids: Iterable[str]) -> dict[str, Shelf]:
        """Triples and vectors by passage id, in the order of the ids; unknown ids are left out."""
        ids = list(dict.fromkeys(passage_ids))
        with self._lock:
            found = {id: shelf for id in ids if (shelf := self._shelves.get(id)) is not None}
            missing = [id for id in ids if id not in found]
            for id, shelf in self._store.shelves(missing).items() if missing else ():
                if shelf:  # another process may be extracting the others
                    self._shelves.put(id, shelf)
                found[id] = shelf
        return {id: found[id] for id in ids if id in found}

    def drop(self, passage_id: str) -> None:
        """Forget a passage, after its triples changed. Waits for readers, so that none can put back the old ones."""
        with self._lock:
            self._shelves.drop(passage_id)

    def clear(self) -> None:
        """Forget what is in memory, after passages or vectors changed in the store."""
        with self._lock:
            self._shelves.clear()

    def vectors(self, triples: Sequence[Triple], dimension: int) -> np.ndarray:
        """Unit vectors ``[n, dimension]`` of triples (at least one).

        What has no vector yet, or one of another length, is encoded in one batch, by one thread, and stored; triples
        that the store doesn't have stay in memory.
        """
        vectors = self._known(triples, dimension)
        if any(triple not in vectors for triple in triples):
            with self._encoding:  # whoever waited for it finds here what the other encoded
                vectors = self._known(triples, dimension)
                if missing := [triple for triple in dict.fromkeys(triples) if triple not in vectors]:
                    vectors |= self._encoded(missing)
        return np.stack([vectors[triple] for triple in triples])

    def _known(self, triples: Sequence[Triple], dimension: int) -> dict[Triple, np.ndarray]:
        shelves = self.get(triple.passage_id for triple in triples)
        vectors: dict[Triple, np.ndarray] = {}
        for triple in triples:
            vector = shelves.get(triple.passage_id, {}).get(triple)
            vector = self._loose.get(fact(triple)) if vector is None else vector
            if vector is not None and len(vector) == dimension:
                vectors[triple] = vector
        return vectors

    def _encoded(self, triples: Sequence[Triple]) -> dict[Triple, np.ndarray]:
        texts = list(dict.fromkeys(fact(triple) for triple in triples))
        encoded = dict(zip(texts, self._encode(texts), strict=True))
        vectors = {triple: encoded[fact(triple)] for triple in triples}
        shelves = self.get(triple.passage_id for triple in triples)
        for triple, vector in vectors.items():
            shelf = shelves.get(triple.passage_id, {})
            if triple in shelf:
                shelf[triple] = vector
            else:
                self._loose.put(fact(triple), vector)
        if not self._store.read_only:
            self._store.set_triple_vectors(triples, np.stack(list(vectors.values())))
        return vectors
