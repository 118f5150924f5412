"""``cirag-dspy eval``: a system, or several beside each other, over a benchmark's questions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cirag_dspy.cli import common, planning, preflight, reports, runs


def evaluate(
    dataset: runs.Dataset,
    split: runs.Split = "dev",
    data_dir: runs.DataDir = None,
    data_file: runs.DataFile = None,
    corpus: runs.Corpus = None,
    setting: runs.Setting = "distractor",
    limit: runs.Limit = None,
    seed: runs.Seed = None,
    first: runs.First = False,
    ids: runs.Ids = None,
    unanswerable: runs.Unanswerable = False,
    program: common.Program = None,
    system: Annotated[
        str | None,
        typer.Option(
            help="A system, or several to compare, separated by commas; default: the program's, else cirag.",
            rich_help_panel="System",
        ),
    ] = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help="Passages per search.", rich_help_panel="System")] = None,
    n: Annotated[int | None, typer.Option("-n", min=1, help="Candidates per hop.", rich_help_panel="System")] = None,
    max_hops: Annotated[int | None, typer.Option(min=1, help="Hops at most.", rich_help_panel="System")] = None,
    levels: Annotated[str | None, typer.Option(help="Of triples,sentences,passages.", rich_help_panel="System")] = None,
    rank: Annotated[
        bool | None, typer.Option("--rank/--no-rank", help="Rank the candidates.", rich_help_panel="System")
    ] = None,
    overrides: runs.Set = None,
    extract: Annotated[
        str | None,
        typer.Option(
            help="online as retrieved, offline all first, off none new, given the demo's own; default: online, of "
            "several systems offline.",
            rich_help_panel="System",
        ),
    ] = None,
    calls: runs.Calls = None,
    lm: common.LM = None,
    extraction_lm: runs.ExtractionLM = None,
    judge_lm: runs.JudgeLM = None,
    api_base: common.ApiBase = None,
    max_tokens: common.MaxTokens = None,
    tries: common.Tries = 4,
    timeout: common.Timeout = 120.0,
    no_cache: common.NoCache = False,
    latency: runs.Latency = False,
    abstain: runs.Abstain = False,
    index: runs.Index = None,
    embedder: common.EmbedderName = "embedded",
    aligner: common.Aligner = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Run folder, of several systems the folder of theirs; default: runs/DATASET-SYSTEM-LM."),
    ] = None,
    threads: common.Threads = 8,
    resume: runs.Resume = False,
    against: runs.Against = None,
    csv: runs.Csv = None,
    markdown: runs.Markdown = None,
    write_official: Annotated[
        Path | None,
        typer.Option(help="Also write predictions for the data set's official script here.", rich_help_panel="Report"),
    ] = None,
    dry_run: common.DryRun = False,
    cache_dir: common.CacheDir = None,
    as_json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Ask a system the questions of a benchmark and score it with the official metrics; or compare several."""
    common.prepare(cache_dir)
    from cirag_dspy.benchmarks import load_benchmark
    from cirag_dspy.cli.knobs import settings_by_system
    from cirag_dspy.evaluate.corpus import slug
    from cirag_dspy.evaluate.official import require_format, run_file, write_run
    from cirag_dspy.evaluate.report import summary_lines
    from cirag_dspy.evaluate.run import RunFolder
    from cirag_dspy.evaluate.variants import Variant, check_reference, check_systems, passages_seen

    saved = common.read_program(program)
    systems = runs.names(system) or (saved.system if saved else "cirag",)
    check_systems(systems)
    flags = common.given(k=k, n=n, max_hops=max_hops, levels=list(runs.names(levels) or ()) or None, rank=rank)
    settings = settings_by_system(systems, flags, overrides or [])
    variants = [Variant(name, name, settings[name]) for name in systems]
    check_reference(systems, against)
    plan = planning.make_plan(variants, saved, extract=extract, calls=calls, latency=latency)
    if write_official is not None:
        require_format(dataset)
    common.require_aligner(aligner)
    benchmark = load_benchmark(
        dataset,
        split,
        data_dir=data_dir,
        data_file=data_file,
        corpus=corpus,
        **runs.drawn(limit, seed, first),
        ids=runs.names(ids),
        setting=setting,
        unanswerable=unanswerable,
    )
    runs.say_warnings(benchmark, quiet)
    name = runs.lm_name(plan, lm)
    if len(systems) > 1 and out is not None:
        folders = runs.folders_in(out, plan)
    else:
        folders = [RunFolder(out or Path("runs") / f"{dataset}-{one}-{slug(name)}") for one in systems]
    official = [run_file(dataset, write_official, one) for one in systems] if write_official is not None else []
    preflight.check_lms([lm, extraction_lm, judge_lm, *preflight.program_lms(saved, lm)])
    preflight.check_outputs(folders, [csv, markdown, *official], benchmark, resume=resume, dry_run=dry_run)
    preflight.check_index(plan, benchmark, index, embedder, dry_run=dry_run)
    if dry_run:
        planning.print_cost(plan, benchmark, as_json, judged=bool(judge_lm))
        return
    options = common.LMOptions(api_base, max_tokens, tries, timeout, cache=not (no_cache or latency))
    finished = runs.run_plan(
        plan,
        benchmark,
        folders,
        runs.open_models(plan, options, benchmark, lm=lm, extraction_lm=extraction_lm, judge_lm=judge_lm),
        index=index,
        embedder=embedder,
        aligner=aligner,
        threads=1 if latency else threads,
        latency=latency,
        abstain=abstain,
        resume=resume,
        quiet=quiet,
    )
    title = f"{dataset} {split}, {len(benchmark.examples)} questions"
    several = len(finished) > 1
    if several or csv or markdown:
        comparison = reports.compared(finished, benchmark, against=against)
        reports.write_reports(f"{title}, {name}", comparison, csv, markdown)
    if write_official is not None:
        for run in finished:
            write_run(benchmark, reports.rows_of(run, benchmark), write_official, run.name)
    only = finished[0]
    if several:
        reports.print_comparison(f"{title}, {name}", finished, comparison, as_json=as_json, quiet=quiet)
    elif as_json:
        common.print_json(
            {
                "out": str(only.folder.path),
                "summary": only.summary,
                "extraction": only.extraction,
                "manifest": only.manifest,
            }
        )
    else:
        typer.echo(summary_lines(f"{title}, {only.name}, {name}", only.summary, passages_seen(only.manifest["system"])))
        common.say(f"rows, manifest and summary: {only.folder.path}", quiet)
    reports.exit_with_failures(finished)
