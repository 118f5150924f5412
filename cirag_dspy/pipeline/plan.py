"""What a recipe's stages would cost, before anything is called."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import dspy

from cirag_dspy.distill.rows import read_rows
from cirag_dspy.distill.trajectories import read_trajectories
from cirag_dspy.evaluate.cost import (
    CHARACTERS_PER_TOKEN,
    FACT,
    TRIPLES_PER_PASSAGE,
    contrasts_cost,
    extraction_cost,
    rows_cost,
    run_cost,
)
from cirag_dspy.pipeline.stages import Pipeline
from cirag_dspy.pipeline.teaching import traces_file
from cirag_dspy.pipeline.trainset import ANNOTATIONS, TrainingSet
from cirag_dspy.recipe import system_of
from cirag_dspy.systems import build_system, settings_of

Step = dict[str, Any]


def plan(pipeline: Pipeline) -> list[Step]:
    """The stages that are left, each with its LM calls and tokens, or its rows, tokens and steps; all at most.

    What is there already is not counted again, and a teacher that answers from annotations makes no LM calls. Tokens of
    training are those of all epochs.
    """
    recipe = pipeline.recipe
    steps: list[Step] = []
    for trainset in [] if pipeline.from_traces else pipeline.trainsets:
        steps += _teaching(pipeline, trainset)
    if not recipe.distils:
        steps += _scoring(pipeline)
    else:
        rows, tokens = _rows(pipeline)
        lora = recipe.lora_settings
        updates = math.ceil(rows / lora.batch_size * lora.epochs)
        steps.append({"stage": "finetune", "rows": rows, "tokens": round(tokens * lora.epochs), "steps": updates})
    return steps


def _teaching(pipeline: Pipeline, trainset: TrainingSet) -> list[Step]:
    """Extraction and trajectories of one data set."""
    recipe = pipeline.recipe
    questions = {system: _left(pipeline, trainset, system) for system in recipe.systems}
    steps: list[Step] = []
    if trainset.calls and any(questions.values()):
        passages = trainset.benchmark.passages
        cost = _by(trainset.extraction, extraction_cost(passages, trainset.calls))
        steps.append({"stage": "extraction", "data": trainset.name, "passages": len(passages), **cost})
    if recipe.optimizer == "gepa":
        return steps  # it learns from feedback, not from a teacher
    for system, examples in questions.items():
        settings = settings_of(system_of(system), **recipe.systems[system])
        todo = replace(trainset.benchmark, examples=examples)
        asked = {"data": trainset.name, "system": system, "questions": len(examples)}
        steps.append(
            {"stage": "traces", **asked, **_by(recipe.lm.teacher, run_cost(todo, system_of(system), settings))}
        )
        if recipe.distils and recipe.distillation.contrast and "levels" in settings:
            steps.append({"stage": "contrasts", **asked, **_by(recipe.lm.teacher, contrasts_cost(todo, settings))})
    return steps


def _scoring(pipeline: Pipeline) -> list[Step]:
    """Questions that an optimizer of prompts scores its candidates by."""
    recipe, (trainset,) = pipeline.recipe, pipeline.trainsets
    settings = settings_of(recipe.system, **recipe.systems[recipe.system])
    predictors = len(build_system(recipe.system, None, **recipe.systems[recipe.system]).predictors())
    one = run_cost(replace(trainset.benchmark, examples=trainset.train[:1]), recipe.system, settings)
    questions = _scored(recipe.optimizer, recipe.options, len(trainset.train), len(trainset.val), predictors)
    cost = {key: value * questions for key, value in one.items()}
    return [{"stage": recipe.optimizer, "data": trainset.name, "questions": questions, "lm": recipe.lm.student, **cost}]


def _scored(optimizer: str, options: Mapping[str, Any], train: int, val: int, predictors: int) -> int:
    """How many questions are answered at most, by DSPy's own rules for the size of a search."""
    candidates = options.get("num_candidates") or {"medium": 12, "heavy": 18}.get(options.get("auto", ""), 6)
    if optimizer == "bootstrap_random_search":
        return (options.get("num_candidate_programs", 16) + 3) * (val or train)
    if optimizer == "mipro":
        trials = options.get("num_trials") or int(max(4 * predictors * math.log2(candidates), 1.5 * candidates))
        return (trials + 1) * (val or train)
    if options.get("max_metric_calls"):
        return int(options["max_metric_calls"])
    if options.get("max_full_evals"):
        return int(options["max_full_evals"]) * (train + val)
    return int(dspy.GEPA.auto_budget(None, predictors, candidates, val or train))


def _left(pipeline: Pipeline, trainset: TrainingSet, system: str) -> list[Any]:
    """The questions that have no trajectory yet."""
    file = traces_file(pipeline.work, trainset, system)
    there = file.is_file() and pipeline.resume
    done = {t.id for t in read_trajectories(file)[1] if not t.reason.startswith("error")} if there else set()
    return [example for example in trainset.train if example.id not in done]


def _rows(pipeline: Pipeline) -> tuple[int, int]:
    """Rows to train on and their tokens: those that are there, or what questions and passages give at most."""
    systems = pipeline.recipe.systems
    files = [traces_file(pipeline.work, trainset, system) for trainset in pipeline.trainsets for system in systems]
    if (pipeline.from_traces or all(file.is_file() for file in files)) and pipeline.is_exported():
        made = read_rows(pipeline.rows_file)
        return len(made), _tokens(sum(len(message["content"]) for row in made for message in row["messages"]))
    rows, characters = len(pipeline.silver), 0
    for passage, triples in pipeline.silver:
        characters += len(passage.title) + len(passage.text) + sum(len(triple.text) for triple in triples)
    tokens = _tokens(characters)
    for trainset in pipeline.trainsets:
        benchmark = replace(trainset.benchmark, examples=trainset.train)
        for system, program in pipeline.programs.items():
            settings = settings_of(system_of(system), **systems[system])
            cost = rows_cost(benchmark, program, settings, pipeline.recipe.distillation.contrast)
            rows, tokens = rows + cost["rows"], tokens + cost["tokens"]
        passages = benchmark.passages
        text = sum(len(passage.title) + len(passage.text) for passage in passages) // max(1, len(passages))
        rows += min(trainset.data.triples, len(passages))
        tokens += min(trainset.data.triples, len(passages)) * _tokens(text + TRIPLES_PER_PASSAGE * FACT)
    return rows, tokens


def _by(spec: str, cost: dict[str, int]) -> Step:
    return {"lm": spec} | (dict.fromkeys(cost, 0) if spec == ANNOTATIONS else cost)


def _tokens(characters: int) -> int:
    return round(characters / CHARACTERS_PER_TOKEN)
