"""The triples of an index with the vectors of another model: one that only ranks, such as a trained aligner."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from cirag_dspy.content import content_hash, remember_former
from cirag_dspy.corpus.embedder import Encoder
from cirag_dspy.corpus.manifest import files_of
from cirag_dspy.corpus.model_files import model_files
from cirag_dspy.corpus.store import Shelf, Store, to_vector
from cirag_dspy.files import digest
from cirag_dspy.schema import Triple

_TABLE = """
CREATE TABLE IF NOT EXISTS ranker_vectors (
  triple INTEGER NOT NULL REFERENCES triples ON DELETE CASCADE,
  ranker TEXT NOT NULL,
  vector BLOB NOT NULL,
  PRIMARY KEY (triple, ranker)
) WITHOUT ROWID
"""
_TRIPLES = "triples t JOIN passages p ON p.key = t.passage"


class RankerStore:
    """A store as a ranker sees it: its triples, with the vectors of that ranker, which lie beside the index's own.

    Args:
        store: The store. Its table of such vectors is made when the first ranker comes.
        ranker: Which ranker's vectors: the hash of its model (``content_of``).
    """

    def __init__(self, store: Store, ranker: str) -> None:
        self._store = store
        self._ranker = ranker
        if not store.read_only:
            with store.transaction() as connection:
                connection.execute(_TABLE)
        tables = store.connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'ranker_vectors'")
        self._has_table = tables.fetchone() is not None

    @property
    def read_only(self) -> bool:
        """Whether vectors cannot be kept."""
        return self._store.read_only

    def shelves(self, ids: Iterable[str]) -> dict[str, Shelf]:
        """Triples with this ranker's vectors by passage id; unknown ids are left out."""
        ids = list(ids)
        known = {}
        if self._has_table:
            rows = self._store.connection.execute(
                f"SELECT p.id, t.head, t.relation, t.tail, r.vector FROM {_TRIPLES} "
                "JOIN ranker_vectors r ON r.triple = t.key AND r.ranker = ? "
                "WHERE p.id IN (SELECT value FROM json_each(?))",
                (self._ranker, json.dumps(ids)),
            )
            known = {tuple(fields): to_vector(vector) for *fields, vector in rows}
        return {
            id: {triple: known.get((id, triple.head, triple.relation, triple.tail)) for triple in shelf}
            for id, shelf in self._store.shelves(ids).items()
        }

    def set_triple_vectors(self, triples: Sequence[Triple], vectors: np.ndarray) -> None:
        """Keep the vectors ``[n, d]`` of triples; those that are not in the store are passed over."""
        with self._store.transaction() as connection:
            connection.executemany(
                f"INSERT OR REPLACE INTO ranker_vectors SELECT t.key, ?, ? FROM {_TRIPLES} "
                "WHERE p.id = ? AND t.head = ? AND t.relation = ? AND t.tail = ?",
                [
                    (self._ranker, vector.tobytes(), triple.passage_id, triple.head, triple.relation, triple.tail)
                    for triple, vector in zip(triples, vectors, strict=True)
                ],
            )


def content_of(encoder: Encoder) -> str:
    """12 hex digits of what decides a triple's vector: the files of the model, and its prompt before a passage.

    The model's files are read whole, so that one trained again, if only by a step, is another ranker, and one that was
    moved is the same.
    """
    folder = Path(encoder.name)
    files = model_files(folder) if folder.is_dir() else files_of(encoder)
    weights = [content_hash(file) for file in sorted(folder.rglob("*.safetensors"))] if folder.is_dir() else []
    named = [encoder.name, [] if weights else encoder.fingerprint()]
    now = digest([list(files.items()) or named, encoder.passage_prompt])[:12]
    remember_former(now, digest([weights or named, encoder.passage_prompt])[:12])
    return now
