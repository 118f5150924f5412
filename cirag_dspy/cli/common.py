"""What the commands share: their common options, progress, quiet logs, and the way to an LM."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cirag_dspy import paths
from cirag_dspy.advice import CUT_REPLY
from cirag_dspy.cli.command import can_print
from cirag_dspy.cli.progress import progress
from cirag_dspy.errors import RunError
from cirag_dspy.files import path_errors, require_folder

if TYPE_CHECKING:
    import dspy

    from cirag_dspy.artifact import Saved
    from cirag_dspy.corpus.index import CorpusIndex
    from cirag_dspy.modules.extract import Extract
    from cirag_dspy.schema import Passage

LM = Annotated[
    str | None,
    typer.Option(
        "--lm",
        help="embedded, local/MODEL[+ADAPTER], or any DSPy LM such as openai/gpt-4o-mini; of eval and ablate also "
        "annotations, the gold in an LM's place; default: the program's, else embedded.",
        rich_help_panel="LM",
    ),
]
Program = Annotated[
    Path | None,
    typer.Option(
        help="A saved program, optimized/NAME: its prompts, demonstrations, settings and LM.", rich_help_panel="System"
    ),
]
ApiBase = Annotated[
    str | None, typer.Option(help="Address of an OpenAI-compatible server; for remote LMs.", rich_help_panel="LM")
]
MaxTokens = Annotated[
    int | None, typer.Option(min=16, help="Tokens an LM reply may have; default: 512.", rich_help_panel="LM")
]
Timeout = Annotated[float, typer.Option(min=1, help="Seconds that one LM reply may take in all.", rich_help_panel="LM")]
Tries = Annotated[
    int,
    typer.Option(min=1, help="Requests for one LM call at most; too late is not asked again.", rich_help_panel="LM"),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Do not use DSPy's response cache.", rich_help_panel="LM")]
EmbedderName = Annotated[
    str,
    typer.Option("--embedder", help="embedded, or any sentence-transformers model (folder or hub id)."),
]
Aligner = Annotated[
    Path | None,
    typer.Option(help="A model that ranks the triples, as `cirag-dspy align` trains it.", rich_help_panel="System"),
]
Threads = Annotated[int, typer.Option(min=1, help="LM calls or questions at a time.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the LM calls and tokens it would cost, and stop.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress: no bar, in a log no lines.")]
CacheDir = Annotated[
    Path | None,
    typer.Option(help="Where converted weights and indexes of benchmarks are kept; also CIRAG_DSPY_CACHE."),
]


class _Notes(logging.Handler):
    """What the library logs (a model unpacked once, a prompt cut by its server) as lines on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        say(f"note: {record.getMessage()}")


