"""``cirag-dspy eval``: a system over a benchmark's questions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cirag_dspy.cli import common
from cirag_dspy.errors import RunError

if TYPE_CHECKING:
    from cirag_dspy.benchmarks.base import Benchmark


def evaluate(
    dataset: Annotated[
        str, typer.Option(help="hotpotqa, 2wikimultihopqa, musique, nq, webquestions, bamboogle or demo.")
    ],
    split: Annotated[str, typer.Option(help="train, dev or test.")] = "dev",
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the official files; default: the hub.")] = None,
    data_file: Annotated[Path | None, typer.Option(help="One file of questions.")] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="Passages to search; default: the paragraphs of the questions.")
    ] = None,
    setting: Annotated[str, typer.Option(help="HotpotQA: distractor or fullwiki.")] = "distractor",
    limit: Annotated[int | None, typer.Option(help="This many questions.")] = None,
    seed: Annotated[int | None, typer.Option(help="Draw them at random; default: the first ones.")] = None,
    ids: Annotated[str | None, typer.Option(help="Question ids, separated by commas.")] = None,
    program: common.Program = None,
    system: Annotated[
        str | None,
        typer.Option(help="cirag or native_rag; default: the program's, else cirag.", rich_help_panel="System"),
    ] = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help="Passages per search.", rich_help_panel="System")] = None,
    n: Annotated[int | None, typer.Option("-n", min=1, help="Candidates per hop.", rich_help_panel="System")] = None,
    max_hops: Annotated[int | None, typer.Option(min=1, help="Hops at most.", rich_help_panel="System")] = None,
    levels: Annotated[str | None, typer.Option(help="Of triples,sentences,passages.", rich_help_panel="System")] = None,
    rank: Annotated[
        bool | None, typer.Option("--rank/--no-rank", help="Rank the candidates.", rich_help_panel="System")
    ] = None,
    extract: Annotated[
        str,
        typer.Option(
            help="online as retrieved, offline all first, off none new, given the demo's own.", rich_help_panel="System"
        ),
    ] = "online",
    calls: Annotated[
        str | None,
        typer.Option(help="one or two LM calls a passage; default: the program's, else one.", rich_help_panel="System"),
    ] = None,
    lm: common.LM = None,
    extraction_lm: Annotated[str | None, typer.Option(help="Another LM for the triples.", rich_help_panel="LM")] = None,
    judge_lm: Annotated[
        str | None,
        typer.Option(help="An LM that says whether answers mean the same as the gold.", rich_help_panel="LM"),
    ] = None,
    api_base: common.ApiBase = None,
    max_tokens: common.MaxTokens = None,
    tries: common.Tries = 4,
    timeout: common.Timeout = 120.0,
    no_cache: common.NoCache = False,
    index: Annotated[Path | None, typer.Option(help="An index to use; default: one per corpus in the cache.")] = None,
    embedder: common.EmbedderName = "embedded",
    aligner: common.Aligner = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; default: runs/DATASET-SYSTEM-LM, or -PROGRAM.")] = None,
    threads: common.Threads = 8,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    dry_run: common.DryRun = False,
    cache_dir: common.CacheDir = None,
    as_json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Ask a system the questions of a benchmark and score it with the official metrics."""
    if extract not in ("online", "offline", "off", "given"):
        raise RunError(f"--extract must be online, offline, off or given, not {extract!r}")
    if calls not in ("one", "two", None):
        raise RunError(f"--calls must be one or two, not {calls!r}")
    common.prepare(cache_dir)
    from cirag_dspy.benchmarks import load_benchmark
    from cirag_dspy.systems import SYSTEMS, check_settings, settings_of

    saved = common.read_program(program)
    system = system or (saved.system if saved else "cirag")
    if system not in SYSTEMS:
        raise RunError(f"unknown system {system!r}; there are {', '.join(SYSTEMS)}")
    knobs = saved.settings(system) if saved else {}
    knobs |= common.given(k=k, n=n, max_hops=max_hops, levels=_names(levels), rank=rank)
    extracts = "extract" in settings_of(system)
    if extracts:
        if saved and calls not in (None, knobs["extract"]):
            raise RunError(f"{program} extracts in {knobs['extract']} call(s) a passage: leave --calls out")
        calls = calls or knobs.get("extract") or "one"
        knobs["extract"] = calls if extract in ("online", "offline") else None
        knobs["threads"] = 1  # --threads questions at a time are as many LM calls at a time
    if saved:
        saved.program(None, system, **knobs)  # what is wrong with it is said before anything is opened
    else:
        check_settings(system, **knobs)
    benchmark = load_benchmark(
        dataset,
        split,
        data_dir=data_dir,
        data_file=data_file,
        corpus=corpus,
        limit=limit,
        sample_seed=seed,
        ids=_names(ids),
        setting=setting,
    )
    for warning in benchmark.notes.get("warnings", []):
        common.say(f"note: {warning}", quiet)
    if dry_run:
        _print_cost(benchmark, system, settings_of(system, **knobs), extract, bool(judge_lm), as_json)
        return

    import dspy

    from cirag_dspy.artifact import EXTRACTION, READER, triples_writer
    from cirag_dspy.evaluate.corpus import GIVEN, NONE, open_corpus, slug
    from cirag_dspy.evaluate.judged import judge_run
    from cirag_dspy.evaluate.manifest import run_manifest
    from cirag_dspy.evaluate.run import RunFolder, run
    from cirag_dspy.modules.extract import Extract
    from cirag_dspy.systems import build_system

    name = " ".join(filter(None, (saved.name if saved else "", lm))) or "embedded"
    folder = RunFolder(out or Path("runs") / f"{dataset}-{system}-{slug(name)}")
    if not resume:
        folder.require_free()
    options = common.LMOptions(api_base, max_tokens, tries, timeout, cache=not no_cache)
    own = saved if lm is None else None
    # Annotations answer from the gold of the very questions: an upper bound, not a system.
    gold = {"examples": benchmark.examples, "passages": benchmark.passages} if lm == "annotations" else {}
    reader = options.open_saved(own, READER) if own else options.open(lm or "embedded", **gold)
    extractor = options.open_saved(own, EXTRACTION) if own else reader
    if extraction_lm:
        extractor = options.open(extraction_lm)
    judge = options.open(judge_lm) if judge_lm else None
    writer = NONE  # systems that need no triples share one index, whatever their LM
    if extracts:
        extracting = saved.extractor() if saved else Extract(calls)  # type: ignore[arg-type]
        writer = GIVEN if extract == GIVEN else triples_writer(extractor, extracting)
    with common.progress(len(benchmark.passages), "passage", quiet) as advance:
        opened = open_corpus(benchmark, path=index, embedder=embedder, extractor=writer, progress=advance)
    with opened:
        common.use_aligner(opened, aligner)
        asked = saved.program(opened, system, **knobs) if saved else build_system(system, opened, **knobs)
        for _, module in asked.named_sub_modules(Extract):
            module.set_lm(extractor)
        if knobs.get("extract"):
            if opened.pending():
                common.extracted_by(opened, writer)
            # What failed in an earlier run is tried again, once; a question would pass it over.
            first = opened.pending() if extract == "offline" else opened.failed()
            failures = common.extract_corpus(opened, extracting, extractor, first, threads=threads, quiet=quiet)
            common.list_failures(failures, "passages")
        opened.search("warm up", 1)  # loading the embedder is no question's time
        manifest = run_manifest(
            benchmark,
            opened,
            system={"name": system, **settings_of(system, **knobs), "extract_when": extract},
            lms={"reader": _describe(reader), "extraction": _describe(extractor)},
            threads=threads,
        )
        if saved:
            manifest["program"] = {"name": saved.name, "sha256": saved.sha256}
        if judge:
            manifest["judge"] = _describe(judge)
        examples = benchmark.examples
        with common.progress(len(examples), "question", quiet) as advance, dspy.context(lm=reader):
            summary = run(
                asked, examples, folder, manifest, threads=threads, resume=resume, on_row=lambda row: advance()
            )
        opened.embed_triples()
        extraction = opened.counts()
    unjudged: list[dict[str, str]] = []
    if judge:
        with common.progress(len(examples), "verdict", quiet) as advance:
            summary, unjudged = judge_run(
                folder, examples, manifest, judge, threads=threads, on_row=lambda row: advance()
            )
    failed = [{"id": row["id"], "error": row["error"]} for row in folder.rows() if row["error"]]
    if as_json:
        common.print_json({"out": str(folder.path), "summary": summary, "extraction": extraction, "manifest": manifest})
    else:
        typer.echo(_table(dataset, split, system, name, summary))
        common.say(f"rows, manifest and summary: {folder.path}", quiet)
    if extraction["failed"]:
        common.say(f"no triples could be extracted from {extraction['failed']} of {extraction['passages']} passages")
    common.list_failures(failed, "questions", "--resume")
    common.list_failures(unjudged, "verdicts", "--resume")
    if failed or unjudged:
        raise typer.Exit(1)


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(","))


