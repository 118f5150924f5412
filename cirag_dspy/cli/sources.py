"""``cirag-dspy sources``: what an index was built from, and removing some of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cirag_dspy.cli import common
from cirag_dspy.errors import RunError
from cirag_dspy.files import printable

if TYPE_CHECKING:
    from cirag_dspy.corpus.index import CorpusIndex


def sources(
    index: Annotated[Path, typer.Argument(help="Index folder made by `cirag-dspy index`.")],
    remove: Annotated[
        list[str] | None, typer.Option(help="Remove a source by its name or path, a folder with all of its files.")
    ] = None,
    prune: Annotated[bool, typer.Option("--prune", help="Remove the sources that are gone from the disk.")] = False,
    as_json: common.Json = False,
) -> None:
    """List the sources of an index (a file of rows is one), with the passages of each; remove some of them."""
    common.prepare()
    from cirag_dspy.corpus.index import CorpusIndex

    with CorpusIndex.open(index) as opened:
        removed = sum(_remove(opened, name) for name in remove or [])
        roots = opened.roots()
        gone = roots.gone()
        if prune:
            removed += sum(opened.remove(name) for name in gone)
            gone = []
        folders = tuple(name for name in gone if name.endswith("/"))
        rows = [
            {"name": name, "passages": count, "gone": name in gone or name.startswith(folders)}
            for name, count in opened.sources().items()
        ]
        places = {name: printable(path) for name, path in opened.roots().paths.items()}
    if as_json:
        common.print_json({"index": printable(index), "removed": removed, "sources": rows, "roots": places})
        return
    for row in rows:
        typer.echo(f"{row['name']}: {row['passages']} passages{', gone from the disk' * bool(row['gone'])}")
    for name, place in places.items():
        typer.echo(f"{name} is {place}")
    if remove or prune:
        typer.echo(f"{removed} passages removed")


def _remove(index: CorpusIndex, name: str) -> int:
    """Remove a source.

    Raises:
        RunError: There is none of that name.
    """
    before = index.sources(), index.roots().paths
    removed = index.remove(name)
    if before == (index.sources(), index.roots().paths):
        raise RunError(f"no source {printable(name)}; cirag-dspy sources {printable(index.path)} lists them")
    return removed
