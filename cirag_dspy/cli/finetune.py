"""``cirag-dspy finetune``: chat rows to a LoRA adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cirag_dspy.cli import common, stages
from cirag_dspy.errors import RunError


def finetune(
    source: Annotated[Path, typer.Argument(help="A recipe, programs/NAME.toml, or chat rows, .jsonl.")],
    base: Annotated[
        str | None,
        typer.Option(help="The student: embedded, or local/MODEL[+ADAPTER to go on from]."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Of rows: the adapter's folder.")] = None,
    rank: Annotated[int | None, typer.Option(help="LoRA rank; paper: 64.")] = None,
    alpha: Annotated[float | None, typer.Option(help="LoRA alpha; default: twice the rank.")] = None,
    dropout: Annotated[float | None, typer.Option(help="LoRA dropout; 0.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Times over the rows; paper: 2.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows a step; paper: 2.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Paper: 2e-4.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens of a row at most; 4096.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of weights and order; 0.")] = None,
    save_every: Annotated[int | None, typer.Option(help="Steps between checkpoints; 100.")] = None,
    overrides: stages.Overrides = None,
    data_dir: stages.DataDir = None,
    work: stages.Work = None,
    device: stages.Device = None,
    dtype: stages.Dtype = None,
    strict: stages.Strict = False,
    resume: stages.Resume = True,
    cache_dir: common.CacheDir = None,
    as_json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Train a student; goes on from its last checkpoint. Any other setting: --set lora.NAME=VALUE."""
    common.prepare(cache_dir)
    settings: dict[str, Any] = common.given(
        rank=rank,
        alpha=alpha,
        dropout=dropout,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        max_length=max_length,
        seed=seed,
        save_every=save_every,
    )
    changes = [*(overrides or []), *(f"lora.{name}={value}" for name, value in settings.items())]
    if source.suffix == ".toml":
        changes += [f"lm.student={base}"] if base else []
        if out is not None:
            raise RunError("a recipe's student goes to WORK/adapter: name another --work")
        pipeline = stages.open_pipeline(
            source,
            changes,
            common.LMOptions(None, None, 4, 120.0, cache=True),
            work=work,
            data_dir=data_dir,
            resume=resume,
            device=device,
            dtype=dtype,
            quiet=quiet,
            strict=strict,
        )
        report, folder, told = pipeline.finetune(), pipeline.adapter, ""
    elif out is None:
        raise RunError(f"where to? finetune {source} --out FOLDER")
    else:
        from cirag_dspy.lms import split_spec
        from cirag_dspy.pipeline import finetune_file
        from cirag_dspy.recipe import read_lora

        with common.progress(None, "step", quiet) as move:
            folder = out
            report = finetune_file(
                source,
                out,
                base=base or "embedded",
                settings=read_lora(changes),
                resume=resume,
                device=device,
                dtype=dtype,
                on_step=lambda step, total, loss: move(step, total),
                on_note=lambda note: common.say(f"note: {note}", quiet),
                strict=strict,
            )
        told = f"; as an LM: {split_spec(base or 'embedded')[0]}+{folder}"
    stages.print_report({"finetune": report}, as_json)
    common.say(f"adapter: {folder}{told}", quiet)
