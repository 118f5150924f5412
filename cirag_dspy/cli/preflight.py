"""What a command will need, checked before anything is opened or paid for; a dry run fails where the run would."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirag_dspy.cli import common
from cirag_dspy.errors import RunError

if TYPE_CHECKING:
    from cirag_dspy.benchmarks.base import Benchmark
    from cirag_dspy.cli.planning import Plan
    from cirag_dspy.evaluate.run import RunFolder


def check_outputs(
    folders: Sequence[RunFolder], files: Iterable[Path | None], benchmark: Benchmark, *, resume: bool, dry_run: bool
) -> None:
    """Check that run folders are free, or hold what can be gone on with, and that all files can be written.

    A dry run makes no folder.

    Raises:
        RunError: A folder is taken, of other questions, or can't be made; a file can't be written.
    """
    from cirag_dspy.evaluate.manifest import dataset_manifest
    from cirag_dspy.files import require_folder

    for file in files:
        if dry_run and file is not None:
            require_folder(file.parent)
            if file.is_dir():
                raise RunError(f"{file} can't be written: it is a folder; name another file")
        elif not dry_run:
            common.require_file(file)
    for folder in folders:
        require_folder(folder.path, "choose another --out")
        if resume:
            folder.require_same({"dataset": dataset_manifest(benchmark)})
        else:
            folder.require_free()


def check_index(plan: Plan, benchmark: Benchmark, index: Path | None, embedder: str, *, dry_run: bool) -> None:
    """Check that there is a corpus that the plan's systems can work on; a given index is opened by a dry run.

    Raises:
        RunError: There are no passages, or no triples to be given; the index lacks passages.
        CorpusIndexError: The index can't be used.
    """
    from cirag_dspy.cli.planning import GIVEN
    from cirag_dspy.evaluate.corpus import open_corpus

    if index is not None and any(run.alone for run in plan.runs):
        raise RunError(f"--index {index} has triples already, and --extract online extracts them anew: leave one out")
    if index is not None:
        if dry_run:
            open_corpus(benchmark, path=index).close()
        return
    if not benchmark.passages:
        raise RunError(f"{benchmark.name} {benchmark.split} has no passages; give --corpus or --index")
    if benchmark.name != "demo" and any(run.needs_triples and run.when == GIVEN for run in plan.runs):
        raise RunError(f"{benchmark.name} has no triples of its own; --extract given is for the demo set")
    check_model(embedder, "--embedder")


def check_lms(specs: Iterable[str | None]) -> None:
    """Check LM strings as far as that is possible without loading a model.

    Raises:
        ModelError: One names nothing.
        RunError: A folder that it names is not there.
    """
    from cirag_dspy.errors import ModelError
    from cirag_dspy.lms import is_local, split_spec

    for spec in filter(None, specs):
        if is_local(spec):
            model, adapter = split_spec(spec)
            check_model(model.removeprefix("local/"), f"the LM {spec}")
            if adapter:
                check_model(adapter, f"the LM {spec}")
        elif spec != "annotations":
            provider, _, name = spec.partition("/")
            if not provider.strip() or not name.strip():
                raise ModelError(
                    f"no LM {spec!r}: give embedded, local/FOLDER, or a DSPy LM such as openai/gpt-4o-mini"
                )


def check_model(name: str, what: str) -> None:
    """Raise RunError if a model is named by the path of a folder that is not there. A hub id may be anything else."""
    path = Path(name).expanduser()
    is_path = name.startswith(("/", "./", "../", "~")) or name.count("/") > 1
    if is_path and not path.is_dir():
        raise RunError(f"{what}: {name} is no folder with a model, nor a hub id")


def program_lms(saved: Any, lm: str | None) -> list[str]:
    """The LM strings that a saved program brings where the command names none."""
    return [saved.lm_spec(role)[0] for role in saved.meta["lms"]] if saved is not None and lm is None else []
