"""Passages, triples and their vectors: what an index holds, read and written. SQLite is its single source of truth."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from cirag_dspy.corpus.checks import unusable
from cirag_dspy.corpus.database import Database
from cirag_dspy.errors import CorpusIndexError
from cirag_dspy.schema import EXTRACTION_STATES, Extraction, ExtractionState, Passage, Tries, Triple

# The triples of one passage in order, each with its vector [d] or None where there is none yet.
Shelf = dict[Triple, np.ndarray | None]

# Run in every transaction that changes which passages have vectors.
NEW_TOKEN = "INSERT OR REPLACE INTO meta VALUES ('vectors', lower(hex(randomblob(16))))"


def to_vector(stored: object) -> np.ndarray | None:
    """A vector ``[d]`` as it is stored; None where there is none yet, or where it is no direction."""
    if not isinstance(stored, bytes) or not stored or len(stored) % 4:
        return None
    vector = np.frombuffer(stored, dtype=np.float32)
    return None if unusable(vector[None])[0] else vector


_IDS = "IN (SELECT value FROM json_each(?))"
_STATES = (
    "(SELECT p.key, p.id, CASE WHEN p.state = 'done' AND t.room > 0 THEN 'cut' ELSE p.state END AS state "
    "FROM passages p LEFT JOIN tries t ON t.passage = p.key)"
)


class Store(Database):
    """The queries of an index. Vectors are float32 blobs; the key of a passage is its FAISS id and is never reused."""

    # Writing

    def set_vectors(self, keys: Sequence[int], vectors: np.ndarray) -> None:
        """Store the vectors ``[n, d]`` of passages."""
        with self.transaction() as connection:
            rows = [(vector.tobytes(), key) for key, vector in zip(keys, vectors, strict=True)]
            connection.executemany("UPDATE passages SET vector = ? WHERE key = ?", rows)
            connection.execute(NEW_TOKEN)

    def drop_vectors(self, keys: Sequence[int]) -> None:
        """Forget the vectors of passages, so that they are encoded again."""
        with self.transaction() as connection:
            connection.execute(f"UPDATE passages SET vector = NULL WHERE key {_IDS}", (json.dumps(list(keys)),))
            connection.execute(NEW_TOKEN)

    def keep(self, passage_id: str, extraction: Extraction) -> None:
        """Replace the triples and the state of a passage by those of an extraction; equal triples are kept once.

        Raises:
            CorpusIndexError: If there is no such passage.
        """
        stored = "done" if extraction.state == "cut" else extraction.state
        with self.transaction() as connection:
            row = connection.execute(
                "UPDATE passages SET state = ?, error = ?, dropped = ? WHERE id = ? RETURNING key",
                (stored, extraction.error, extraction.dropped, passage_id),
            ).fetchone()
            if row is None:
                raise CorpusIndexError(f"index {self.path.parent} has no passage {passage_id}: add it first")
            if extraction.useless or extraction.room:
                connection.execute(
                    "INSERT INTO tries VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET useless = useless + ?2, room = ?3",
                    (*row, int(extraction.useless), extraction.room),
                )
            else:
                connection.execute("DELETE FROM tries WHERE passage = ?", row)
            connection.execute("DELETE FROM triples WHERE passage = ?", row)
            connection.executemany(
                "INSERT OR IGNORE INTO triples (passage, position, sentence, head, relation, tail) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                [(*row, i, t.sentence, t.head, t.relation, t.tail) for i, t in enumerate(extraction.triples)],
            )

    def set_triple_vectors(self, triples: Sequence[Triple], vectors: np.ndarray) -> None:
        """Store the vectors ``[n, d]`` of triples; those that are not in the store are passed over."""
        with self.transaction() as connection:
            connection.executemany(
                "UPDATE triples SET vector = ? WHERE passage = (SELECT key FROM passages WHERE id = ?) "
                "AND head = ? AND relation = ? AND tail = ?",
                [
                    (vector.tobytes(), triple.passage_id, triple.head, triple.relation, triple.tail)
                    for triple, vector in zip(triples, vectors, strict=True)
                ],
            )

    # Reading

    def token(self) -> str:
        """Changes whenever the set of passage vectors does."""
        return str(self.meta("vectors") or "")

    def vector_keys(self) -> np.ndarray:
        """Keys ``[n]`` of the embedded passages, ascending."""
        rows = self.connection.execute("SELECT key FROM passages WHERE vector IS NOT NULL ORDER BY key")
        return np.fromiter((key for (key,) in rows), dtype=np.int64)

    def vectors(self, keys: np.ndarray, dimension: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys ``[m]`` and vectors ``[m, d]`` of those passages that are embedded, by key.

        What is no vector of ``dimension`` floats comes as one of NaN.
        """
        query = f"SELECT key, vector FROM passages WHERE key {_IDS} AND vector IS NOT NULL ORDER BY key"
        rows = self.connection.execute(query, (json.dumps(keys.tolist()),)).fetchall()
        matrix = np.full((len(rows), dimension), np.nan, dtype=np.float32)
        for place, (_, vector) in enumerate(rows):
            if (found := to_vector(vector)) is not None and len(found) == dimension:
                matrix[place] = found
        return np.array([key for key, _ in rows], dtype=np.int64), matrix

    def bare_passages(self, limit: int) -> list[tuple[int, Passage]]:
        """Up to ``limit`` passages without a vector, with their keys."""
        return list(self._select("WHERE vector IS NULL ORDER BY key LIMIT ?", limit))

    def bare_triples(self, limit: int) -> list[Triple]:
        """Up to ``limit`` triples without a vector."""
        rows = self.connection.execute(
            "SELECT t.head, t.relation, t.tail, p.id, t.sentence FROM triples t JOIN passages p ON p.key = t.passage "
            "WHERE t.vector IS NULL ORDER BY t.key LIMIT ?",
            (limit,),
        )
        return [Triple(*row) for row in rows]

    def passages(self, ids: Iterable[str]) -> dict[str, Passage]:
        """Passages by id, in the order of ``ids``; unknown ones are left out."""
        ids = list(ids)
        found = {passage.id: passage for _, passage in self._select(f"WHERE id {_IDS}", json.dumps(ids))}
        return {id: found[id] for id in ids if id in found}

    def passages_by_key(self, keys: Sequence[int]) -> dict[int, Passage]:
        """Passages by key; unknown ones are left out."""
        return dict(self._select(f"WHERE key {_IDS}", json.dumps(keys)))

    def passages_in(self, states: Sequence[ExtractionState]) -> list[Passage]:
        """Passages in any of the states, by key."""
        where = f"WHERE key IN (SELECT key FROM {_STATES} WHERE state {_IDS}) ORDER BY key"
        return [passage for _, passage in self._select(where, json.dumps(states))]

    def _select(self, where: str, value: str | int) -> Iterator[tuple[int, Passage]]:
        query = f"SELECT key, id, title, sentences FROM passages {where}"
        for key, id, title, sentences in self.connection.execute(query, (value,)):
            yield key, Passage(id, title, tuple(json.loads(sentences)))

    def shelves(self, ids: Iterable[str]) -> dict[str, Shelf]:
        """Triples with their vectors by passage id; unknown ids are left out."""
        rows = self.connection.execute(
            "SELECT p.id, t.head, t.relation, t.tail, t.sentence, t.vector FROM passages p "
            f"LEFT JOIN triples t ON t.passage = p.key WHERE p.id {_IDS} ORDER BY p.key, t.position",
            (json.dumps(list(ids)),),
        )
        found: dict[str, Shelf] = {}
        for id, head, relation, tail, sentence, vector in rows:
            shelf = found.setdefault(id, {})
            if head is not None:
                triple = Triple(head, relation, tail, id, sentence)
                shelf[triple] = to_vector(vector)
        return found

    def states(self, ids: Iterable[str]) -> dict[str, ExtractionState]:
        """Extraction states by passage id, in the order of ``ids``; unknown ids are left out."""
        ids = list(ids)
        found = dict(self.connection.execute(f"SELECT id, state FROM {_STATES} WHERE id {_IDS}", (json.dumps(ids),)))
        return {id: found[id] for id in ids if id in found}

    def errors(self, ids: Iterable[str]) -> dict[str, str]:
        """Why an extraction is not done, by passage id; only those that have a reason."""
        query = f"SELECT id, error FROM passages WHERE error != '' AND id {_IDS}"
        return dict(self.connection.execute(query, (json.dumps(list(ids)),)))

    def tries(self, ids: Iterable[str]) -> dict[str, Tries]:
        """What extractions cost for nothing, by passage id; passages without any are left out."""
        query = f"SELECT p.id, t.useless, t.room FROM tries t JOIN passages p ON p.key = t.passage WHERE p.id {_IDS}"
        rows = self.connection.execute(query, (json.dumps(list(ids)),))
        return {id: Tries(useless, room) for id, useless, room in rows}

    def counts(self) -> dict[str, int]:
        """Number of passages, of triples, and of passages in each state."""
        states = dict(self.connection.execute(f"SELECT state, count(*) FROM {_STATES} GROUP BY state"))
        (triples,) = self.connection.execute("SELECT count(*) FROM triples").fetchone()
        by_state: dict[str, int] = {state: states.get(state, 0) for state in EXTRACTION_STATES}
        return {"passages": sum(by_state.values()), "triples": triples, **by_state}

    def vector_count(self) -> int:
        """Number of embedded passages."""
        bare = "SELECT count(*) FROM passages WHERE vector IS NULL"
        return int(self.connection.execute(f"SELECT count(*) - ({bare}) FROM passages").fetchone()[0])

    def bare_triples_count(self) -> int:
        """Number of triples without a vector."""
        return int(self.connection.execute("SELECT count(*) FROM triples WHERE vector IS NULL").fetchone()[0])

    def contents(self) -> Iterator[tuple[str, str]]:
        """Id and content hash of every passage, sorted by id."""
        yield from self.connection.execute("SELECT id, content FROM passages ORDER BY id")
