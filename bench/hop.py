"""What one hop costs besides its LM: search, triple lookup and ranking, with the real query encoder.

Against encoding the candidate triples when the query comes, as a system without stored triple vectors must. Each query
is asked once, so that none is remembered. The passages of the index have random unit vectors; its triples are pieces of
real sentences, with random unit vectors too, so that the bench starts at once. Prints one line of JSON.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from cirag_dspy.corpus.embedder import Embedder, unit
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import read_corpus
from cirag_dspy.corpus.shelves import fact
from cirag_dspy.schema import Extraction, Passage, Triple

DATA = Path(__file__).parents[2] / "shared/data/2wikimultihopqa"


def pieces(passage: Passage, n: int) -> Extraction:
    """``n`` triples cut from the sentences of a passage, of the length that extracted ones have."""
    triples = []
    for i in range(n):
        sentence = i % len(passage.sentences)
        words = passage.sentences[sentence].split()
        at = (3 * i) % max(1, len(words) - 7)
        triples.append(
            Triple(
                passage.title or "It",
                " ".join(words[at : at + 3]),
                f"{' '.join(words[at + 3 : at + 7])} {i}",
                passage.id,
                sentence,
            )
        )
    return Extraction("done", tuple(triples))


class Clock:
    """Wall and CPU milliseconds by name."""

    def __init__(self) -> None:
        self.times: dict[str, list[tuple[float, float]]] = {}

    @contextmanager
    def __call__(self, name: str):
        """Time a block."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        took = (1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu))
        self.times.setdefault(name, []).append(took)

    def medians(self, which: int) -> dict[str, float]:
        """Medians of wall (0) or CPU (1) time."""
        return {name: round(statistics.median(t[which] for t in times), 2) for name, times in self.times.items()}


class Quick:
    """The embedder, with random passage vectors while the index is built."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self.random = np.random.default_rng(0)

    def __getattr__(self, name: str):
        return getattr(self.embedder, name)

    def encode_passages(self, texts):  # noqa: D102
        return unit(self.random.normal(size=(len(texts), self.embedder.dimension)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=6119)
    parser.add_argument("--triples", type=int, default=60_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--n", type=int, default=30)
    parser.add_argument("--corpus", type=Path, default=DATA / "hipporag_corpus.json")
    parser.add_argument("--questions", type=Path, default=DATA / "hipporag_questions.json")
    parser.add_argument("--torch-threads", type=int, help="default: torch's own choice")
    args = parser.parse_args()
    if args.torch_threads:
        torch.set_num_threads(args.torch_threads)

    embedder = Embedder()
    questions = [row["question"] for row in json.loads(args.questions.read_text())]
    queries = list(dict.fromkeys(questions))[: args.queries + 5]
    with tempfile.TemporaryDirectory() as folder, CorpusIndex.create(folder, Quick(embedder)) as index:
        index.add(islice(read_corpus(args.corpus), args.passages))
        passages = index.pending()
        per_passage, more = divmod(args.triples, len(passages))
        for i, passage in enumerate(passages):
            index.keep(passage.id, pieces(passage, per_passage + (i < more)))
        index.embed_triples(batch=10_000)
        counts = index.counts()

        clock = Clock()
        for i, query in enumerate(queries):
            if i == 5:
                clock = Clock()  # the first few warm up
            with clock("hop"):
                hits = index.search(query, args.k)
                found = index.triples(hit.passage.id for hit in hits)
                candidates = [triple for triples in found.values() for triple in triples]
                index.rank(query, candidates, args.n)
            with clock("encode_candidates"):
                vectors = embedder.encode_passages([fact(triple) for triple in candidates])
                np.argsort(-(vectors @ embedder.encode_query(query)))[: args.n]
            with clock("encode_query"):
                embedder.encode_query(f"{query} ")

    wall, cpu = clock.medians(0), clock.medians(1)
    report = {
        "bench": "hop",
        "ratio": round(wall["encode_candidates"] / wall["hop"], 1),
        "cpu_ratio": round(cpu["encode_candidates"] / cpu["hop"], 1),
        "ms": wall,
        "cpu_ms": cpu,
        "candidates": len(candidates),
        "queries": len(queries) - 5,
        **{name: counts[name] for name in ("passages", "triples")},
        "k": args.k,
        "n": args.n,
        "torch_threads": torch.get_num_threads(),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}",
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
