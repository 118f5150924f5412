"""Recall of the plain retriever: the question as the query, passages ranked by the embedder alone.

python -m bench.recall --dataset hotpotqa [--data ../shared/data] [--data-file F --corpus F] [--embedder embedded]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

from cirag_dspy.benchmarks import load_benchmark
from cirag_dspy.evaluate.corpus import open_corpus
from cirag_dspy.evaluate.manifest import machine, versions
from cirag_dspy.evaluate.retrieval import RULES, all_recall_at, recall_at

KS = (2, 5, 10)


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="hotpotqa")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--data-file", type=Path)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--embedder", default="embedded")
    options = parser.parse_args()
    benchmark = load_benchmark(
        options.dataset,
        options.split,
        data_dir=None if options.data_file else options.data,
        data_file=options.data_file,
        corpus=options.corpus,
    )
    started = time.perf_counter()
    scores: dict[str, list[dict[int, float]]] = {"recall": [], "all_recall": [], "recall_of_gold_in_corpus": []}
    with open_corpus(benchmark, embedder=options.embedder, extractor="none") as index:
        built = time.perf_counter() - started
        for example in benchmark.examples:
            ids = [hit.passage.id for hit in index.search(example.question, max(KS))]
            gold, missing = example.gold_passages, example.gold_missing
            scores["recall"].append(recall_at(ids, gold, KS, missing=missing))
            scores["all_recall"].append(all_recall_at(ids, gold, KS, missing=missing))
            if gold:
                scores["recall_of_gold_in_corpus"].append(recall_at(ids, gold, KS))
    result = {
        "bench": "recall",
        "dataset": benchmark.name,
        "source": benchmark.source,
        "questions": len(benchmark.examples),
        "passages": len(benchmark.passages),
        "gold_passages": benchmark.notes["gold_total"],
        "gold_missing_from_corpus": benchmark.notes["gold_missing"],
        "embedder": options.embedder,
        **{
            name: {f"@{k}": round(statistics.mean(row[k] for row in rows), 4) for k in KS}
            for name, rows in scores.items()
        },
        "rules": RULES,
        "seconds_to_build": round(built, 1),
        "machine": machine(),
        "versions": versions(),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
