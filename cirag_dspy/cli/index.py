"""``cirag-dspy index``: passages and triples of a corpus into an index folder."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cirag_dspy.cli import common, preflight
from cirag_dspy.errors import RunError
from cirag_dspy.files import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cirag_dspy.corpus.index import CorpusIndex
    from cirag_dspy.corpus.ingest import Document
    from cirag_dspy.corpus.sources import AddReport
    from cirag_dspy.schema import Passage

DEFAULT_ROOM = 512  # tokens, as --max-tokens


def index(
    out: Annotated[Path, typer.Option(help="Index folder; an existing one is brought up to date.")],
    corpus: Annotated[
        list[Path] | None, typer.Argument(help="Folders of .txt and .md, or files: .txt, .md, .jsonl, .json, .tsv.")
    ] = None,
    cut: Annotated[
        bool, typer.Option("--cut", help="Cut rows of more than 120 words into passages, as texts are.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove the sources that are gone from the disk, whatever is given now.")
    ] = False,
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

    Sources are known by their names in the folder given, so a folder that was moved is known again; what is no longer
    in a folder given leaves the index. Other sources that are gone are named, and removed with --prune. A file or row
    that cannot be read is named and passed over (exit code 1), and what the index has of it stays. Front matter and
    comments of Markdown are left out, its first heading is the title. `cirag-dspy sources` lists what is indexed.

    Passages without facts are empty, and done with. Failed ones are tried again, with exit code 1; where the LM's
    replies list no triple in two runs, the passage counts as empty. A reply that ends at --max-tokens keeps its
    complete triples, and the passage is cut: the next runs give it twice the tokens, up to four times --max-tokens.

    One process at a time may do so for an index; it can be asked meanwhile.
    """
    if calls not in ("one", "two"):
        raise RunError(f"--calls must be one or two, not {calls!r}")
    corpus = corpus or []
    if not corpus and not prune:
        raise RunError("no corpus: name folders or files to index, or give --prune to remove what is gone")
    common.prepare(cache_dir)
    from cirag_dspy.artifact import EXTRACTION, READER, triples_writer
    from cirag_dspy.corpus.ingest import other_files
    from cirag_dspy.files import require_folder
    from cirag_dspy.modules.extract import Extract

    saved = common.read_program(program)
    extract: Extract = saved.extractor() if saved else Extract(calls)  # type: ignore[arg-type]
    if out.resolve() in [path.resolve() for path in corpus]:
        raise RunError(f"--out {printable(out)} is the corpus itself; name another folder")
    require_folder(out)
    unread: list[str] = []
    documents = _documents(corpus, unread, cut)
    if dry_run:
        preflight.check_lms([None if lm == "none" else lm, *preflight.program_lms(saved, None if lm == "none" else lm)])
        preflight.check_model(embedder, "--embedder")
        extracts = lm != "none" or saved is not None
        kept = saved.meta["lms"] if saved and lm == "none" else {}
        room = max_tokens or (kept.get(EXTRACTION) or kept.get(READER) or {}).get("max_tokens") or DEFAULT_ROOM
        _print_cost(documents, out, extract.calls if extracts else None, limit, room, as_json)
        _exit_with(unread, [])
        return
    for path in filter(Path.is_dir, corpus):
        if rest := other_files(path):
            shown = ", ".join(rest[:3]) + (", ..." if len(rest) > 3 else "")
            count = "1 file" if len(rest) == 1 else f"{len(rest)} files"
            common.say(f"note: {printable(path)}: {count} passed over ({shown}); give .jsonl, .json and .tsv by name")
    options = common.LMOptions(api_base, max_tokens, tries, timeout, cache=not no_cache)
    extractor = None if lm == "none" else options.open(lm)
    if saved and extractor is None:
        extractor = options.open_saved(saved, EXTRACTION)
    failures: list[dict[str, str]] = []
    with _open_or_create(out, embedder) as built, built.writing():
        long: list[tuple[Passage, int]] = []
        before = _roots_before(built, out)
        with common.progress(None, "passage", quiet) as advance:
            report = built.add(
                documents,
                progress=advance,
                on_error=lambda error: unread.append(str(error)),
                on_long=lambda passage, tokens: long.append((passage, tokens)),
            )
        gone = _gone(built, before, prune, report)
        if extractor is not None:
            common.extracted_by(built, triples_writer(extractor, extract))
            failures = common.extract_corpus(
                built, extract, extractor, built.pending(), threads=threads, quiet=quiet, more_room=True, limit=limit
            )
        counts = built.counts()
    if not counts["passages"] and corpus:
        names = ", ".join(map(printable, corpus))
        why = f" ({unread[0]})" if unread else ""
        raise RunError(f"{names}: no text in it{why}, so the index at {printable(out)} is empty")
    if as_json:
        common.print_json(
            {
                "index": printable(out),
                **vars(report),
                **counts,
                "failures": failures,
                "unread": unread,
                "gone": gone,
                "too_long": [passage.id for passage, _ in long],
            }
        )
    else:
        typer.echo(
            f"{printable(out)}: {counts['passages']} passages ({report.added} new, {report.unchanged} unchanged, "
            f"{report.removed} removed), {counts['triples']} triples"
        )
        if extractor is not None:
            states = ", ".join(f"{counts[state]} {state}" for state in ("done", "cut", "empty", "failed", "pending"))
            typer.echo(f"extraction: {states}")
    if long:
        (first, tokens), count = long[0], "1 passage is" if len(long) == 1 else f"{len(long)} passages are"
        common.say(
            f"warning: {count} longer than the embedder reads, so the end of it is not found; the first is "
            f"{first.title or first.id} ({tokens} tokens too many); --cut cuts rows, another --embedder may read more"
        )
    common.list_failures(failures, "passages")
    _exit_with(unread, failures)


