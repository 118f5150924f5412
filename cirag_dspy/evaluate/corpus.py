"""The index that a benchmark is run on."""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from cirag_dspy.benchmarks.base import Benchmark
from cirag_dspy.benchmarks.demo import demo_triples
from cirag_dspy.corpus.embedder import Embedder
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import Document
from cirag_dspy.errors import CorpusIndexError, IndexInUseError, RunError
from cirag_dspy.paths import cache_dir
from cirag_dspy.schema import Extraction

logger = logging.getLogger(__name__)

GIVEN, NONE = "given", "none"


def open_corpus(
    benchmark: Benchmark,
    *,
    path: Path | None = None,
    embedder: str = "embedded",
    extractor: str = GIVEN,
    progress: Callable[[int, int | None], None] | None = None,
) -> CorpusIndex:
    """An index of the benchmark's passages, brought up to date; extracts nothing.

    Args:
        benchmark: Its passages are the corpus.
        path: An index that has them all, used as it is; without it, one in the cache folder, shared by all runs on the
            same passages with the same embedder and extractor.
        embedder: For a new index.
        extractor: What writes the triples; triples of two extractors are never mixed. ``given``: those of the demo set.
        progress: Called with the number of passages done.

    Raises:
        RunError: The index lacks passages, or ``given`` triples are asked of a data set without any.
        CorpusIndexError: The index can't be used.
    """
    if path is not None:
        opened = CorpusIndex.open(path)
        known = opened.passages([passage.id for passage in benchmark.passages])
        texts = {id: passage.text for id, passage in known.items()}
        missing = [p.title for p in benchmark.passages if p.text and texts.get(p.id) != p.text]
        if missing:
            opened.close()
            raise RunError(
                f"{path} lacks {len(missing)} of the {len(benchmark.passages)} passages of this benchmark (the first: "
                f"{missing[0]!r}); leave --index out to build one for it"
            )
        return opened
    if not benchmark.passages:
        raise RunError(f"{benchmark.name} {benchmark.split} has no passages; give --corpus or --index")
    if extractor == GIVEN and benchmark.name != "demo":
        raise RunError(f"{benchmark.name} has no triples of its own; --extract given is for the demo set")
    folder = (
        cache_dir()
        / "indexes"
        / "-".join((benchmark.name, benchmark.corpus_hash[:12], slug(embedder), slug(extractor)))
    )
    opened = _shared(benchmark, folder, Embedder(embedder), progress)
    if extractor == GIVEN and opened.counts()["pending"]:
        for passage_id, triples in demo_triples().items():
            opened.keep(passage_id, Extraction("done", tuple(triples)))
        opened.embed_triples()
    opened.extractor = extractor
    return opened


def _shared(
    benchmark: Benchmark, folder: Path, encoder: Embedder, progress: Callable[[int, int | None], None] | None
) -> CorpusIndex:
    """The index in the cache with all passages; where another run is building it, it is waited for."""
    waiting = False
    while True:
        opened = None
        try:
            opened = CorpusIndex.open(folder, encoder) if CorpusIndex.exists(folder) else _create(folder, encoder)
            if opened.corpus_hash != benchmark.corpus_hash or not opened.is_embedded():
                opened.add((Document(passage.id, (passage,)) for passage in benchmark.passages), progress=progress)
            return opened
        except IndexInUseError as error:
            if opened is not None:
                opened.close()
            if not waiting:
                logger.warning("%s", error)
            waiting = True
            time.sleep(0.5)


def own_corpus(
    benchmark: Benchmark,
    path: Path,
    *,
    embedder: str = "embedded",
    progress: Callable[[int, int | None], None] | None = None,
) -> CorpusIndex:
    """An index at ``path`` that shares its triples with no other run: at first it has the passages and none.

    Raises:
        CorpusIndexError: The index can't be used.
        RunError: It can't be written.
    """
    if not CorpusIndex.exists(path):
        with open_corpus(benchmark, embedder=embedder, extractor=NONE, progress=progress) as shared:
            shared.flush()
        part = path.with_name(f".{path.name}.part")
        try:
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(shared.path, part)
            part.replace(path)
        except OSError as error:
            raise RunError(f"{path} can't be written: {error.strerror}; choose another --out") from None
    return CorpusIndex.open(path, Embedder(embedder))


def _create(folder: Path, encoder: Embedder) -> CorpusIndex:
    try:
        return CorpusIndex.create(folder, encoder)
    except IndexInUseError:
        raise
    except CorpusIndexError as error:
        if CorpusIndex.exists(folder):  # another run made it meanwhile
            return CorpusIndex.open(folder, encoder)
        raise CorpusIndexError(f"{error}; --cache-dir or CIRAG_DSPY_CACHE names another place for it") from None


def slug(text: str) -> str:
    """A name as part of a file name."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-.")[-60:]
