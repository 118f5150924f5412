"""``cirag-dspy align``: gold chains of training questions to an aligner, a model that ranks triples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cirag_dspy.cli import common, preflight, runs, stages
from cirag_dspy.errors import RunError


def align(
    dataset: Annotated[
        list[str], typer.Option(help="2wikimultihopqa, musique, hotpotqa or demo; again, or with commas, for more.")
    ],
    out: Annotated[Path, typer.Option(help="The aligner's folder.")],
    data_dir: stages.DataDir = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="This many questions of each data set, drawn at random by --seed.")
    ] = None,
    first: runs.First = False,
    base: Annotated[str, typer.Option(help="The model to start from: embedded, a folder or a hub id.")] = "embedded",
    epochs: Annotated[int | None, typer.Option(help="Times over the rows; paper: 10.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows a step; paper: 64.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Paper: 2e-5.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of the loss; paper: 0.01.")] = None,
    negatives: Annotated[int | None, typer.Option(help="Wrong triples a row; paper: 7.")] = None,
    rows: Annotated[int | None, typer.Option(help="Rows a question at most; 8.")] = None,
    val: Annotated[float | None, typer.Option(help="Share of the questions that the epoch is chosen by; 0.1.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the draw of --limit, split, rows and order; 0.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Passages per search.")] = 10,
    embedder: common.EmbedderName = "embedded",
    lm: Annotated[
        str, typer.Option("--lm", help="Extracts the triples; annotations: patterns and gold.", rich_help_panel="LM")
    ] = "annotations",
    triples: Annotated[
        list[str] | None,
        typer.Option(help="JSONL of title, text, triples, for annotations to repeat; in --data-dir."),
    ] = None,
    api_base: common.ApiBase = None,
    max_tokens: common.MaxTokens = None,
    tries: common.Tries = 4,
    timeout: common.Timeout = 120.0,
    no_cache: common.NoCache = False,
    threads: common.Threads = 8,
    device: stages.Device = None,
    dry_run: common.DryRun = False,
    cache_dir: common.CacheDir = None,
    as_json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Train the model that ranks candidate triples, for ask and eval --aligner; goes on after the last whole epoch.

    Defaults are KiRAG's.
    """
    from cirag_dspy.distill.settings import AlignerSettings

    settings = AlignerSettings(
        **common.given(
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            temperature=temperature,
            negatives=negatives,
            rows=rows,
            val=val,
            seed=seed,
        )
    )
    common.prepare(cache_dir)
    from cirag_dspy.benchmarks import DATASETS
    from cirag_dspy.pipeline.align import align, align_plan, open_trainsets, require_draw

    names = [name.strip() for given in dataset for name in given.split(",")]
    if unknown := [name for name in names if name not in DATASETS]:
        raise RunError(f"no data set {', '.join(unknown)}: there are {', '.join(DATASETS)}")
    trainsets = open_trainsets(
        names,
        limit=limit,
        seed=settings.seed,
        first=first,
        lm=lm,
        embedder=embedder,
        triples=triples or [],
        api_base=api_base or "",
        data_dir=data_dir,
        open_lm=common.LMOptions(api_base, max_tokens, tries, timeout, cache=not no_cache).open,
    )
    for trainset in trainsets:
        runs.say_warnings(trainset.benchmark, quiet)
    require_draw(out, trainsets)
    preflight.check_lms([lm])
    preflight.check_model(embedder, "--embedder")
    preflight.check_model(base, "--base")
    if dry_run:
        _print_plan(align_plan(trainsets, settings), as_json)
        return
    report = align(
        trainsets,
        out,
        settings,
        base=base,
        k=k,
        threads=threads,
        device=device,
        progress=lambda total, unit: common.progress(total, unit, quiet),
    )
    _print_report(report, as_json)
    if failed := report["failed_passages"]:
        common.say(f"no triples could be extracted from {failed} passages")
    common.say(f"aligner: {out}; cirag-dspy ask and eval take it with --aligner", quiet)


def _print_plan(plan: dict[str, Any], as_json: bool) -> None:
    if as_json:
        common.print_json(plan)
        return
    for name, cost in plan["extraction"].items():
        typer.echo(f"{name}: {cost['passages']} passages, {cost['lm_calls']} LM calls at most to extract their triples")
    typer.echo(f"{plan['questions']} questions: {plan['rows']} rows, {plan['steps']} steps at most")


def _print_report(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        common.print_json(report)
        return
    gold = report["gold"]
    typer.echo(f"{report['questions']} questions, {gold['stated']} of {gold['steps']} gold facts stated by a triple")
    typer.echo(f"  {report['rows']} rows, {report['steps']} steps, {report['seconds']:.0f} s")
    first, best = report["epochs"][0], report["best"]
    for name in ("passage_recall@5", "triple_recall@5"):
        typer.echo(f"  {name} of {report['val_questions']} other questions: {first[name]:.3f} -> {best[name]:.3f}")
    typer.echo(f"  at epoch {best['epoch']} of {report['epochs'][-1]['epoch']}")
