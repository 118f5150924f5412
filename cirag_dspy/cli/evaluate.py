"""``cirag-dspy eval``: a system over a benchmark's questions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cirag_dspy.cli import common
from cirag_dspy.errors import RunError

if TYPE_CHECKING:
    from cirag_dspy.benchmarks.base import Benchmark
    from cirag_dspy.corpus.index import CorpusIndex


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
    system: Annotated[str, typer.Option(help="cirag or native_rag.", rich_help_panel="System")] = "cirag",
    k: Annotated[int | None, typer.Option("-k", min=1, help="Passages per search.", rich_help_panel="System")] = None,
    n: Annotated[int | None, typer.Option("-n", min=1, help="Candidates per hop.", rich_help_panel="System")] = None,
    max_hops: Annotated[int | None, typer.Option(min=1, help="Hops at most.", rich_help_panel="System")] = None,
    levels: Annotated[str | None, typer.Option(help="Of triples,sentences,passages.", rich_help_panel="System")] = None,
    rank: Annotated[
        bool | None, typer.Option("--rank/--no-rank", help="Rank the candidates.", rich_help_panel="System")
    ] = None,
    extract: Annotated[
        str, typer.Option(help="online: as passages are retrieved; offline: all first; off.", rich_help_panel="System")
    ] = "online",
    calls: Annotated[str, typer.Option(help="one or two LM calls a passage.", rich_help_panel="System")] = "one",
    lm: common.LM = "embedded",
    extraction_lm: Annotated[str | None, typer.Option(help="Another LM for the triples.", rich_help_panel="LM")] = None,
    api_base: common.ApiBase = None,
    max_tokens: common.MaxTokens = 512,
    tries: common.Tries = 4,
    no_cache: common.NoCache = False,
    index: Annotated[Path | None, typer.Option(help="An index to use; default: one per corpus in the cache.")] = None,
    embedder: common.EmbedderName = "embedded",
    out: Annotated[Path | None, typer.Option(help="Run folder; default: runs/DATASET-SYSTEM-LM.")] = None,
    threads: common.Threads = 8,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    dry_run: common.DryRun = False,
    cache_dir: common.CacheDir = None,
    as_json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Ask a system the questions of a benchmark and score it with the official metrics."""
    if extract not in ("online", "offline", "off"):
        raise RunError(f"--extract must be online, offline or off, not {extract!r}")
    if calls not in ("one", "two"):
        raise RunError(f"--calls must be one or two, not {calls!r}")
    common.prepare(cache_dir)
    from cirag_dspy.benchmarks import load_benchmark
    from cirag_dspy.systems import SYSTEMS, settings_of

    if system not in SYSTEMS:
        raise RunError(f"unknown system {system!r}; there are {', '.join(SYSTEMS)}")
    benchmark = load_benchmark(
        dataset,
        split,
        data_dir=data_dir,
        data_file=data_file,
        corpus=corpus,
        limit=limit,
        seed=seed,
        ids=ids.split(",") if ids else None,
        setting=setting,
    )
    knobs: dict[str, Any] = {
        "k": k,
        "n": n,
        "max_hops": max_hops,
        "levels": tuple(levels.split(",")) if levels else None,
        "rank": rank,
    }
    extracts = "extract" in settings_of(system)
    if extracts:
        knobs["extract"] = calls
    if dry_run:
        _estimate(benchmark, system, settings_of(system, **knobs), as_json)
        return

    import dspy

    from cirag_dspy.evaluate.manifest import run_manifest
    from cirag_dspy.evaluate.run import RunFolder, run
    from cirag_dspy.modules.extract import Extract
    from cirag_dspy.systems import build_system

    options = {"api_base": api_base, "max_tokens": max_tokens, "tries": tries, "cache": not no_cache}
    reader = common.open_lm(lm, **options)
    extractor = common.open_lm(extraction_lm, **options) if extraction_lm else reader
    folder = RunFolder(out or Path("runs") / f"{dataset}-{system}-{_slug(lm)}")
    with _open_index(benchmark, index, embedder, extraction_lm or lm, quiet) as opened:
        program = build_system(system, opened, **knobs)
        for _, module in program.named_sub_modules(Extract):
            module.set_lm(extractor)
        if extracts and extract == "offline":
            failures = common.extract_corpus(opened, extractor, calls=calls, threads=threads, limit=None, quiet=quiet)
            common.list_failures(failures, "passages")
        if extracts and extract == "off":
            program.construct.extract = None
        manifest = run_manifest(
            benchmark,
            opened,
            system={"name": system, **settings_of(system, **knobs), "extract_when": extract},
            lms={"reader": _describe(reader), "extraction": _describe(extractor)},
            threads=threads,
        )
        examples = benchmark.examples
        with common.progress(len(examples), "question", quiet) as advance, dspy.context(lm=reader):
            summary = run(
                program, examples, folder, manifest, threads=threads, resume=resume, on_row=lambda row: advance(1)
            )
        opened.embed_triples()
        opened.flush()
    failed = [{"id": row["id"], "error": row["error"]} for row in folder.rows() if row["error"]]
    if as_json:
        common.print_json({"out": str(folder.path), "summary": summary, "manifest": manifest})
    else:
        typer.echo(_table(dataset, split, system, lm, summary))
        common.say(f"rows, manifest and summary: {folder.path}", quiet)
    common.list_failures(failed, "questions")
    if failed:
        raise typer.Exit(1)


