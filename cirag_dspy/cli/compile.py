"""``cirag-dspy compile``: a recipe to a saved program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cirag_dspy.cli import common, stages


def compile_(
    recipe: stages.Recipe,
    optimizer: Annotated[
        str | None,
        typer.Option(help="Not the recipe's: trajectory_distillation, bootstrap_random_search, mipro or gepa."),
    ] = None,
    overrides: stages.Overrides = None,
    from_traces: Annotated[
        list[Path] | None, typer.Option(help="Saved trajectories in place of a teacher; again for more.")
    ] = None,
    first: stages.First = False,
    data_dir: stages.DataDir = None,
    work: stages.Work = None,
    out: Annotated[Path | None, typer.Option(help="The program's folder; default: optimized/NAME.")] = None,
    device: stages.Device = None,
    dtype: stages.Dtype = None,
    api_base: common.ApiBase = None,
    tries: common.Tries = 4,
    timeout: common.Timeout = 120.0,
    no_cache: common.NoCache = False,
    threads: common.Threads = 8,
    resume: stages.Resume = True,
    strict: stages.Strict = False,
    dry_run: common.DryRun = False,
    cache_dir: common.CacheDir = None,
    as_json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Run the teacher, train the student (or compile prompts), and save the program. What is up to date is kept."""
    common.prepare(cache_dir)
    pipeline = stages.open_pipeline(
        recipe,
        [
            *(overrides or []),
            *([f"optimizer={optimizer}"] if optimizer else []),
            *(["data.first=true"] if first else []),
        ],
        common.LMOptions(api_base, None, tries, timeout, cache=not no_cache),
        work=work,
        out=out,
        data_dir=data_dir,
        from_traces=from_traces or [],
        threads=threads,
        resume=resume,
        device=device,
        dtype=dtype,
        quiet=quiet,
        strict=strict,
    )
    if dry_run:
        stages.print_plan(pipeline, as_json)
        return
    report = pipeline.compile()
    stages.print_report(report, as_json)
    if stages.failures(report):
        raise typer.Exit(1)
