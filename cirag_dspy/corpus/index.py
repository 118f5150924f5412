"""The index that systems search: passages, their triples, and the ranking of triples against a query."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock, RLock
from types import TracebackType
from typing import Any

import numpy as np

from cirag_dspy.content import same_content
from cirag_dspy.corpus import sources
from cirag_dspy.corpus.checks import passage_vectors, query_vector, unusable
from cirag_dspy.corpus.embedder import Embedder, Encoder
from cirag_dspy.corpus.ingest import Document, OnError
from cirag_dspy.corpus.lock import WriterLock
from cirag_dspy.corpus.manifest import NAME, Manifest
from cirag_dspy.corpus.ranker import RankerStore, content_of
from cirag_dspy.corpus.roots import Roots
from cirag_dspy.corpus.shelves import Shelves, fact
from cirag_dspy.corpus.sources import AddReport
from cirag_dspy.corpus.store import Store
from cirag_dspy.corpus.vectors import SCORE_DIGITS, UnusableVectorsError, VectorIndex
from cirag_dspy.errors import CorpusIndexError
from cirag_dspy.files import digest, path_errors, printable
from cirag_dspy.schema import Extraction, ExtractionState, Hit, Passage, Tries, Triple

logger = logging.getLogger(__name__)

_VECTORS = "passages.faiss"

# Called with the number of items done and the total, None where that is not known.
Progress = Callable[[int, int | None], None]
# Called with a passage and the number of its tokens that the embedder does not read.
OnLong = Callable[[Passage, int], None]


@dataclass(frozen=True)
class _Ranker:
    """A model that ranks triples, the hash of its weights, and its vectors."""

    encoder: Encoder
    content: str
    shelves: Shelves


class CorpusIndex:
    """A folder with passages, triples and vectors. Made by `create` or `open`; thread-safe; a deep copy is itself.

    It searches and remembers; it extracts nothing. What another process adds is seen when the index is opened again.

    One process at a time adds and removes passages (`writing`); any number may search, rank, and keep extractions
    meanwhile.
    """

    def __init__(self, path: Path, store: Store, embedder: Encoder, manifest: Manifest) -> None:
        self.path = path
        self.embedder = embedder
        self._store = store
        self._manifest = manifest
        self._writer = WriterLock(path)
        self._verified = False
        self._changed = False
        self._stale = 0  # passages added and removed since the FAISS file was written
        self._unsynced = False  # and since the vectors in memory took it up
        self._vectors_checked = False
        self._vectors: VectorIndex | None = None
        self._shelves = Shelves(store, self._encode)
        self._ranker: _Ranker | None = None
        self._lock = RLock()
        self._extracting = [Lock() for _ in range(1024)]

    @classmethod
    @path_errors(CorpusIndexError)
    def create(cls, path: str | Path, embedder: Encoder) -> CorpusIndex:
        """A new, empty index in a folder, which is made.

        Raises:
            IndexInUseError: If another process is making one there.
            CorpusIndexError: If the folder holds an index already or cannot be written to.
            ModelError: If the embedder's model cannot be had.
        """
        path = Path(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            try:
                with WriterLock(path).held():
                    return cls._create(path, embedder)
            finally:
                with suppress(OSError):
                    path.rmdir()  # where nothing came of it
        except OSError as error:
            raise CorpusIndexError(f"no index can be made at {path}: {error.strerror}: name another folder") from error

    @classmethod
    def _create(cls, path: Path, embedder: Encoder) -> CorpusIndex:
        if cls.exists(path):
            raise CorpusIndexError(f"{path} holds an index already: open it to add to it, or delete the folder")
        manifest = Manifest.of(embedder)
        store = Store(path / "corpus.sqlite", create=True)
        index = cls(path, store, embedder, manifest)
        try:
            if any(store.counts().values()):
                raise CorpusIndexError(f"{path} holds passages but no {NAME}: delete the folder, or name another")
            index._verified = index._changed = True
            index.flush()
        except BaseException:
            store.close()
            raise
        return index

    @classmethod
    @path_errors(CorpusIndexError)
    def open(cls, path: str | Path, embedder: Encoder | None = None) -> CorpusIndex:
        """The index of a folder, read-only where the folder is.

        Args:
            path: The folder.
            embedder: Must be the one it was built with; None makes it from the manifest. Dimension and fingerprint are
                compared at once if it is loaded already, else when it first encodes.

        Raises:
            CorpusIndexError: If there is no usable index, or it was built with another embedder.
        """
        path = Path(path)
        manifest = Manifest.read(path)
        if embedder is None:
            said = manifest.embedder
            embedder = Embedder(said["name"], query_prompt=said["query_prompt"], passage_prompt=said["passage_prompt"])
        manifest.check_name(embedder, path)
        store = Store(path / "corpus.sqlite", read_only=not os.access(path, os.W_OK))
        index = cls(path, store, embedder, manifest)
        if getattr(embedder, "loaded", True):
            try:
                index._encoder()
            except CorpusIndexError:
                store.close()
                raise
        return index

    @staticmethod
    def exists(path: str | Path) -> bool:
        """Whether a folder holds an index."""
        return (Path(path) / NAME).is_file()

    # What a hop needs

    def search(self, query: str, k: int) -> list[Hit]:
        """Up to ``k`` passages nearest to a query, best first, ties in order of insertion."""
        # Encoded first: where FAISS is loaded before torch, macOS ends the process (two OpenMP runtimes).
        vector = query_vector(self._encoder(), query, self._dimension)
        found = self._vector_index().search(vector, k)
        passages = self._store.passages_by_key([key for key, _ in found])
        return [Hit(passages[key], score) for key, score in found if key in passages]

    def passages(self, ids: Iterable[str]) -> dict[str, Passage]:
        """Passages by id, in the order of ``ids``; unknown ids are left out."""
        return self._store.passages(ids)

    def triples(self, passage_ids: Iterable[str]) -> dict[str, tuple[Triple, ...]]:
        """The triples of passages, in the order of the ids; unknown ids are left out."""
        return {id: tuple(shelf) for id, shelf in self._shelves.get(passage_ids).items()}

    def states(self, passage_ids: Iterable[str]) -> dict[str, ExtractionState]:
        """How far extraction is with passages, in the order of the ids; unknown ids are left out."""
        return self._store.states(passage_ids)

    def errors(self, passage_ids: Iterable[str]) -> dict[str, str]:
        """Why the extraction of passages is not done, in one line each; those without a reason are left out."""
        return self._store.errors(passage_ids)

    def tries(self, passage_ids: Iterable[str]) -> dict[str, Tries]:
        """What earlier extractions cost for nothing; passages without any are left out."""
        return self._store.tries(passage_ids)

    def rank(self, query: str, triples: Sequence[Triple], n: int | None = None) -> list[Triple]:
        """The ``n`` triples nearest to a query (None: all), best first; ties keep their order.

        Vectors that are not stored yet are encoded in one batch and kept.
        """
        return [triple for triple, _ in self.rank_scored(query, triples, n)]

    def rank_scored(self, query: str, triples: Sequence[Triple], n: int | None = None) -> list[tuple[Triple, float]]:
        """As ``rank``, each triple with its score (inner product of unit vectors, -1 to 1)."""
        if not triples or (n is not None and n <= 0):
            return []
        ranker = self._ranker
        shelves, encoder = (ranker.shelves, ranker.encoder) if ranker else (self._shelves, self._encoder())
        vector = query_vector(encoder, query, None if ranker else self._dimension)
        products = (shelves.vectors(triples, len(vector)) @ vector).astype(np.float64)
        scores = np.round(products, SCORE_DIGITS)
        return [(triples[i], float(scores[i])) for i in np.argsort(-scores, kind="stable")[:n]]

    def use_ranker(self, encoder: Encoder | None) -> None:
        """Rank triples with another model than the one that searches, such as a trained aligner; None: no longer.

        Its vectors of triples are encoded once, too, and kept beside the index's own; those of any number of rankers
        can be. To be called before the index is asked, not while it is.
        """
        if encoder is None:
            self._ranker = None
            return
        content = content_of(encoder)
        shelves = Shelves(RankerStore(self._store, content), partial(passage_vectors, encoder))
        self._ranker = _Ranker(encoder, content, shelves)

    def keep(self, passage_id: str, extraction: Extraction) -> None:
        """Store the state and the triples of a passage in place of the former ones, at once; vectors come later.

        Raises:
            CorpusIndexError: If there is no such passage, or the index cannot be written to.
        """
        self._store.keep(passage_id, extraction)
        for shelves in self._all_shelves():
            shelves.drop(passage_id)
        self._changed = True

    def extraction_lock(self, passage_id: str) -> AbstractContextManager[Any]:
        """Held while a passage is being extracted, so that two threads of a process don't pay for it twice.

        A thread may hold one at a time: passages share locks.
        """
        return self._extracting[hash(passage_id) % len(self._extracting)]

    # Building

    def add(
        self,
        documents: Iterable[Document],
        *,
        batch_size: int = 1024,
        progress: Progress | None = None,
        on_error: OnError | None = None,
        on_long: OnLong | None = None,
    ) -> AddReport:
        """Add or update sources (``Document``): each holds afterwards exactly the passages given for it.

        Streams: at most ``batch_size`` passages (or one document) are in memory, and each batch is committed, so that
        what a kill leaves undone is taken up by the next ``add``. Passages already there are not encoded again.

        ``on_long`` is called with each new passage that is longer than the embedder reads, and the number of tokens
        behind that, which no search finds.

        Ids of passages are those of their file: where another file has the id for another text, it becomes
        ``SOURCE#ID``.

        Raises:
            DataError: If an id of a file or a source stands for two different texts, unless ``on_error`` takes the
                error; the batches before stay.
            IndexInUseError: Another process is writing.
            CorpusIndexError: The index can't be written.
            ModelError: The embedder gave something else than a vector for a passage, which is named.
        """
        with self.writing():
            return self._add(documents, batch_size, progress, on_error, on_long)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep other writers out for as long as it lasts; `add` and `remove` do so for themselves.

        Raises:
            IndexInUseError: Another process is writing, named with its host and since when.
            CorpusIndexError: The folder is read-only.
        """
        self._store.require_writable()
        with self._writer.held():
            yield

    def _add(
        self,
        documents: Iterable[Document],
        batch_size: int,
        progress: Progress | None,
        on_error: OnError | None,
        on_long: OnLong | None,
    ) -> AddReport:
        self._encoder()
        self._drop_unusable_vectors()
        self._changed = True
        report, run, token = AddReport(), sources.start_run(self._store), self._store.token()
        files: set[str] = set()
        kept: list[str] = []
        seen = 0
        try:
            for batch in _batches(map(self.roots().name, documents), batch_size):
                kept += sources.put(self._store, batch, run, report, on_error)
                self._embed_passages(batch_size, on_long)
                files.update(document.file for document in batch if document.file is not None)
                seen += sum(len(document.passages) for document in batch)
                if progress:
                    progress(seen, None)
            self._embed_passages(batch_size, on_long)
            for file in sorted(files):
                report.removed += sources.prune(self._store, file, run, kept)
        finally:
            if self._store.token() != token:
                self._renew(report.added + report.removed)
        return report

    def remove(self, source: str) -> int:
        """Delete a source by its name or path, all rows of a file, or all files of a folder.

        Passages that no other source has go, with triples and vectors.

        Returns:
            The number of passages deleted.
        """
        with self.writing():
            roots = self.roots()
            name = roots.find(source)
            removed = sources.remove(self._store, name)
            roots.forget(name.rstrip("/"))
            if removed:
                self._changed = True
                self._renew(removed)
        return removed

    def roots(self) -> Roots:
        """The folders and files that the sources come from."""
        return Roots(self._store)

    def sources(self) -> dict[str, int]:
        """The sources by name, rows by their file, with the number of their passages."""
        return dict(sources.listed(self._store))

    def sources_of(self, passage_ids: Iterable[str]) -> dict[str, list[str]]:
        """The sources of passages by id; unknown ids are left out."""
        return sources.of_passages(self._store, passage_ids)

    def embed_triples(self, batch: int = 2048, progress: Progress | None = None) -> int:
        """Encode all triples that lack vectors, committing each batch; returns how many there were."""
        total, done = self._store.bare_triples_count(), 0
        while triples := self._store.bare_triples(batch):
            self._store.set_triple_vectors(triples, self._encode([fact(triple) for triple in triples]))
            done += len(triples)
            if progress:
                progress(done, max(total, done))
        self._shelves.clear()
        return done

    def is_embedded(self) -> bool:
        """Whether every passage has its vector; not so where an ``add`` was interrupted."""
        return not self._store.bare_passages(1)

    def pending(self) -> list[Passage]:
        """Passages whose triples are still to be extracted, all or (failed, cut) some."""
        return self._store.passages_in(["pending", "failed", "cut"])

    def failed(self) -> list[Passage]:
        """Passages where extraction failed or was cut."""
        return self._store.passages_in(["failed", "cut"])

    # What it says about itself

    @property
    def extractor(self) -> str | None:
        """What writes the triples, or None; several are parted by commas. Setting it writes the manifest."""
        return self._manifest.extractor

    @extractor.setter
    def extractor(self, name: str | None) -> None:
        if name != self._manifest.extractor:
            self._write_manifest(lambda known: name)

    def extracted_by(self, name: str) -> None:
        """Add to ``extractor``; where there are no triples yet it takes the place of what was noted."""

        def joined(known: str | None) -> str:
            if known is None or not self.counts()["triples"]:
                return name
            return known if any(same_content(one, name) for one in known.split(", ")) else f"{known}, {name}"

        self._write_manifest(joined)

    @property
    def embedder_state(self) -> dict[str, Any]:
        """Name, dimension, prompts and fingerprint of the embedder, as the manifest has them; its files as one hash."""
        state = dict(self._manifest.embedder)
        files = state.pop("files", None)
        return state | ({"content": digest(files)[:12]} if files else {})

    @property
    def ranker_state(self) -> dict[str, Any] | None:
        """Name (of a folder, its last part) and content of the model that ranks in the embedder's place, if any."""
        ranker = self._ranker
        return {"name": Path(ranker.encoder.name).name, "content": ranker.content} if ranker else None

    def counts(self) -> dict[str, int]:
        """Numbers of ``passages`` and ``triples``, and of passages ``pending``, ``done``, ``empty`` and ``failed``."""
        return self._store.counts()

    @property
    def corpus_hash(self) -> str:
        """SHA-256 over the sorted passage ids; an id that the corpus brought counts with the hash of its text."""
        hashed = hashlib.sha256()
        for id, content in self._store.contents():
            hashed.update(f"{id}\n".encode() if id == content else f"{id} {content}\n".encode())
        return hashed.hexdigest()

    def __len__(self) -> int:
        return self.counts()["passages"]

    def flush(self) -> None:
        """Write the manifest with the present counts, if anything changed since it was last written."""
        if self._changed and not self._store.read_only:
            self._write_manifest(lambda known: known)

    def _write_manifest(self, extractor: Callable[[str | None], str | None]) -> None:
        """Write the manifest; ``extractor`` gets the one on disk, which another process may have changed."""
        with self._lock, self._store.transaction():  # of all processes, one at a time
            if self.exists(self.path):
                self._manifest.extractor = Manifest.read(self.path).extractor
            self._manifest.extractor = extractor(self._manifest.extractor)
            self._manifest.counts, self._manifest.corpus_hash = self.counts(), self.corpus_hash
            self._manifest.write(self.path)
            self._changed = False

    def close(self) -> None:
        """Flush and close; closing twice does no harm.

        The FAISS file is written where at least a tenth of the passages changed; else the next search brings it up to
        date, so that adding a little costs a little.
        """
        if self._store.closed:
            return
        try:
            self.flush()
            if self._stale and not self._store.read_only and 10 * self._stale >= len(self):
                self._save_vectors(self._vector_index(), must=True)
        finally:
            self._store.close()

    def __enter__(self) -> CorpusIndex:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> CorpusIndex:
        return self

    # Within

    def _encoder(self) -> Encoder:
        """The embedder, once it was compared with the one in the manifest."""
        if not self._verified:
            with self._lock:
                self._manifest.check_vectors(self.embedder, self.path)
                self._verified = True
        return self.embedder

    @property
    def _dimension(self) -> int:
        return int(self._manifest.embedder["dimension"])

    def _vector_index(self) -> VectorIndex:
        """The vectors in memory, with what this process added and removed since."""
        with self._lock:
            try:
                if self._vectors is None:
                    self._vectors = VectorIndex.load(self._store, self._dimension, self.path / _VECTORS)
                    if not self._store.read_only and not self._stale:
                        self._save_vectors(self._vectors)
                elif self._unsynced:
                    self._vectors.sync(self._store)
            except UnusableVectorsError as error:
                named = self._store.passages_by_key(error.keys[:3])
                titles = ", ".join(repr(printable(one.title or one.text[:60])) for one in named.values())
                raise CorpusIndexError(
                    f"index {self.path}: {len(error.keys)} passages have vectors that are not finite, zero or of "
                    f"another length ({titles}): cirag-dspy index CORPUS --out {self.path} encodes them anew"
                ) from None
            self._unsynced = False
            return self._vectors

    def _save_vectors(self, vectors: VectorIndex, must: bool = False) -> None:
        """Write the FAISS file. It is derived: an index without it can be searched, and takes longer to open."""
        try:
            vectors.save(self.path / _VECTORS)
            self._stale = 0
        except OSError as error:
            problem = f"{self.path / _VECTORS} can't be written ({error.strerror or error})"
            if must:
                raise CorpusIndexError(f"{problem}: free some room, then run the same again") from error
            logger.warning("%s: opening the index takes longer", problem)

    def _renew(self, changes: int) -> None:
        """Note that passages or their vectors changed; searching takes it up."""
        with self._lock:
            self._stale += max(changes, 1)
            self._unsynced = True
            for shelves in self._all_shelves():
                shelves.clear()

    def _drop_unusable_vectors(self) -> None:
        """Once: passages whose vectors are no directions lose them, and are encoded again."""
        if self._vectors_checked:
            return
        keys = self._store.vector_keys()
        for start in range(0, len(keys), 4096):
            found, vectors = self._store.vectors(keys[start : start + 4096], self._dimension)
            if (bad := unusable(vectors)).any():
                self._store.drop_vectors(found[bad].tolist())
        self._vectors_checked = True

    def _all_shelves(self) -> list[Shelves]:
        return [self._shelves, self._ranker.shelves] if self._ranker else [self._shelves]

    def _encode(self, texts: Sequence[str]) -> np.ndarray:
        return passage_vectors(self._encoder(), texts, self._dimension)

    def _embed_passages(self, batch_size: int, on_long: OnLong | None = None) -> None:
        while rows := self._store.bare_passages(batch_size):
            texts = [f"{passage.title}\n{passage.text}" if passage.title else passage.text for _, passage in rows]
            self._store.set_vectors([key for key, _ in rows], self._encode(texts))
            beyond_window = getattr(self.embedder, "beyond_window", None)
            if on_long and beyond_window:
                for (_, passage), tokens in zip(rows, beyond_window(texts), strict=True):
                    if tokens:
                        on_long(passage, tokens)


def _batches(documents: Iterable[Document], size: int) -> Iterator[list[Document]]:
    """Documents in lists of at least ``size`` passages together, the last of what is left."""
    batch: list[Document] = []
    passages = 0
    for document in documents:
        batch.append(document)
        passages += len(document.passages)
        if passages >= size:
            yield batch
            batch, passages = [], 0
    if batch:
        yield batch