def _exit_with(unread: list[str], failures: list[dict[str, str]]) -> None:
    """Name what could not be read; exit with 1 where anything failed."""
    for error in unread[:10]:
        common.say(f"not read: {error}")
    if len(unread) > 10:
        common.say(f"... and {len(unread) - 10} more")
    if unread:
        common.say(f"{len(unread)} files or rows not read; what the index has of them stays")
    if unread or failures:
        raise typer.Exit(1)


def _documents(paths: list[Path], unread: list[str], cut: bool) -> Iterator[Document]:
    """The documents of all paths, as a stream; a path that can't be read is an error at once."""
    from cirag_dspy.corpus.ingest import read_corpus

    return chain.from_iterable(
        [read_corpus(path, on_error=lambda error: unread.append(str(error)), cut_rows=cut) for path in paths]
    )


def _roots_before(index: CorpusIndex, out: Path) -> dict[str, str]:
    """Where the roots of an index are; one with absolute paths is taken over, which is said."""
    roots = index.roots()
    if roots.renamed:
        common.say(
            f"note: {printable(out)}: its sources had absolute paths and are named relative to their folders now "
            f"({', '.join(list(roots.paths)[:3])}{', ...' if len(roots.paths) > 3 else ''}); no passage has changed"
        )
    return roots.paths


def _gone(index: CorpusIndex, before: dict[str, str], prune: bool, report: AddReport) -> list[str]:
    """Say which roots have moved and which sources are gone; remove the latter with ``prune``."""
    roots = index.roots()
    for name, path in roots.paths.items():
        if before.get(name, path) != path:
            common.say(f"note: {name} has moved from {printable(before[name])} to {printable(path)}")
    gone = roots.gone()
    if gone and prune:
        report.removed += sum(index.remove(name) for name in gone)
    if gone:
        shown = ", ".join(gone[:3]) + (", ..." if len(gone) > 3 else "")
        what = "removed" if prune else "their passages stay, --prune removes them"
        common.say(f"note: {len(gone)} source{'s' * (len(gone) > 1)} gone from the disk ({shown}): {what}")
    return gone


def _open_or_create(out: Path, embedder: str) -> CorpusIndex:
    from cirag_dspy.corpus.embedder import Embedder
    from cirag_dspy.corpus.index import CorpusIndex

    encoder = Embedder(embedder)
    return CorpusIndex.open(out, encoder) if CorpusIndex.exists(out) else CorpusIndex.create(out, encoder)


def _print_cost(
    documents: Iterator[Document], out: Path, calls: str | None, limit: int | None, room: int, as_json: bool
) -> None:
    """What extracting the triples that are not there yet would cost; no model is loaded."""
    from cirag_dspy.corpus.index import CorpusIndex
    from cirag_dspy.evaluate.cost import extraction_cost
    from cirag_dspy.modules.extract import worth_trying

    passages = {(passage.id, passage.content): passage for document in documents for passage in document.passages}
    if not passages:
        raise RunError("no text could be read from the corpus, so there is nothing to index")
    states: dict[str, Any] = {}
    todo = list(passages.values())
    if CorpusIndex.exists(out):
        with CorpusIndex.open(out) as built:
            states = dict(built.states([id for id, _ in passages]))
            left = [passage for passage in todo if states.get(passage.id, "pending") in ("pending", "failed", "cut")]
            todo = worth_trying(built, left, room, more_room=True)
    cost = extraction_cost(todo[:limit] if calls else [], calls or "one")
    to_embed = sum(passage.id not in states for passage in passages.values())
    if as_json:
        common.print_json({"passages": len(passages), "to_embed": to_embed, **cost})
    else:
        typer.echo(
            f"{len(passages)} passages, {to_embed} to embed; extraction: {cost['lm_calls']} LM "
            f"calls, about {cost['prompt_tokens']} prompt and {cost['reply_tokens']} reply tokens"
        )
