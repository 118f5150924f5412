"""``cirag-dspy ablate``: one system with different settings, beside each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from cirag_dspy.cli import common, planning, preflight, reports, runs
from cirag_dspy.errors import RunError


def ablate(
    grid: Annotated[
        str,
        typer.Argument(help="granularity, n, hops, ranker, extraction, distillation, decomposition, or a TOML file."),
    ],
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
    program: common.Program = None,
    system: Annotated[
        str | None,
        typer.Option(help="Default: the file's, the program's, or cirag.", rich_help_panel="System"),
    ] = None,
    overrides: runs.Set = None,
    calls: runs.Calls = None,
    lm: common.LM = None,
    extraction_lm: runs.ExtractionLM = None,
    api_base: common.ApiBase = None,
    max_tokens: common.MaxTokens = None,
    tries: common.Tries = 4,
    timeout: common.Timeout = 120.0,
    no_cache: common.NoCache = False,
    latency: runs.Latency = False,
    extract: Annotated[
        str | None,
        typer.Option(
            help="When triples are extracted, as of eval; default: offline, of a single variant online.",
            rich_help_panel="System",
        ),
    ] = None,
    index: runs.Index = None,
    embedder: common.EmbedderName = "embedded",
    aligner: common.Aligner = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs; default: runs/DATASET-GRID-SYSTEM-LM.")] = None,
    threads: common.Threads = 8,
    resume: runs.Resume = False,
    against: Annotated[
        str | None,
        typer.Option(
            help="What the others are compared with; default: the variant that changes nothing, else the first.",
            rich_help_panel="Report",
        ),
    ] = None,
    csv: runs.Csv = None,
    markdown: runs.Markdown = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw EM and F1: .svg, .png or .pdf.", rich_help_panel="Report")
    ] = None,
    dry_run: common.DryRun = False,
    cache_dir: common.CacheDir = None,
    as_json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Run one system with each of several settings, and compare: the paper's ablations, or your own.

    Each variant is compared with the one that changes nothing, if there is one, else with the first.
    """
    common.prepare(cache_dir)
    from cirag_dspy.benchmarks import load_benchmark
    from cirag_dspy.cli.knobs import settings_by_system
    from cirag_dspy.evaluate.ablate import find_grid
    from cirag_dspy.evaluate.corpus import slug
    from cirag_dspy.evaluate.plot import draw, require_plot
    from cirag_dspy.evaluate.variants import check_reference, check_systems
    from cirag_dspy.recipe import checked_settings
    from cirag_dspy.systems import settings_of

    saved = common.read_program(program)
    chosen = find_grid(grid)
    system = system or chosen.system or (saved.system if saved else "cirag")
    check_systems([system])
    held = saved.settings(system) if saved and system in saved.systems else {}
    own = settings_by_system([system], {}, overrides or [])[system]
    if varied := [name for name in own if all(name in point for point in chosen.points.values())]:
        raise RunError(f"--set {varied[0]}: {chosen.name} varies it, so that is never used; leave it out")
    variants = [
        replace(variant, settings=checked_settings(system, variant.settings, f"{variant.name}:"))
        for variant in chosen.variants(system, own)
    ]
    against = against or chosen.reference({**settings_of(system), **held, **chosen.settings, **own})
    check_reference([variant.name for variant in variants], against)
    plan = planning.make_plan(variants, saved, extract=extract, calls=calls, latency=latency)
    if not all(variant.student for variant in variants):
        planning.student_base(saved, lm)
    if plot is not None:
        require_plot(plot)
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
    )
    runs.say_warnings(benchmark, quiet)
    name = runs.lm_name(plan, lm)
    folders = runs.folders_in(out or Path("runs") / f"{dataset}-{chosen.name}-{system}-{slug(name)}", plan)
    preflight.check_lms([lm, extraction_lm, *preflight.program_lms(saved, lm)])
    preflight.check_outputs(folders, [csv, markdown, plot], benchmark, resume=resume, dry_run=dry_run)
    preflight.check_index(plan, benchmark, index, embedder, dry_run=dry_run)
    if dry_run:
        planning.print_cost(plan, benchmark, as_json)
        return
    options = common.LMOptions(api_base, max_tokens, tries, timeout, cache=not (no_cache or latency))
    finished = runs.run_plan(
        plan,
        benchmark,
        folders,
        runs.open_models(plan, options, benchmark, lm=lm, extraction_lm=extraction_lm),
        index=index,
        embedder=embedder,
        aligner=aligner,
        threads=1 if latency else threads,
        latency=latency,
        resume=resume,
        quiet=quiet,
    )
    title = f"{chosen.name} of {system}: {dataset} {split}, {len(benchmark.examples)} questions, {name}"
    comparison = reports.compared(finished, benchmark, against=against)
    reports.write_reports(title, comparison, csv, markdown)
    if plot is not None:
        draw(comparison, plot, title=title, xs=chosen.xs, label=chosen.knob)
    reports.print_comparison(title, finished, comparison, as_json=as_json, quiet=quiet)
    reports.exit_with_failures(finished)
