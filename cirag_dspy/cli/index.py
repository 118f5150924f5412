"""``cirag-dspy index``: passages and triples of a corpus into an index folder."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cirag_dspy.cli import common
from cirag_dspy.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cirag_dspy.corpus.index import CorpusIndex
    from cirag_dspy.corpus.ingest import Document

DEFAULT_ROOM = 512  # tokens, as --max-tokens


def index(
    corpus: Annotated[
        list[Path], typer.Argument(help="Folders of .txt and .md, or files: .txt, .md, .jsonl, .json, .tsv.")
    ],
    out: Annotated[Path, typer.Option(help="Index folder; an existing one is brought up to date.")],
    lm: Annotated[
        str, typer.Option("--lm", help="LM that extracts the triples; none: at question time.", rich_help_panel="LM")
    ] = "none",
    program: common.Program = None,
    api_base: common.ApiBase = None,
    max_tokens: common.MaxTokens = None,
    tries: common.Tries = 4,
    timeout: common.Timeout = 120.0,
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
    """Build or update an index. A second run embeds nothing and calls no LM for what is done.

    Passages without facts are empty, and done with. Failed ones are tried again, with exit code 1; where the LM's
    replies list no triple in two runs, the passage counts as empty. A reply that ends at --max-tokens keeps its
    complete triples, and the passage is cut: the next runs give it twice the tokens, up to four times --max-tokens.
    """
    if calls not in ("one", "two"):
        raise RunError(f"--calls must be one or two, not {calls!r}")
    common.prepare(cache_dir)
    from cirag_dspy.artifact import EXTRACTION, READER, triples_writer
    from cirag_dspy.corpus.ingest import other_files
    from cirag_dspy.modules.extract import Extract

    saved = common.read_program(program)
    extract: Extract = saved.extractor() if saved else Extract(calls)  # type: ignore[arg-type]
    if dry_run:
        extracts = lm != "none" or saved is not None
        kept = saved.meta["lms"] if saved and lm == "none" else {}
        room = max_tokens or (kept.get(EXTRACTION) or kept.get(READER) or {}).get("max_tokens") or DEFAULT_ROOM
        _print_cost(corpus, out, extract.calls if extracts else None, limit, room, as_json)
        return
    if out.resolve() in [path.resolve() for path in corpus]:
        raise RunError(f"--out {out} is the corpus itself; name another folder")
    documents = _documents(corpus)
    for path in filter(Path.is_dir, corpus):
        if rest := other_files(path):
            shown = ", ".join(rest[:3]) + (", ..." if len(rest) > 3 else "")
            common.say(f"note: {path}: {len(rest)} files passed over ({shown}); give .jsonl, .json and .tsv by name")
    options = common.LMOptions(api_base, max_tokens, tries, timeout, cache=not no_cache)
    extractor = None if lm == "none" else options.open(lm)
    if saved and extractor is None:
        extractor = options.open_saved(saved, EXTRACTION)
    failures: list[dict[str, str]] = []
    with _open_or_create(out, embedder) as built:
        with common.progress(None, "passage", quiet) as advance:
            report = built.add(documents, progress=advance)
        if extractor is not None:
            common.extracted_by(built, triples_writer(extractor, extract))
            failures = common.extract_corpus(
                built, extract, extractor, built.pending(), threads=threads, quiet=quiet, more_room=True, limit=limit
            )
        counts = built.counts()
    if not counts["passages"]:
        raise RunError(f"{', '.join(map(str, corpus))}: no text in it, so the index at {out} is empty")
    if as_json:
        common.print_json({"index": str(out), **vars(report), **counts, "failures": failures})
    else:
        typer.echo(
            f"{out}: {counts['passages']} passages ({report.added} new, {report.unchanged} unchanged, "
            f"{report.removed} removed), {counts['triples']} triples"
        )
        if extractor is not None:
            states = ", ".join(f"{counts[state]} {state}" for state in ("done", "cut", "empty", "failed", "pending"))
            typer.echo(f"extraction: {states}")
    common.list_failures(failures, "passages")
    if failures:
        raise typer.Exit(1)


def _documents(paths: list[Path]) -> Iterator[Document]:
    """The documents of all paths, as a stream; a path that can't be read is an error at once."""
    from cirag_dspy.corpus.ingest import read_corpus

    return chain.from_iterable([read_corpus(path) for path in paths])


def _open_or_create(out: Path, embedder: str) -> CorpusIndex:
    from cirag_dspy.corpus.embedder import Embedder
    from cirag_dspy.corpus.index import CorpusIndex

    encoder = Embedder(embedder)
    return CorpusIndex.open(out, encoder) if CorpusIndex.exists(out) else CorpusIndex.create(out, encoder)


def _print_cost(corpus: list[Path], out: Path, calls: str | None, limit: int | None, room: int, as_json: bool) -> None:
    """What extracting the triples that are not there yet would cost; no model is loaded."""
    from cirag_dspy.corpus.index import CorpusIndex
    from cirag_dspy.evaluate.cost import extraction_cost
    from cirag_dspy.modules.extract import worth_trying

    passages = {passage.id: passage for document in _documents(corpus) for passage in document.passages}
    states: dict[str, Any] = {}
    todo = list(passages.values())
    if CorpusIndex.exists(out):
        with CorpusIndex.open(out) as built:
            states = dict(built.states(list(passages)))
            left = [passage for passage in todo if states.get(passage.id, "pending") in ("pending", "failed", "cut")]
            todo = worth_trying(built, left, room, more_room=True)
    cost = extraction_cost(todo[:limit] if calls else [], calls or "one")
    if as_json:
        common.print_json({"passages": len(passages), "to_embed": len(passages) - len(states), **cost})
    else:
        typer.echo(
            f"{len(passages)} passages, {len(passages) - len(states)} to embed; extraction: {cost['lm_calls']} LM "
            f"calls, about {cost['prompt_tokens']} prompt and {cost['reply_tokens']} reply tokens"
        )
