"""``cirag-dspy export``: trajectories to chat rows, which any trainer takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cirag_dspy.cli import common, stages
from cirag_dspy.errors import RunError


def export(
    source: Annotated[Path, typer.Argument(help="A recipe, programs/NAME.toml, or a file of trajectories, .jsonl.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the rows; of a recipe: WORK/rows.")] = None,
    shorten: Annotated[
        bool | None,
        typer.Option(help="Prompts without instructions, for a student; default: yes, or the recipe's."),
    ] = None,
    overrides: stages.Overrides = None,
    from_traces: Annotated[
        list[Path] | None, typer.Option(help="Saved trajectories in place of the recipe's own; again for more.")
    ] = None,
    data_dir: stages.DataDir = None,
    work: stages.Work = None,
    resume: stages.Resume = True,
    cache_dir: common.CacheDir = None,
    as_json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Write chat rows, {"messages": [...]}, joint and by predictor, and check them."""
    common.prepare(cache_dir)
    if source.suffix == ".toml":
        if out is not None:
            raise RunError("a recipe's rows go to WORK/rows: name another --work")
        changes = [*(overrides or []), *([] if shorten is None else [f"options.shorten={str(shorten).lower()}"])]
        pipeline = stages.open_pipeline(
            source,
            changes,
            common.LMOptions(None, None, 4, 120.0, cache=True),
            work=work,
            data_dir=data_dir,
            from_traces=from_traces or [],
            resume=resume,
            quiet=quiet,
        )
        report, folder = pipeline.export(), pipeline.rows_file.parent
    elif out is None:
        raise RunError(f"where to? export {source} --out FOLDER")
    else:
        from cirag_dspy.pipeline import export_file

        report, folder = export_file(source, out, shorten=shorten is not False), out
    stages.print_report({"export": report}, as_json)
    common.say(f"rows: {folder}", quiet)
