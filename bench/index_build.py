"""How much of the bare encoding speed of a model is left when `CorpusIndex.add` builds an index with it.

Both sides run in one process with one model, on the same texts, in alternating order. Prints one line of JSON:
``ratio`` is the median over the repeats of (passages/s of add) / (passages/s of SentenceTransformer.encode);
``cpu_ratio`` the same in CPU seconds, which other work on the machine disturbs less.
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

import torch

from cirag_dspy.corpus.embedder import Embedder
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.corpus.ingest import read_corpus

CORPUS = Path(__file__).parents[2] / "shared/data/2wikimultihopqa/hipporag_corpus.json"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="texts per forward pass, on both sides")
    parser.add_argument("--embedder", default="embedded")
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--torch-threads", type=int, help="default: torch's own choice")
    args = parser.parse_args()
    if args.torch_threads:
        torch.set_num_threads(args.torch_threads)

    documents = list(islice(read_corpus(args.corpus), args.passages))
    passages = [passage for document in documents for passage in document.passages]
    texts = [f"{passage.title}\n{passage.text}" if passage.title else passage.text for passage in passages]
    embedder = Embedder(args.embedder, batch_size=args.batch_size)
    model = embedder.load()
    model.encode(texts[: args.batch_size], show_progress_bar=False)

    def bare() -> tuple[float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        model.encode(texts, batch_size=args.batch_size, prompt=embedder.passage_prompt, show_progress_bar=False)
        return time.perf_counter() - wall, time.process_time() - cpu

    def add() -> tuple[float, float]:
        with tempfile.TemporaryDirectory() as folder, CorpusIndex.create(folder, embedder) as index:
            wall, cpu = time.perf_counter(), time.process_time()
            index.add(documents)
            return time.perf_counter() - wall, time.process_time() - cpu

    runs = []
    for repeat in range(args.repeats):
        if repeat % 2:
            added, encoded = add(), bare()
        else:
            encoded, added = bare(), add()
        runs.append({"bare_s": encoded[0], "add_s": added[0], "bare_cpu_s": encoded[1], "add_cpu_s": added[1]})
    report = {
        "bench": "index_build",
        "ratio": round(statistics.median(run["bare_s"] / run["add_s"] for run in runs), 3),
        "cpu_ratio": round(statistics.median(run["bare_cpu_s"] / run["add_cpu_s"] for run in runs), 3),
        "bare_passages_per_s": round(len(texts) / statistics.median(run["bare_s"] for run in runs), 1),
        "add_passages_per_s": round(len(texts) / statistics.median(run["add_s"] for run in runs), 1),
        "passages": len(texts),
        "embedder": embedder.name,
        "runs": [{name: round(value, 2) for name, value in run.items()} for run in runs],
        "torch_threads": torch.get_num_threads(),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}",
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
