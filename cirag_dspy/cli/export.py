"""``cirag-dspy export``: trajectories to chat rows, which any trainer takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

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
    base: Annotated[
        str | None,
        typer.Option(help="The student whose tokens are counted; default: embedded, or the recipe's."),
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Tokens a row may have; default: 4096, or the recipe's lora.max_length.")
    ] = None,
    strict: stages.Strict = False,
    resume: stages.Resume = True,
    cache_dir: common.CacheDir = None,
    as_json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Write chat rows, {"messages": [...]}, joint and by predictor, and check them.

    Rows are written whole. How many a student will see shortened at --max-length is counted; evidence.json beside them
    says what may go of each, and finetune reads it.
    """
    common.prepare(cache_dir)
    if source.suffix == ".toml":
        if out is not None:
            raise RunError("a recipe's rows go to WORK/rows: name another --work")
        changes = [*(overrides or []), *([] if shorten is None else [f"options.shorten={str(shorten).lower()}"])]
        changes += [f"lm.student={base}"] if base else []
        changes += [f"lora.max_length={max_length}"] if max_length else []
        pipeline = stages.open_pipeline(
            source,
            changes,
            common.LMOptions(None, None, 4, 120.0, cache=True),
            work=work,
            data_dir=data_dir,
            from_traces=from_traces or [],
            resume=resume,
            quiet=quiet,
            strict=strict,
        )
        report, folder = pipeline.export(), pipeline.rows_file.parent
    elif out is None:
        raise RunError(f"where to? export {source} --out FOLDER")
    else:
        from cirag_dspy.pipeline import export_file

        options: dict[str, Any] = {"shorten": shorten is not False, "strict": strict}
        report, folder = export_file(source, out, **options, **common.given(base=base, max_length=max_length)), out
    stages.print_report({"export": report}, as_json)
    common.say(f"rows: {folder}", quiet)
