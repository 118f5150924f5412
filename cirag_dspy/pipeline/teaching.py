"""The traces stage of one data set: the teacher over its questions with every system, and with other evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dspy

from cirag_dspy.distill.contrast import contrasts
from cirag_dspy.distill.silver import write_silver
from cirag_dspy.distill.trajectories import Trajectory, collect, read_trajectories, reasons, write_trajectories
from cirag_dspy.errors import RunError
from cirag_dspy.files import digest, sha256
from cirag_dspy.pipeline.trainset import Progress, TrainingSet
from cirag_dspy.recipe import system_of
from cirag_dspy.systems import build_system, settings_of

TRACES, CONTRASTS = "traces", "contrasts"


def traces_file(work: Path, trainset: TrainingSet, system: str) -> Path:
    """Where the trajectories of a data set and a system are."""
    return work / f"{TRACES}-{trainset.name}-{system.replace(':', '-')}.jsonl"


def teach(trainset: TrainingSet, work: Path, *, threads: int, resume: bool, progress: Progress) -> int:
    """Collect the trajectories, contrasts and triples of a data set; of how many passages the extraction failed.

    Raises:
        RunError: A file is of other settings.
    """
    recipe = trainset.recipe
    options = recipe.distillation
    teacher = trainset.lm(recipe.lm.teacher)
    with trainset.index(threads, progress) as (index, failed):
        for system, settings in recipe.systems.items():
            file = traces_file(work, trainset, system)
            if not resume:
                file.unlink(missing_ok=True)
            manifest = {
                "system": system,
                "settings": settings_of(system_of(system), **settings),
                "dataset": trainset.data.dataset,
                "split": trainset.data.split,
                "questions": digest([example.id for example in trainset.train]),
                "corpus": index.corpus_hash,
                "embedder": recipe.embedder,
                "triples": index.extractor,
                "teacher": teacher.model,
                "metric": options.metric,
            }
            program = build_system(system_of(system), index, **settings)
            with progress(len(trainset.train), "question") as move, dspy.context(lm=teacher):
                trajectories = collect(
                    program,
                    trainset.train,
                    file,
                    metric=trainset.metric(options.metric, options.threshold),
                    threshold=options.threshold,
                    threads=threads,
                    manifest=manifest,
                    on_done=lambda trajectory: move(),
                )
                if options.contrast:
                    _contrast(program, file, manifest, trajectories, recipe.seed, threads)
        if trainset.data.triples:
            write_silver(work / f"triples-{trainset.name}.jsonl", trainset.extracted(index))
    return failed


def contrasts_of(traces: Path) -> list[Trajectory]:
    """What the teacher was asked again after a file of trajectories, which lies beside it."""
    file = _beside(traces)
    if file == traces or not file.is_file():
        return []
    manifest, found = read_trajectories(file)
    return found if manifest.get("traces") == sha256(traces) else []


def require_kept(system: str, trajectories: Sequence[Trajectory]) -> None:
    """Raise RunError, with the reasons, if no trajectory was kept (known failure D10)."""
    if any(trajectory.kept for trajectory in trajectories):
        return
    told = ", ".join(f"{reason}: {count}" for reason, count in reasons(trajectories).items()) or "there are none"
    errors = [trajectory.reason for trajectory in trajectories if trajectory.reason.startswith("error")]
    first = f"; the first {errors[0]}" if errors else ""
    raise RunError(f"nothing to train on: no trajectory of {system} was kept, of {len(trajectories)} ({told}){first}")


def _contrast(
    program: dspy.Module,
    traces: Path,
    manifest: Mapping[str, Any],
    trajectories: Sequence[Trajectory],
    seed: int,
    threads: int,
) -> None:
    """Ask the teacher again with other evidence, once for a file of trajectories."""
    made_from = {"system": manifest["system"], "traces": sha256(traces)}
    file = _beside(traces)
    if not file.is_file() or read_trajectories(file)[0] != made_from:
        write_trajectories(file, made_from, contrasts(program, trajectories, seed, threads))


def _beside(traces: Path) -> Path:
    return traces.with_name(traces.name.replace(TRACES, CONTRASTS, 1))
