"""Stages on files that no recipe stands behind: trajectories to rows, rows to an adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cirag_dspy.distill.fitting import EncodeReport, told_fit
from cirag_dspy.distill.rows import Row, chat_rows, check_rows, read_rows, write_rows
from cirag_dspy.distill.settings import LoraSettings
from cirag_dspy.distill.shorten import short_prompts
from cirag_dspy.distill.trajectories import read_trajectories
from cirag_dspy.errors import RunError
from cirag_dspy.files import read_json
from cirag_dspy.lms import is_local, trainable
from cirag_dspy.pipeline.teaching import contrasts_of, require_kept
from cirag_dspy.recipe import system_of
from cirag_dspy.systems import build_system

Report = dict[str, Any]
ANEW = "start the stage anew with --no-resume"


def export_file(
    traces: Path,
    out: Path,
    *,
    shorten: bool = True,
    base: str = "embedded",
    max_length: int = LoraSettings.max_length,
    strict: bool = False,
) -> Report:
    """The rows of a file of trajectories, for the system and settings that it was made with.

    Args:
        traces: The file.
        out: The folder of the rows.
        shorten: Prompts without instructions.
        base: The student; its tokenizer says which rows will be shortened.
        max_length: Tokens that a row may have in training.
        strict: Refuse rows that will be shortened or dropped.

    Raises:
        DataError: It is no such file, or nothing in it can be trained on.
        ModelError: ``base`` is no local model, or can't be had.
        RunError: It does not name a system, or ``strict`` finds rows that are too long.
    """
    manifest, trajectories = read_trajectories(traces)
    if not isinstance(manifest.get("settings"), dict):
        raise RunError(f"{traces} does not say which system it is of: export it with a recipe and --from-traces")
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in manifest["settings"].items()}
    program = build_system(system_of(manifest.get("system", "")), None, **settings)
    if shorten:
        short_prompts(program)
    require_kept(manifest["system"], trajectories)
    return write_fitting(out, chat_rows(program, [*trajectories, *contrasts_of(traces)]), base, max_length, strict)


def write_fitting(folder: Path, rows: Sequence[Row], base: str, max_length: int, strict: bool) -> Report:
    """Write rows, and say in their report how many a student will see shortened.

    Raises:
        DataError: A row is not fit for training, or none fits.
        RunError: ``strict``, and some are too long; nothing is written.
    """
    from cirag_dspy.distill.encode import fit_report

    check_rows(rows)
    fit = fit_report(rows, trainable(base)[1], max_length)
    if strict:
        fit.require_whole()
    return write_rows(folder, rows, {"student": base, **fit.as_dict()})


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
    on_note: Callable[[str], None] = lambda note: None,
    strict: bool = False,
) -> Report:
    """Train an adapter on a file of rows; ``base`` is a local LM, its adapter, if it has one, is what is gone on from.

    ``on_note`` is told before the first step what became of rows that are too long.

    Raises:
        DataError: The rows can't be trained on.
        ModelError: ``base`` is no local model, or can't be had.
        RunError: The folder belongs to other rows or settings; or ``strict``, and rows are too long.
    """
    if not is_local(base):
        trainable(base)  # says why it can't be
    read = read_rows(rows)  # first, for a model may have to be unpacked
    name, folder, init = trainable(base)
    from cirag_dspy.distill.lora import train

    def check(fit: EncodeReport) -> None:
        if strict:
            fit.require_whole()
        if note := told_fit(fit.as_dict()):
            on_note(note)

    options: Report = {"resume": resume, "init": init, "device": device, "dtype": dtype, "on_step": on_step}
    options["on_rows"] = check
    train(folder, read, out, settings, base_name=name, **options)
    return training_report(out)


def training_report(adapter: Path) -> Report:
    """What an adapter's ``training.json`` says, its loss curve as its ends."""
    record = read_json(adapter / "training.json", ANEW)
    losses = [point[1] for point in record.pop("losses", [])]
    record.pop("identity", None)
    return record | ({"first_loss": losses[0], "last_loss": losses[-1]} if losses else {})
