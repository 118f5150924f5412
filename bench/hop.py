"""What one hop costs besides its LM: search, triple lookup and ranking, with the real query encoder.

Against a hop that encodes its candidate triples when the query comes, as a system without stored triple vectors must. Each query
is asked once, so that no query is remembered; the passages of the index have random unit vectors, its triples are pieces of real
sentences, also with random unit vectors, so that the bench starts at once. Prints one line of JSON.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np

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


class Quick:
    """The embedder, with random passage vectors while the index is built."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self.random = np.random.default_rng(0)

    def __getattr__(self, name: str):
        return getattr(self.embedder, name)

    def encode_passages(self, texts):
        return unit(self.random.normal(size=(len(texts), self.embedder.dimension)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=6119)
    parser.add_argument("--triples", type=int, default=60_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--n", type=int, default=30)
    parser.add_argument("--corpus", type=Path, default=DATA / "hipporag_corpus.json")
    parser.add_argument("--questions", type=Path, default=DATA / "hipporag_questions.json")
    args = parser.parse_args()

    embedder = Embedder()
    questions = [row["question"] for row in json.loads(args.questions.read_text())]
    queries = list(dict.fromkeys(questions))[: args.queries + 5]
    timings: dict[str, list[float]] = {"hop": [], "query": [], "candidates": [], "encode_at_query_time": []}
    with tempfile.TemporaryDirectory() as folder, CorpusIndex.create(folder, Quick(embedder)) as index:
        index.add(islice(read_corpus(args.corpus), args.passages))
        passages = index.pending()
        per_passage, more = divmod(args.triples, len(passages))
        for i, passage in enumerate(passages):
            index.keep(passage.id, pieces(passage, per_passage + (i < more)))
        index.embed_triples(batch=10_000)
        counts = index.counts()

        for i, query in enumerate(queries):
            start = time.perf_counter()
            hits = index.search(query, args.k)
            found = index.triples(hit.passage.id for hit in hits)
            candidates = [triple for triples in found.values() for triple in triples]
            index.rank(query, candidates, args.n)
            hop = time.perf_counter() - start

            start = time.perf_counter()
            vectors = embedder.encode_passages([fact(triple) for triple in candidates])
            np.argsort(-(vectors @ embedder.encode_query(query)))[: args.n]
            encoding = time.perf_counter() - start

            start = time.perf_counter()
            embedder.encode_query(f"{query} ")
            encoding_query = time.perf_counter() - start
            if i >= 5:  # the first few warm up
                timings["hop"].append(hop)
                timings["query"].append(encoding_query)
                timings["candidates"].append(len(candidates))
                timings["encode_at_query_time"].append(encoding)

    median = {name: statistics.median(values) for name, values in timings.items()}
    report = {
        "bench": "hop",
        "hop_ms": round(1000 * median["hop"], 2),
        "hop_p95_ms": round(1000 * float(np.percentile(timings["hop"], 95)), 2),
        "of_it_query_encoding_ms": round(1000 * median["query"], 2),
        "encode_candidates_ms": round(1000 * median["encode_at_query_time"], 2),
        "ratio": round(median["encode_at_query_time"] / median["hop"], 1),
        "ratio_without_query_encoding": round(
            median["encode_at_query_time"] / max(1e-6, median["hop"] - median["query"]), 1
        ),
        "candidates": median["candidates"],
        "queries": len(timings["hop"]),
        **{name: counts[name] for name in ("passages", "triples")},
        "k": args.k,
        "n": args.n,
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}",
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
