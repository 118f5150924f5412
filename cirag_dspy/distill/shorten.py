"""Prompt distillation: a student that was trained on a task needs no instructions for it."""

from __future__ import annotations

import re
from typing import Any

import dspy


def short_prompts(program: dspy.Module) -> dict[str, str]:
    """Replace every prompt of ``program`` by the task's name and the names of its fields, in place.

    A signature without a name (``"question -> answer"``) keeps its instructions: nothing else tells its task.

    What is left of a system message is some 30 tokens instead of 150. It is part of the program's state like any other
    instruction, so that a saved student is loaded with the prompts that it was trained on.

    Returns:
        The instructions by predictor.
    """
    for _, predictor in program.named_predictors():
        signature = predictor.signature
        task = _task(signature)
        for field in signature.fields:
            signature = signature.with_updated_fields(field, desc="")
        predictor.signature = signature.with_instructions(task)
    return {name: predictor.signature.instructions for name, predictor in program.named_predictors()}


def _task(signature: Any) -> str:
    """The task in words: Answer if sufficient."""
    if signature.__name__ == "StringSignature":
        return str(signature.instructions)
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", signature.__name__)
    return f"{name.capitalize()}."
