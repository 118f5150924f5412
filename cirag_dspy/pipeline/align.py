"""From the training questions of data sets to a trained aligner (KiRAG section 3.4)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cirag_dspy.benchmarks import load_benchmark
from cirag_dspy.benchmarks.draw import told
from cirag_dspy.corpus.embedder import TRAINING_RECORD
from cirag_dspy.distill.links import Walk, rows, split, walk
from cirag_dspy.distill.settings import AlignerSettings
from cirag_dspy.errors import RunError
from cirag_dspy.evaluate.cost import extraction_cost
from cirag_dspy.files import read_json, require_folder
from cirag_dspy.lms.gold import GoldChain
from cirag_dspy.pipeline.stages import Pipeline
from cirag_dspy.pipeline.trainset import ANNOTATIONS, Progress, TrainingSet
from cirag_dspy.recipe import Recipe, RecipeData, RecipeLMs, RecipeTriples

Report = dict[str, Any]


def open_trainsets(
    datasets: Sequence[str],
    *,
    split: str = "train",
    limit: int | None = None,
    seed: int = 0,
    first: bool = False,
    lm: str = ANNOTATIONS,
    embedder: str = "embedded",
    triples: Sequence[str] = (),
    api_base: str = "",
    **pipeline: Any,
) -> list[TrainingSet]:
    """The questions of data sets, with the index that each is retrieved from.

    Args:
        datasets: Names of data sets.
        split: Of each.
        limit: Questions of each, drawn at random.
        seed: Of the draw.
        first: Take the first ones instead.
        lm: Writes the triples of the passages: any LM string, or ``annotations``.
        embedder: Of the indexes.
        triples: Files of silver triples, which ``annotations`` repeats.
        api_base: Address of a remote LM.
        pipeline: ``data_dir`` and ``open_lm``, as `Pipeline` takes them.
    """
    recipe = Recipe(
        name="align",
        system="kirag",
        optimizer="",
        systems={"kirag": {}},
        lm=RecipeLMs(teacher=lm, max_tokens=512, api_base=api_base),
        data=tuple(RecipeData(name, split) for name in datasets),
        triples=tuple(RecipeTriples(file) for file in triples),
        options={},
        lora={},
        seed=0,
        embedder=embedder,
    )
    trainsets = Pipeline(recipe, work=Path(), out=Path(), **pipeline).trainsets
    for one in trainsets:
        one.benchmark = load_benchmark(
            one.data.dataset, one.data.split, data_dir=one.data_dir, limit=limit, sample_seed=seed, first=first
        )
    return trainsets


def draws_of(trainsets: Sequence[TrainingSet]) -> Report:
    """The draw of each data set's questions, and the hash of their ids: what an aligner's record says of them."""
    return {one.name: {**one.benchmark.notes["draw"], "ids_sha256": one.benchmark.ids_sha256} for one in trainsets}


def require_draw(out: Path, trainsets: Sequence[TrainingSet]) -> None:
    """Raise RunError if the folder can't be written, or holds something else, or an aligner of other questions, or if a
    data set has nothing to retrieve from: before anything is paid for, and in a dry run.
    """
    if bare := [one.name for one in trainsets if not one.benchmark.passages]:
        raise RunError(f"{bare[0]} has no passages to retrieve from, so nothing can be aligned on it")
    require_folder(out, "choose another folder")
    if not (out / TRAINING_RECORD).is_file():
        if out.exists() and any(out.iterdir()):
            raise RunError(f"{out} is there already, and is no aligner; choose another folder")
        return
    held, now = read_json(out / TRAINING_RECORD, "choose another folder").get("draws"), draws_of(trainsets)
    if not isinstance(held, dict) or held == now:
        return
    was = "; ".join(f"{name}, {told(draw)}" for name, draw in held.items())
    raise RunError(f"{out} holds an aligner trained on other questions ({was}); choose another folder")


def walks_of(trainset: TrainingSet, k: int, *, threads: int, progress: Progress) -> tuple[list[Walk], int]:
    """The walks of a data set's questions over its index, and of how many passages the extraction failed."""
    corpus = {passage.id: passage for passage in trainset.benchmark.passages}
    with trainset.index(threads, progress) as (index, failed), progress(len(trainset.train), "question") as move:
        walks = []
        for example in trainset.train:
            walks.append(walk(example, corpus, index, k))
            move()
    return walks, failed


def align(
    trainsets: Sequence[TrainingSet],
    out: Path,
    settings: AlignerSettings,
    *,
    base: str,
    k: int,
    threads: int,
    progress: Progress,
    device: str | None = None,
) -> Report:
    """Train an aligner on the questions of all data sets.

    Raises:
        RunError: There is nothing to train on, or the folder holds something else.
        ModelError: A model can't be had.
    """
    from cirag_dspy.distill.aligner import train_aligner
    from cirag_dspy.lms.loading import pick_device

    require_draw(out, trainsets)
    pick_device(device)
    walks: list[Walk] = []
    failed = 0
    for trainset in trainsets:
        found, lost = walks_of(trainset, k, threads=threads, progress=progress)
        walks, failed = walks + found, failed + lost
    train, val = split(walks, settings.val, settings.seed)
    made = rows(train, negatives=settings.negatives, most=settings.rows, seed=settings.seed)
    steps = settings.epochs * settings.batches([row.question for row in made])
    with progress(steps, "step") as move:
        record = train_aligner(base, made, val, out, settings, draws=draws_of(trainsets), device=device, on_step=move)
    gold = {"steps": sum(one.steps for one in walks), "stated": sum(one.stated for one in walks)}
    questions = {"questions": len(walks), "gold": gold, "failed_passages": failed}
    return questions | {key: value for key, value in record.items() if key not in ("identity", "losses")}


def align_plan(trainsets: Sequence[TrainingSet], settings: AlignerSettings) -> Report:
    """What aligning takes at most: LM calls of the extraction by data set, rows, and optimizer steps."""
    extraction: dict[str, Mapping[str, int]] = {}
    links: list[str] = []
    questions = 0
    for trainset in trainsets:
        benchmark = trainset.benchmark
        cost = extraction_cost(benchmark.passages, trainset.calls)
        free = trainset.recipe.extraction == ANNOTATIONS
        extraction[trainset.name] = {"passages": len(benchmark.passages)} | (dict.fromkeys(cost, 0) if free else cost)
        corpus = {passage.id: passage for passage in benchmark.passages}
        questions += len(trainset.train)
        for one in trainset.train:
            links += [f"{trainset.name} {one.id}"] * min(_links(GoldChain.of(one, corpus)), settings.rows)
    if not links:
        raise RunError("nothing to train on: no question has a gold chain in its corpus")
    made, steps = round(len(links) * (1 - settings.val)), settings.epochs * settings.batches(links)
    return {"questions": questions, "extraction": extraction, "rows": made, "steps": steps}


def _links(chain: GoldChain) -> int:
    """The pairs of an incomplete chain and what comes next, if every step is found, in every order if it compares."""
    steps = len(chain.steps)
    return sum(math.perm(steps, length) for length in range(1, steps + 1)) if chain.takes_all else steps
