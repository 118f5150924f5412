"""What a trained aligner finds that the index's own embedder does not: gold triples, and through them gold passages.

python -m bench.aligner --aligner runs/aligner [--datasets 2wikimultihopqa,musique] [--limit 100] [--index FOLDER]

Along the gold chain of each dev question: at every step the triples of the passages retrieved so far are ranked against
the question and the gold triples before it. Without --index the triples are what --lm extracts; annotations writes the
gold facts of 2WikiMultiHopQA into them, so give an index with an LM's triples for numbers that say something of the
whole. Prints a table in Markdown, then one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from cirag_dspy.cli import common
from cirag_dspy.corpus.embedder import Embedder
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.distill.links import Walk, passage_recall, triple_recall, walk
from cirag_dspy.evaluate.corpus import open_corpus
from cirag_dspy.evaluate.manifest import machine, versions
from cirag_dspy.pipeline.align import open_trainsets
from cirag_dspy.pipeline.trainset import TrainingSet

TRIPLES_AT, PASSAGES_AT = (5, 20), (3, 5)
RULES = {
    "gold triple": "a triple extracted from the gold passage of a step that holds the step's answer and names what it "
    "is about (Step.holds of lms/gold.py; of HotpotQA: that says what the supporting sentence says)",
    "triple_recall@n": "share of the gold triples, one a step, among the n best of those offered, given the gold chain "
    "before; found in its own passage or in the same words elsewhere; mean over steps",
    "passage_recall@k": "share of the gold passages among the k with the best triples, of the 20 best at each step; "
    "gold that the corpus lacks counts as not found; mean over questions",
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--datasets", default="2wikimultihopqa,musique")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--limit", type=int, help="Questions, drawn at random by seed 0.")
    parser.add_argument("--aligner", type=Path, action="append", default=[], help="Again for more.")
    parser.add_argument("--index", type=Path, help="With triples; of one data set.")
    parser.add_argument("--lm", default="annotations", help="Extracts the triples where there is no --index.")
    parser.add_argument("--embedder", default="embedded")
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--threads", type=int, default=8)
    options = parser.parse_args()
    common.prepare()
    names = options.datasets.split(",")
    data = {"split": options.split, "limit": options.limit, "lm": options.lm, "embedder": options.embedder}
    found = []
    for trainset in open_trainsets(names, **data, data_dir=options.data):
        with opened(trainset, options) as index:
            found += measured(trainset, index, options)
    print("\n".join(table(found)))
    print(json.dumps({"bench": "aligner", "runs": found, "rules": RULES, "machine": machine(), "versions": versions()}))


@contextmanager
def opened(trainset: TrainingSet, options: argparse.Namespace) -> Iterator[CorpusIndex]:
    """The index of a data set, with triples."""
    if options.index:
        with open_corpus(trainset.benchmark, path=options.index) as index:
            yield index
    else:
        with trainset.index(options.threads, partial(common.progress, quiet=False)) as (index, _):
            yield index


def measured(trainset: TrainingSet, index: CorpusIndex, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for the index's own embedder, and one for each aligner."""
    corpus = {passage.id: passage for passage in trainset.benchmark.passages}
    walks = [walk(example, corpus, index, options.k) for example in trainset.train]
    for folder in (None, *options.aligner):
        index.use_ranker(Embedder(str(folder)) if folder else None)
        row = {
            "dataset": trainset.name,
            "ranker": folder.name if folder else options.embedder,
            "questions": len(walks),
            "gold_steps": sum(one.steps for one in walks),
            "stated": sum(one.stated for one in walks),
            "extractor": index.extractor,
            **scores(walks, index),
        }
        print(json.dumps(row), file=sys.stderr, flush=True)
        yield row


def scores(walks: Sequence[Walk], index: CorpusIndex) -> dict[str, float]:
    """The recalls of the index as it ranks now."""
    triples = {f"triple_recall@{n}": triple_recall(walks, index.rank_scored, n) for n in TRIPLES_AT}
    passages = {f"passage_recall@{k}": passage_recall(walks, index.rank_scored, k, n=20) for k in PASSAGES_AT}
    return {name: round(value, 4) for name, value in (triples | passages).items()}


def table(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The rows of a Markdown table."""
    names = [f"triple_recall@{n}" for n in TRIPLES_AT] + [f"passage_recall@{k}" for k in PASSAGES_AT]
    yield f"| data | ranked by | questions | gold facts stated | {' | '.join(names).replace('_', ' ')} |"
    yield "|---" * (4 + len(names)) + "|"
    for run in runs:
        told = [run["dataset"], run["ranker"], run["questions"], f"{run['stated']} of {run['gold_steps']}"]
        yield f"| {' | '.join(map(str, told))} | {' | '.join(f'{100 * run[name]:.1f}' for name in names)} |"


if __name__ == "__main__":
    main()
