"""A model's triples against those of gpt-3.5-turbo on held-out passages of the openie sample, and its speed.

python -m bench.extraction --lm embedded+optimized/cirag-smollm2/adapter [--program optimized/cirag-smollm2] [--n 100]

Rule: two triples match when the F1 of their words (head, relation and tail together, case and punctuation aside) is at
least 0.6; each triple is matched at most once, best pairs first. Precision, recall and F1 are over all triples of all
passages. The first N passages of the file are measured; a student must not be trained on them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import dspy

import cirag_dspy
from cirag_dspy.evaluate.manifest import machine, versions
from cirag_dspy.modules.extract import Extract
from cirag_dspy.modules.threads import each_in_threads
from cirag_dspy.schema import Passage
from cirag_dspy.text import words

MATCH = 0.6


def matches(found: Sequence[str], gold: Sequence[str]) -> int:
    """How many triples (as text) of ``found`` match one of ``gold``, one to one, best pairs first."""
    pairs = [(score(a, b), i, j) for i, a in enumerate(found) for j, b in enumerate(gold)]
    taken_found: set[int] = set()
    taken_gold: set[int] = set()
    for value, i, j in sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2])):
        if value >= MATCH and i not in taken_found and j not in taken_gold:
            taken_found.add(i)
            taken_gold.add(j)
    return len(taken_found)


def score(one: str, other: str) -> float:
    """Word F1."""
    a, b = Counter(words(one)), Counter(words(other))
    shared = (a & b).total()
    return 2 * shared / (a.total() + b.total()) if shared else 0.0


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lm", default="embedded")
    parser.add_argument("--program", help="A compiled program, for its prompts and LM.")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/openie/musique_train_gpt-3.5-turbo.jsonl"))
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=256)
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.data.read_text(encoding="utf-8").splitlines()[: options.n]]
    gold = {}
    for row in rows:
        passage = Passage.create(row["title"], row["text"])
        gold[passage.id] = (passage, [" ".join(map(str, triple)) for triple in row["triples"]])

    if options.program:
        program = cirag_dspy.load(options.program, cache=False, max_batch=options.threads)
        extract = program.construct.extract
        name = extract.triples.lm.model
    else:
        lm = cirag_dspy.load_lm(options.lm, max_tokens=options.max_tokens, cache=False, max_batch=options.threads)
        extract, name = Extract("one"), lm.model
        extract.set_lm(lm)
    extract(passage=Passage.create("Warm up", "This is a passage."))
    started = time.perf_counter()
    with dspy.context(disable_history=True):
        done = {
            passage.id: prediction.extraction
            for (passage, _), prediction in each_in_threads(
                lambda pair: extract(passage=pair[0], fresh=True), gold.values(), options.threads
            )
        }
    seconds = time.perf_counter() - started
    hit = sum(matches([t.text for t in done[id].triples], triples) for id, (_, triples) in gold.items())
    found, wanted = sum(len(e.triples) for e in done.values()), sum(len(triples) for _, triples in gold.values())
    precision, recall = hit / max(1, found), hit / max(1, wanted)
    result = {
        "bench": "extraction",
        "lm": name,
        "data": options.data.name,
        "passages": len(gold),
        "states": dict(Counter(extraction.state for extraction in done.values())),
        "triples": {"found": found, "gold": wanted, "matched": hit},
        "match": f"word F1 >= {MATCH}, one to one",
        "precision": round(precision, 4),
        "recall": round(recall, 4),
        "f1": round(2 * precision * recall / max(1e-9, precision + recall), 4),
        "passages_per_minute": round(60 * len(gold) / seconds, 1),
        "machine": machine(),
        "versions": versions(),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
