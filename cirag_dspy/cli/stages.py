"""What ``compile``, ``traces``, ``export`` and ``finetune`` share: options, and the way to a recipe's pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cirag_dspy.cli import common

if TYPE_CHECKING:
    from cirag_dspy.pipeline import Pipeline

Recipe = Annotated[Path, typer.Argument(help="A recipe, programs/NAME.toml.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="KEY=VALUE over the recipe's, such as lora.rank=16; again for more.")
]
DataDir = Annotated[
    Path | None, typer.Option(help="Folder with a folder of official files a data set; default: the hub.")
]
Work = Annotated[Path | None, typer.Option(help="Where the stages leave their files; default: runs/NAME.")]
Resume = Annotated[bool, typer.Option("--resume/--no-resume", help="Go on with what is there, or start anew.")]
Device = Annotated[str | None, typer.Option(help="To train on: cpu or cuda; default: what there is.")]
First = Annotated[
    bool,
    typer.Option("--first", help="Take the first questions of each [[data]], not a random draw; they are no sample."),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Refuse, before training, rows longer than lora.max_length. Without it they lose evidence from its end, "
        "never instructions, question or reply; rows that can't are left out; both are counted.",
    ),
]
Dtype = Annotated[str | None, typer.Option(help="To train in: bfloat16 or float32; default: by the device.")]


def open_pipeline(
    recipe: Path,
    overrides: Sequence[str] | None,
    lms: common.LMOptions,
    *,
    quiet: bool,
    work: Path | None = None,
    out: Path | None = None,
    **options: Any,
) -> Pipeline:
    """The pipeline of a recipe file; what it needs is made where it is not given."""
    from cirag_dspy.pipeline import Pipeline
    from cirag_dspy.recipe import read_recipe

    read = read_recipe(recipe, overrides or [])
    return Pipeline(
        read,
        work=work or Path("runs") / read.name,
        out=out or Path("optimized") / read.name,
        open_lm=lms.open,
        quiet=quiet,
        progress=lambda total, unit: common.progress(total, unit, quiet),
        on_note=lambda note: common.say(f"note: {note}", quiet),
        **options,
    )


def print_plan(pipeline: Pipeline, as_json: bool) -> None:
    """What is left to do and its cost, on stdout."""
    from cirag_dspy.pipeline import plan

    pipeline.check()
    steps = plan(pipeline)
    if as_json:
        common.print_json({"recipe": pipeline.recipe.name, "optimizer": pipeline.recipe.optimizer, "stages": steps})
        return
    typer.echo(f"{pipeline.recipe.name}, {pipeline.recipe.optimizer}; at most")
    for step in steps:
        what = " ".join(str(step[key]) for key in ("stage", "data", "system") if key in step)
        size = next((f"{step[key]} {key}" for key in ("questions", "passages", "rows") if key in step), "")
        if "steps" in step:
            cost = f"about {step['tokens']} tokens in {step['steps']} steps"
        elif step["lm"] == "annotations":
            cost = "no LM calls (annotations)"
        elif "lm_calls" in step:
            cost = f"{step['lm_calls']} LM calls, about {step['prompt_tokens']} prompt and {step['reply_tokens']} reply"
            cost += f" tokens ({step['lm']})"
        else:
            cost = f"calls of {step['lm']} not known"
        typer.echo(f"  {what}: {size}, {cost}")


def print_report(report: dict[str, Any], as_json: bool) -> None:
    """The reports of the stages that ran, on stdout."""
    if as_json:
        common.print_json(report)
        return
    if traces := report.get("traces"):
        for name, counts in traces["files"].items():
            told = ", ".join(f"{reason} {count}" for reason, count in counts.items())
            typer.echo(f"traces: {name}: {told}")
        typer.echo(f"  {traces['lm']['calls']} calls of the teacher, {traces['lm']['cached']} cached")
    if rows := report.get("export"):
        told = ", ".join(f"{name} {group['rows']}" for name, group in rows["by_predictor"].items())
        typer.echo(f"rows: {rows['rows']}: {told}")
        typer.echo(f"  {_fit(rows['fit'])}")
    if trained := report.get("finetune"):
        typer.echo(
            f"student: {trained['steps']} steps, {trained['tokens']} tokens, {trained['seconds']:.0f} s; "
            f"loss {trained['first_loss']:.3f} -> {trained['last_loss']:.3f}"
        )
        typer.echo(f"  {_fit(trained['rows'])}")
    if saved := report.get("save") or report.get("optimize"):
        typer.echo(f"program: {saved['program']} ({saved['optimizer'].get('name') or saved['optimizer']['optimizer']})")


def _fit(counts: dict[str, Any]) -> str:
    from cirag_dspy.distill.fitting import told_fit

    return told_fit(counts) or "no row shortened"


def failures(report: dict[str, Any]) -> int:
    """How many questions and passages failed, each kind told on stderr."""
    traces = report.get("traces", {})
    errors = sum(counts.get("error", 0) for counts in traces.get("files", {}).values())
    passages = traces.get("failed_passages", 0)
    if errors:
        common.say(f"{errors} questions failed; the same command tries them again")
    if cut := traces.get("cut_passages", 0):
        common.say(f"note: replies on {cut} passages were cut off; max_tokens in [lm] gives the next run more")
    if passages:
        common.say(f"no triples could be extracted from {passages} passages; the same command tries them again")
    return errors + passages
