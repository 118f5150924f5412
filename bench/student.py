r"""The student beside plain RAG: one Markdown table from the run folders of ``cirag-dspy eval``.

    cirag-dspy eval --dataset D --data-dir DIR --limit 200 --system S --program P --index I --extract off \
        --out RUNS/D/S-VARIANT
    python -m bench.student RUNS [--seed 0]

Reads ``RUNS/DATASET/SYSTEM-VARIANT/``: each folder is one row, named as the folder is. Scores are percentages; F1 and
the difference in F1 have 95 % bootstrap intervals. A difference is to the plain RAG (``native_rag``) of the same data
set that reads as many passages a search (k), question by question. Abstained: questions without an answer, by the
system's own word. Calls and tokens are means a question, cached calls included in the calls. No timing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cirag_dspy.benchmarks.draw import told
from cirag_dspy.errors import CiragError, RunError
from cirag_dspy.evaluate.compare import compare
from cirag_dspy.evaluate.run import RunFolder

BASELINE = "native_rag"
HEADER = (
    "set", "system", "n", "k", "EM", "F1", "F1 minus plain RAG at this k", "recall@5", "abstained", "LM calls",
    "tokens, prompt + reply",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A finished run: its folder's name, its rows by question, its manifest."""

    name: str
    rows: list[dict[str, Any]]
    manifest: dict[str, Any]

    @property
    def system(self) -> str:
        """Name of the system."""
        return self.manifest["system"]["name"]

    @property
    def k(self) -> int:
        """Passages a search."""
        return self.manifest["system"]["k"]


def main() -> None:
    """Print the table, then what was drawn; what is left out is said on stderr."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, metavar="RUNS", help="Folder of DATASET/SYSTEM-VARIANT/.")
    parser.add_argument("--seed", type=int, default=0, help="Of the bootstrap.")
    options = parser.parse_args()
    try:
        sets = {folder.name: read_runs(folder) for folder in sorted(options.runs.iterdir()) if folder.is_dir()}
        print("\n".join(report({name: runs for name, runs in sets.items() if runs}, options.seed)))
    except (OSError, CiragError) as error:
        sys.exit(f"error: {error}")


def read_runs(folder: Path) -> list[Run]:
    """The finished runs in a folder, by name.

    Raises:
        RunError: Two runs have other questions than each other, so that nothing can be compared.
    """
    runs = []
    for path in sorted(path for path in folder.iterdir() if (path / "run.json").is_file()):
        manifest = json.loads((path / "run.json").read_text(encoding="utf-8"))
        rows = sorted(RunFolder(path).rows(), key=lambda row: str(row["id"]))
        if len(rows) < manifest["dataset"]["n"] or not (path / "results.json").is_file():
            print(
                f"note: {path} is not finished ({len(rows)} of {manifest['dataset']['n']} questions)", file=sys.stderr
            )
            continue
        runs.append(Run(path.name, rows, manifest))
    if len({run.manifest["dataset"]["ids_sha256"] for run in runs}) > 1:
        raise RunError(f"{folder}: {', '.join(run.name for run in runs)} have not all the same questions")
    return runs


def report(sets: dict[str, list[Run]], seed: int) -> Iterator[str]:
    """The lines of the Markdown table, and below it what the questions of each set are."""
    yield f"| {' | '.join(HEADER)} |"
    yield f"|{'---|' * len(HEADER)}"
    for name, runs in sets.items():
        for run in runs:
            yield f"| {' | '.join([name, *cells(run, runs, seed)])} |"
    for name, runs in sets.items():
        record = runs[0].manifest["dataset"]
        drawn = told(record["draw"]) if record.get("draw") else f"{record['n']} questions"
        yield f"\n{name}: {drawn}; ids sha256 {record['ids_sha256'][:12]}; {record['source'].split('/')[-1]}."


def cells(run: Run, runs: list[Run], seed: int) -> list[str]:
    """One row of the table, but for its first cell."""
    baseline = next((one for one in runs if one.system == BASELINE and one.k == run.k), None)
    compared = {run.name: run.rows} | ({baseline.name: baseline.rows} if baseline else {})
    found = compare(compared, against=(baseline or run).name, seed=seed)["runs"][run.name]
    scores, cost = found["scores"], found["cost"]
    recall = next((scores[name] for name in ("recall@5", "answer_recall@5") if name in scores), None)
    return [
        run.name,
        str(found["n"]) + (f", {found['errors']} failed" if found["errors"] else ""),
        str(run.k),
        f"{100 * scores['em']['mean']:.1f}",
        ranged(scores["f1"], ".1f"),
        ranged(found["difference"]["f1"], "+.1f") if "difference" in found else "",
        f"{100 * recall['mean']:.1f}" if recall else "",
        f"{100 * sum(abstained(row) for row in run.rows) / len(run.rows):.1f} %",
        f"{cost['calls'] + cost['cached']:.1f}",
        f"{cost['prompt_tokens']:.0f} + {cost['completion_tokens']:.0f}",
    ]


def ranged(score: dict[str, Any], form: str) -> str:
    """A mean with its interval, in percent."""
    mean, low, high = (
        None if score[key] is None else format(100 * score[key], form) for key in ("mean", "low", "high")
    )
    return f"{mean}" if low is None else f"{mean} [{low}, {high}]"


def abstained(row: dict[str, Any]) -> bool:
    """Whether the system gave no answer of its own; of rows before ``answered`` was kept, an empty one."""
    return not row["error"] and not row.get("answered", bool(row["answer"]))


if __name__ == "__main__":
    main()
