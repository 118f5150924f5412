"""``cirag-dspy traces``: a recipe's teacher over its training questions."""

from __future__ import annotations

import typer

from cirag_dspy.cli import common, stages


def traces(
    recipe: stages.Recipe,
    overrides: stages.Overrides = None,
    first: stages.First = False,
    data_dir: stages.DataDir = None,
    work: stages.Work = None,
    api_base: common.ApiBase = None,
    tries: common.Tries = 4,
    timeout: common.Timeout = 120.0,
    no_cache: common.NoCache = False,
    threads: common.Threads = 8,
    resume: stages.Resume = True,
    dry_run: common.DryRun = False,
    cache_dir: common.CacheDir = None,
    as_json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Run the teacher, a line of JSON a question; what is there is not asked again."""
    common.prepare(cache_dir)
    pipeline = stages.open_pipeline(
        recipe,
        [*(overrides or []), *(["data.first=true"] if first else [])],
        common.LMOptions(api_base, None, tries, timeout, cache=not no_cache),
        work=work,
        data_dir=data_dir,
        threads=threads,
        resume=resume,
        quiet=quiet,
    )
    if dry_run:
        stages.print_plan(pipeline, as_json)
        return
    report = {"traces": pipeline.traces()}
    stages.print_report(report, as_json)
    if stages.failures(report):
        raise typer.Exit(1)
