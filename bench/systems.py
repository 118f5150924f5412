"""What a question costs with each system, beside what people install today: a Markdown table, then a JSON object.

Passages, questions, server and LM are those of ``bench.cost``. The peers' figures are given, not measured: they are
read from ``shared/peers.md``.

    python -m bench.systems [--passages 200] [--data ../shared/data] [--peers ../shared/peers.md]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.cost import Answered, Server, answer, load, run_index, write_corpus
from bench.scripted import Script
from cirag_dspy.corpus.embedder import Embedder
from cirag_dspy.corpus.index import CorpusIndex
from cirag_dspy.evaluate.manifest import machine, versions
from cirag_dspy.systems import SYSTEMS

PEERS = "| asking, per question |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passages", type=int, default=200)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--peers", type=Path, default=Path("../shared/peers.md"))
    options = parser.parse_args()
    openie, questions = load(options.data, options.passages)
    server = Server(Script(openie, questions))
    with tempfile.TemporaryDirectory() as folder:
        run_index(write_corpus(openie, Path(folder)), Path(folder, "index"), server.address)
        with CorpusIndex.open(Path(folder, "index"), Embedder()) as index:
            found = {name: answer(name, index, questions, server) for name in SYSTEMS}
    print("\n".join(table({name: summary(rows) for name, rows in found.items()}, peers(options.peers))))
    runs = {name: summary(rows) | {"wrong": wrong(rows)} for name, rows in found.items()}
    print(json.dumps({"bench": "systems", "runs": runs, "machine": machine(), "versions": versions()}, indent=1))


def summary(rows: Sequence[Answered]) -> dict[str, float]:
    """Means a question, the median of the own overhead, and how many answers are right."""
    return {
        "questions": len(rows),
        "calls": round(statistics.mean(row.calls for row in rows), 1),
        "prompt_tokens": round(statistics.mean(row.prompt_tokens for row in rows)),
        "completion_tokens": round(statistics.mean(row.completion_tokens for row in rows)),
        "own_overhead_ms_median": round(1000 * statistics.median(row.own for row in rows)),
        "right": sum(row.right for row in rows),
        "cited": round(statistics.mean(len({c.passage_id for c in row.prediction.citations}) for row in rows), 1),
        "ranked": round(statistics.mean(len(row.prediction.passages) for row in rows), 1),
    }


def wrong(rows: Sequence[Answered]) -> dict[str, str]:
    """Ids of the questions answered wrongly, with why the system stopped."""
    return {row.question["id"]: row.prediction.get("stopped", "") for row in rows if not row.right}


def peers(path: Path) -> Iterator[list[str]]:
    """The rows of the table of asking in ``shared/peers.md``; none where that is not at hand."""
    _, _, rest = (path.read_text(encoding="utf-8") if path.is_file() else "").partition(PEERS)
    for line in rest.split("\n\n")[0].splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("| ").split("|")]


def table(found: Mapping[str, Mapping[str, float]], given: Iterator[list[str]]) -> Iterator[str]:
    """The lines of a Markdown table: the systems as they were measured, then the peers as they are given."""
    yield (
        "| per question | LM calls | prompt tokens | completion tokens | own overhead, median ms | right "
        "| passages cited, ranked |"
    )
    yield "|---|---|---|---|---|---|---|"
    for name, row in found.items():
        yield (
            f"| {name} | {row['calls']} | {row['prompt_tokens']:,} | {row['completion_tokens']} "
            f"| {row['own_overhead_ms_median']} | {row['right']} of {row['questions']} "
            f"| {row['cited']}, {row['ranked']} |"
        )
    for name, calls, prompt, completion, own, sources in given:
        yield f"| {name} (given, peers.md) | {calls} | {prompt} | {completion} | {own} | not measured | {sources} |"


if __name__ == "__main__":
    main()