def _describe(lm: Any) -> dict[str, Any]:
    """What an answer depends on in an LM; keys and addresses stay out."""
    kept = ("temperature", "max_tokens", "max_completion_tokens", "top_p", "seed")
    return {"model": lm.model, **{key: lm.kwargs[key] for key in kept if lm.kwargs.get(key) is not None}}


def _print_cost(
    benchmark: Benchmark, system: str, settings: dict[str, Any], extract: str, judged: bool, as_json: bool
) -> None:
    from cirag_dspy.evaluate.cost import extraction_cost, judging_cost, most_passages, run_cost

    cost: dict[str, Any] = {"questions": len(benchmark.examples), "passages": len(benchmark.passages)}
    if answering := run_cost(benchmark, system, settings):
        cost["answering_at_most"] = answering
    if settings.get("extract"):
        read = len(benchmark.passages) if extract == "offline" else most_passages(benchmark, settings)
        longest = sorted(benchmark.passages, key=lambda passage: len(passage.text), reverse=True)[:read]
        cost["extraction_at_most"] = extraction_cost(longest, settings["extract"])
    if judged:
        cost["judging_at_most"] = judging_cost(benchmark)
    if as_json:
        common.print_json(cost)
        return
    typer.echo(f"{cost['questions']} questions over {cost['passages']} passages")
    for name in ("answering_at_most", "extraction_at_most", "judging_at_most"):
        if name in cost:
            parts = cost[name]
            typer.echo(
                f"  {name.replace('_', ' ')}: {parts['lm_calls']} LM calls, about {parts['prompt_tokens']} prompt and "
                f"{parts['reply_tokens']} reply tokens"
            )


def _table(dataset: str, split: str, system: str, name: str, summary: dict[str, Any]) -> str:
    cost = summary["lm_per_question"]
    levels = ", ".join(f"{level} {group['n']}" for level, group in summary["levels"].items())
    kind = "recall" if summary["recall"] else "answer recall"
    found = summary["recall"] or summary["answer_recall"]
    recall = f"{kind} {'  '.join(f'{k} {100 * value:.1f}' for k, value in found.items()) or 'none'}"
    judged = f"LLM-Acc {100 * summary['llm_acc']:.1f}   " if "llm_acc" in summary else ""
    return "\n".join(
        [
            f"{dataset} {split}, {summary['n']} questions, {system}, {name}",
            f"  EM {100 * summary['em']:.1f}   F1 {100 * summary['f1']:.1f}   {judged}{recall}",
            f"  levels: {levels or 'none'}   errors {summary['errors']}   unreadable hops {summary['unreadable_hops']}",
            f"  per question: {cost['calls']} LM calls, {cost['cached']} cached; {cost['prompt_tokens']:.0f} prompt + "
            f"{cost['completion_tokens']:.0f} reply tokens; {summary['seconds_per_question']['median']} s (median)",
        ]
    )
