"""Stages on files that no recipe stands behind: trajectories to rows, rows to an adapter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cirag_dspy.distill.rows import chat_rows, read_rows, write_rows
from cirag_dspy.distill.settings import LoraSettings
from cirag_dspy.distill.shorten import short_prompts
from cirag_dspy.distill.trajectories import read_trajectories
from cirag_dspy.errors import RunError
from cirag_dspy.files import read_json
from cirag_dspy.lms import trainable
from cirag_dspy.pipeline.teaching import contrasts_of, require_kept
from cirag_dspy.recipe import system_of
from cirag_dspy.systems import build_system

Report = dict[str, Any]
ANEW = "start the stage anew with --no-resume"


def export_file(traces: Path, out: Path, *, shorten: bool = True) -> Report:
    """The rows of a file of trajectories, for the system and settings that it was made with.

    Raises:
        DataError: It is no such file, or nothing in it can be trained on.
        RunError: It does not name a system.
    """
    manifest, trajectories = read_trajectories(traces)
    if not isinstance(manifest.get("settings"), dict):
        raise RunError(f"{traces} does not say which system it is of: export it with a recipe and --from-traces")
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in manifest["settings"].items()}
    program = build_system(system_of(manifest.get("system", "")), None, **settings)
    if shorten:
        short_prompts(program)
    require_kept(manifest["system"], trajectories)
    return write_rows(out, chat_rows(program, [*trajectories, *contrasts_of(traces)]))


def finetune_file(
    rows: Path,
    out: Path,
    *,
    base: str,
    settings: LoraSettings,
    resume: bool = True,
    device: str | None = None,
    dtype: str | None = None,
    on_step: Callable[[int, int, float], None] | None = None,
) -> Report:
    """Train an adapter on a file of rows; ``base`` is a local LM, its adapter, if it has one, is what is gone on from.

    Raises:
        DataError: The rows can't be trained on.
        ModelError: ``base`` is no local model, or can't be had.
        RunError: The folder belongs to other rows or settings.
    """
    read = read_rows(rows)  # first, for a model may have to be unpacked
    name, folder, init = trainable(base)
    from cirag_dspy.distill.lora import train

    options: Report = {"resume": resume, "init": init, "device": device, "dtype": dtype, "on_step": on_step}
    train(folder, read, out, settings, base_name=name, **options)
    return training_report(out)


def training_report(adapter: Path) -> Report:
    """What an adapter's ``training.json`` says, its loss curve as its ends."""
    record = read_json(adapter / "training.json", ANEW)
    losses = [point[1] for point in record.pop("losses", [])]
    record.pop("identity", None)
    return record | ({"first_loss": losses[0], "last_loss": losses[-1]} if losses else {})
