"""``cirag-dspy index``: passages and triples of a corpus into an index folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cirag_dspy.cli import common
from cirag_dspy.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cirag_dspy.corpus.index import CorpusIndex
    from cirag_dspy.corpus.ingest import Document
    from cirag_dspy.schema import Passage


def index(
    corpus: Annotated[list[Path], typer.Argument(help="Folders or files: .txt, .md, .jsonl, .json, .tsv.")],
    out: Annotated[Path, typer.Option(help="Index folder; an existing one is brought up to date.")],
    lm: Annotated[
        str, typer.Option("--lm", help="LM that extracts the triples; none: at question time.", rich_help_panel="LM")
    ] = "none",
    api_base: common.ApiBase = None,
    max_tokens: common.MaxTokens = 512,
    tries: common.Tries = 4,
    no_cache: common.NoCache = False,
    calls: Annotated[
        str, typer.Option(help="one: entities and triples in one call; two: the paper's prompts.")
    ] = "one",
    embedder: common.EmbedderName = "embedded",
    limit: Annotated[int | None, typer.Option(min=1, help="Extract from this many passages at most.")] = None,
    threads: common.Threads = 8,
    dry_run: common.DryRun = False,
    cache_dir: common.CacheDir = None,
    as_json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Build or update an index. A second run embeds nothing and calls no LM; failed passages are tried again."""
    if calls not in ("one", "two"):
        raise RunError(f"--calls must be one or two, not {calls!r}")
    common.prepare(cache_dir)
    if dry_run:
        _estimate(corpus, out, embedder, lm, calls, limit, as_json)
        return
    extractor = (
        None
        if lm == "none"
        else common.open_lm(lm, api_base=api_base, max_tokens=max_tokens, tries=tries, cache=not no_cache)
    )
    with _open_or_create(out, embedder) as built:
        added = {"added": 0, "unchanged": 0, "removed": 0}
        with common.progress(0, "passage", quiet) as advance:
            report = built.add(_documents(corpus), progress=advance)
        added = {"added": report.added, "unchanged": report.unchanged, "removed": report.removed}
        failures: list[dict[str, str]] = []
        if extractor is not None:
            built.set_extractor(f"{lm} ({calls} call)")
            failures = common.extract_corpus(built, extractor, calls=calls, threads=threads, limit=limit, quiet=quiet)
        built.flush()
        counts = built.counts()
    if as_json:
        common.print_json({"index": str(out), **added, **counts, "failures": failures})
    else:
        typer.echo(
            f"{out}: {counts['passages']} passages ({added['added']} new, {added['unchanged']} unchanged, "
            f"{added['removed']} removed), {counts['triples']} triples"
        )
        if extractor is not None:
            states = ", ".join(f"{counts[state]} {state}" for state in ("done", "empty", "failed", "pending"))
            typer.echo(f"extraction: {states}")
    common.list_failures(failures, "passages")
    if failures:
        raise typer.Exit(1)


def _documents(paths: list[Path]) -> Iterator[Document]:
    from cirag_dspy.corpus.ingest import read_corpus

    for path in paths:
        yield from read_corpus(path)


def _open_or_create(out: Path, embedder: str) -> CorpusIndex:
    from cirag_dspy.corpus.embedder import Embedder
    from cirag_dspy.corpus.index import CorpusIndex

    encoder = Embedder(embedder)
    if (out / "manifest.json").exists():
        return CorpusIndex.open(out, encoder)
    return CorpusIndex.create(out, encoder)


def _estimate(
    corpus: list[Path], out: Path, embedder: str, lm: str, calls: str, limit: int | None, as_json: bool
) -> None:
    """Calls and prompt tokens of the passages whose triples are not there yet; no model is loaded."""
    from cirag_dspy.corpus.index import CorpusIndex

    passages = {passage.id: passage for document in _documents(corpus) for passage in document.passages}
    todo = list(passages.values())
    if (out / "manifest.json").exists():
        with CorpusIndex.open(out) as built:
            states = built.states(list(passages))
        todo = [passage for passage in todo if states.get(passage.id, "pending") in ("pending", "failed")]
    todo = todo[:limit] if lm != "none" else []
    estimate: dict[str, Any] = {
        "passages": len(passages),
        "to_extract": len(todo),
        "lm_calls": len(todo) * (2 if calls == "two" else 1),
        "prompt_tokens": common.tokens(sum(_prompt_length(passage, calls) for passage in todo)),
        "note": "about, at 4 characters a token; replies of about 200 tokens each come on top",
    }
    if as_json:
        common.print_json(estimate)
    else:
        typer.echo(
            f"{estimate['passages']} passages, {estimate['to_extract']} to extract: {estimate['lm_calls']} LM calls, "
            f"about {estimate['prompt_tokens']} prompt tokens and {200 * len(todo)} completion tokens"
        )


def _prompt_length(passage: Passage, calls: str) -> int:
    from cirag_dspy.adapter import LineAdapter
    from cirag_dspy.signatures import ExtractTriples, FindEntities, RelateEntities

    inputs = {"title": passage.title, "passage": passage.text, "entities": ""}
    signatures = (ExtractTriples,) if calls == "one" else (FindEntities, RelateEntities)
    adapter = LineAdapter()
    messages = [message for signature in signatures for message in adapter.format(signature, [], inputs)]
    return sum(len(message["content"]) for message in messages)
