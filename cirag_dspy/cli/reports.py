"""What ``eval`` and ``ablate`` say of finished runs: on stdout, in files, and what failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cirag_dspy.cli import common

if TYPE_CHECKING:
    from cirag_dspy.benchmarks.base import Benchmark
    from cirag_dspy.evaluate.run import RunFolder


@dataclass(frozen=True)
class Finished:
    """A run that is through: where it is kept, its summary and manifest, how far extraction is in its index, and the
    answers that could not be judged.
    """

    name: str
    folder: RunFolder
    summary: dict[str, Any]
    manifest: dict[str, Any]
    extraction: dict[str, int]
    needs_triples: bool
    unjudged: list[dict[str, str]] = field(default_factory=list)


def compared(finished: Sequence[Finished], benchmark: Benchmark, *, against: str | None) -> dict[str, Any]:
    """The comparison of finished runs."""
    from cirag_dspy.evaluate.compare import compare

    settings = {run.name: run.manifest["system"] for run in finished}
    rows = {run.name: rows_of(run, benchmark) for run in finished}
    return compare(rows, against=against, settings=settings) | {"draw": benchmark.notes["draw"]}


def rows_of(run: Finished, benchmark: Benchmark) -> list[dict[str, Any]]:
    """The rows of a run, in the order of the benchmark's questions."""
    rows = {row["id"]: row for row in run.folder.rows()}
    return [rows[example.id] for example in benchmark.examples if example.id in rows]


def write_reports(title: str, comparison: dict[str, Any], csv: Path | None, markdown: Path | None) -> None:
    """The tables as files."""
    from cirag_dspy.evaluate.report import comparison_csv, comparison_markdown
    from cirag_dspy.files import write_text

    if csv is not None:
        write_text(csv, comparison_csv(comparison))
    if markdown is not None:
        write_text(markdown, comparison_markdown(title, comparison))


def print_comparison(
    title: str, finished: Sequence[Finished], comparison: dict[str, Any], *, as_json: bool, quiet: bool
) -> None:
    """Several runs on stdout: as one document, or as one table."""
    from cirag_dspy.evaluate.report import comparison_lines

    if as_json:
        runs = {
            run.name: {
                "out": str(run.folder.path),
                "summary": run.summary,
                "extraction": run.extraction,
                "manifest": run.manifest,
            }
            for run in finished
        }
        common.print_json({"title": title, "runs": runs, "comparison": comparison})
        return
    typer.echo(comparison_lines(title, comparison))
    common.say(f"rows, manifests and summaries: {', '.join(str(run.folder.path) for run in finished)}", quiet)
    cached = sum(run.summary["lm"]["cached"] for run in finished)
    if cached:
        common.say(
            f"note: {cached} LM calls were answered from DSPy's cache, so tokens are too low; --no-cache pays for "
            "all of them",
            quiet,
        )


def exit_with_failures(finished: Sequence[Finished]) -> None:
    """List what failed on stderr, and exit with 1 if a question or a verdict did."""
    told = set()
    for run in finished:
        missing = f"{run.extraction['failed']} of {run.extraction['passages']} passages"
        if run.needs_triples and run.extraction["failed"] and missing not in told:
            common.say(f"no triples could be extracted from {missing}")
            told.add(missing)
    failed = 0
    for run in finished:
        common.say_cut(run.summary.get("lm", {}))
        rows = [{"id": row["id"], "error": row["error"]} for row in run.folder.rows() if row["error"]]
        of = f" of {run.name}" if len(finished) > 1 else ""
        common.list_failures(rows, f"questions{of}", "--resume")
        common.list_failures(run.unjudged, f"verdicts{of}", "--resume")
        failed += len(rows) + len(run.unjudged)
    if failed:
        raise typer.Exit(1)