def prepare(cache_dir: Path | None = None) -> None:
    """Set the process up: where caches go, and no chatter of libraries on the terminal."""
    if cache_dir is not None:
        os.environ["CIRAG_DSPY_CACHE"] = str(cache_dir)
    if os.environ.get("CIRAG_DSPY_CACHE"):
        cache, advice = paths.cache_dir(), "--cache-dir or CIRAG_DSPY_CACHE names another folder"
        with path_errors(RunError, cache, advice):
            known = cache.is_dir()  # one that is there may be read-only: a run that finds all in it writes nothing
        if not known:
            require_folder(cache, advice)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    import dspy  # noqa: F401  (it sets its own log level when it is imported)

    own = logging.getLogger("cirag_dspy")
    if not own.handlers:
        own.addHandler(_Notes(logging.INFO))
        own.setLevel(logging.INFO)
    for name in ("dspy", "LiteLLM", "httpx", "transformers", "sentence_transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)


@dataclass(frozen=True)
class LMOptions:
    """How the LMs of a command are called."""

    api_base: str | None
    max_tokens: int | None
    tries: int
    timeout: float
    cache: bool

    def open(self, spec: str, **settings: Any) -> dspy.LM:
        """The LM that a string names, with these settings where the command line gives no other.

        One that runs in this process has no address and no time limit.
        """
        from cirag_dspy.lms import is_local, load_lm

        settings |= given(api_base=self.api_base, max_tokens=self.max_tokens)
        if is_local(spec):
            settings.pop("api_base", None)
        else:
            settings["timeout"] = self.timeout
        return load_lm(spec, num_retries=self.tries - 1, cache=self.cache, **settings)

    def open_saved(self, saved: Saved, role: str) -> dspy.LM:
        """The LM of a saved program's role."""
        spec, settings = saved.lm_spec(role, api_base=self.api_base)
        return self.open(spec, **settings)


def given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def say(message: str, quiet: bool = False) -> None:
    """A line for the person at the terminal: on stderr, never mixed with results."""
    if not quiet:
        typer.echo(message, err=True)


def print_json(value: Mapping[str, Any]) -> None:
    """A result as JSON on stdout, its values made plain; letters that it can't hold are escaped, so it stays JSON."""
    import json

    from cirag_dspy.plain import dump

    text = dump(value, indent=2)
    typer.echo(text if can_print(text) else json.dumps(json.loads(text), indent=2))


def require_file(path: Path | None) -> None:
    """Raise RunError if a file can't be written there; its folder is made. Before anything is paid for, that is."""
    if path is None:
        return
    with path_errors(RunError, f"{path} can't be written", "name another file"):
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = path.resolve().parent if path.is_symlink() else path.parent
        with suppress(FileNotFoundError):
            path.stat()  # a name that is too long, and a link that leads to itself, show here
        if path.is_dir():
            raise RunError(f"{path} can't be written: it is a folder; name another file")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise RunError(f"{path} can't be written: no file can be made in {folder}; name another file")


def read_program(folder: Path | None) -> Saved | None:
    """The saved program that was named, if one was."""
    from cirag_dspy.artifact import Saved

    return None if folder is None else Saved.read(folder)


def require_aligner(folder: Path | None) -> None:
    """Raise RunError if the folder that was named, if one was, holds no aligner, or only part of one."""
    if folder is None:
        return
    weights = [folder / "model.safetensors", *folder.glob("*/model.safetensors")]  # of old models in a sub-folder
    for name, files in (("modules.json", [folder / "modules.json"]), ("model.safetensors", weights)):
        if not any(file.is_file() for file in files):
            raise RunError(f"{folder} holds no aligner (it has no {name}); cirag-dspy align trains one")


def use_aligner(index: CorpusIndex, folder: Path | None) -> None:
    """Let an aligner rank the triples of an index, if one was named."""
    from cirag_dspy.corpus.embedder import Embedder

    require_aligner(folder)
    if folder is not None:
        index.use_ranker(Embedder(str(folder)))


def extract_corpus(
    index: CorpusIndex,
    extract: Extract,
    lm: dspy.LM,
    passages: Sequence[Passage],
    *,
    threads: int,
    quiet: bool,
    more_room: bool = False,
    limit: int | None = None,
) -> list[dict[str, str]]:
    """Extract the triples of passages that have none yet, failed and cut ones again; returns those that failed now.

    What was cut now, or counts as empty now because the LM lists no triple however often it is asked, is told.
    """
    import dspy

    from cirag_dspy.modules.extract import extract_missing, worth_trying

    failures: list[dict[str, str]] = []
    cut, settled = 0, 0
    with dspy.context(lm=lm):
        todo = worth_trying(index, passages, extract.room, more_room=more_room)[:limit]
        with progress(len(todo), "passage", quiet) as advance:

            def on_done(passage: Any, extraction: Any) -> None:
                nonlocal cut, settled
                advance()
                if extraction.state in ("failed", "pending"):
                    failures.append({"id": passage.id, "title": passage.title, "error": extraction.error})
                cut += extraction.state == "cut"
                settled += extraction.state == "empty" and bool(extraction.error)

            extract_missing(
                index, extract, todo, threads=threads, retry_failed=True, more_room=more_room, on_done=on_done
            )
        room = extract.room
    with progress(None, "triple", quiet) as moved:
        index.embed_triples(progress=moved)
    if cut:
        again = "the next run gives them more" if more_room else "give more"
        limited = f"{room} tokens, --max-tokens" if room > 1 else "their limit of tokens"
        say(f"note: replies on {cut} passages were cut off ({limited}); what they list in full is kept; {again}")
    if settled:
        say(f"note: {settled} passages count as empty: the LM replied, but listed no triple")
    return failures


def extracted_by(index: CorpusIndex, lm: str) -> None:
    """Note in the index who writes its triples; a second writer is added to the first, never put in its place."""
    index.extracted_by(lm)


def say_cut(lm: Mapping[str, Any], max_tokens: int | None = None) -> None:
    """Note what was cut in the LM calls of a command: replies at the limit of their tokens, prompts by their server."""
    if replies := lm.get("cut_replies"):
        limit = f" ({max_tokens})" if max_tokens else ""
        say(f"note: {replies} LM replies were {CUT_REPLY.replace('tokens:', f'tokens{limit}:')}")
    if prompts := lm.get("cut_prompts"):
        say(f"note: {prompts} prompts were longer than their server reads, and cut")


def list_failures(failures: list[dict[str, str]], what: str, again: str = "the next run") -> None:
    """The failures of a command on stderr, the first ten by name."""
    for failure in failures[:10]:
        say(f"failed: {failure.get('title') or failure['id']}: {failure['error']}")
    if len(failures) > 10:
        say(f"... and {len(failures) - 10} more")
    if failures:
        say(f"{len(failures)} {what} failed; {again} tries them again")