def _slug(text: str) -> str:
    return "".join(mark if mark.isalnum() or mark in "._-" else "-" for mark in text).strip("-.")[-60:]


def _describe(lm: Any) -> dict[str, Any]:
    """What an answer depends on in an LM; keys and addresses stay out."""
    kept = ("temperature", "max_tokens", "max_completion_tokens", "top_p", "seed")
    return {"model": lm.model, **{key: lm.kwargs[key] for key in kept if lm.kwargs.get(key) is not None}}


def _open_index(benchmark: Benchmark, path: Path | None, embedder: str, extractor: str, quiet: bool) -> CorpusIndex:
    """The index given, or one in the cache for this corpus, embedder and extractor, brought up to date."""
    from cirag_dspy.corpus.embedder import Embedder
    from cirag_dspy.corpus.index import CorpusIndex
    from cirag_dspy.corpus.ingest import Document
    from cirag_dspy.paths import cache_dir

    if path is not None:
        opened = CorpusIndex.open(path)
        missing = [passage.title for passage in benchmark.passages if not opened.passages([passage.id])]
        if missing:
            opened.close()
            raise RunError(
                f"{path} lacks {len(missing)} of the {len(benchmark.passages)} passages of this benchmark (the first: "
                f"{missing[0]!r}); leave --index out to build one for it"
            )
        return opened
    name = f"{benchmark.name}-{benchmark.corpus_hash[:12]}-{_slug(embedder)}-{_slug(extractor)}"
    path = cache_dir() / "indexes" / name
    encoder = Embedder(embedder)
    exists = (path / "manifest.json").exists()
    opened = CorpusIndex.open(path, encoder) if exists else CorpusIndex.create(path, encoder)
    if not exists or opened.corpus_hash != benchmark.corpus_hash:
        documents = (Document(passage.id, (passage,)) for passage in benchmark.passages)
        with common.progress(len(benchmark.passages), "passage", quiet) as advance:
            opened.add(documents, progress=advance)
        opened.set_extractor(extractor)
        opened.flush()
    return opened


def _estimate(benchmark: Benchmark, system: str, settings: dict[str, Any], as_json: bool) -> None:
    """What a run costs at most, from the settings alone; nothing is loaded or called."""
    questions, passages = len(benchmark.examples), len(benchmark.passages)
    prompt = sum(len(passage.text) + len(passage.title) for passage in benchmark.passages) / max(passages, 1)
    if system == "native_rag":
        calls, tokens = questions, common.tokens(round(questions * (600 + settings["k"] * prompt)))
        extraction = 0
    else:
        # A turn shows N facts of about 60 characters and all turns before it; the cascade reads each level and forces
        # an answer. Every reply may be asked for twice.
        hops = settings["max_hops"]
        calls = questions * (hops + len(settings["levels"]) + 1)
        facts = settings["n"] * 60 + 300
        turns = hops * 900 + facts * hops * (hops + 1) // 2
        tokens = common.tokens(round(questions * (turns + 3 * 800 + 2 * settings["k"] * prompt)))
        extraction = passages * (2 if settings["extract"] == "two" else 1)
    estimate = {
        "questions": questions,
        "passages": passages,
        "lm_calls_at_most": calls,
        "prompt_tokens_about": tokens,
        "extraction_calls_at_most": extraction,
        "extraction_prompt_tokens_about": common.tokens(round(extraction * (900 + prompt))),
    }
    if as_json:
        common.print_json(estimate)
        return
    typer.echo(
        f"{questions} questions over {passages} passages: at most {calls} LM calls and about {tokens} prompt tokens, plus "
        f"at most {extraction} calls and {estimate['extraction_prompt_tokens_about']} tokens to extract triples "
        "(less where an index has them already)"
    )


def _table(dataset: str, split: str, system: str, lm: str, summary: dict[str, Any]) -> str:
    cost = summary["lm_per_question"]
    levels = ", ".join(f"{level} {group['n']}" for level, group in summary["levels"].items())
    recall = "  ".join(f"{k} {100 * value:.1f}" for k, value in summary["recall"].items()) or "no gold passages"
    return "\n".join(
        [
            f"{dataset} {split}, {summary['n']} questions, {system}, {lm}",
            f"  EM {100 * summary['em']:.1f}   F1 {100 * summary['f1']:.1f}   recall {recall}",
            f"  levels: {levels or 'none'}   errors: {summary['errors']}   unreadable hops: {summary['unreadable_hops']}",
            f"  per question: {cost['calls']} LM calls (+{cost['cached']} cached), {cost['prompt_tokens']:.0f} prompt + "
            f"{cost['completion_tokens']:.0f} completion tokens, {summary['seconds_per_question']['median']} s (median)",
        ]
    )
