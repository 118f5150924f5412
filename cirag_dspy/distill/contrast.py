"""Refusals to learn from: the teacher's verdict on evidence that lacks a piece.

A teacher that finds everything never refuses, and trajectories that end without an answer are not kept; a student of
those alone would answer from anything. So each answer that was given is asked for again from less.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import dspy

from cirag_dspy.distill.trajectories import Call, Trajectory
from cirag_dspy.modules.ask import ask
from cirag_dspy.modules.reader import read_answer
from cirag_dspy.text import is_refusal


def refusals(program: dspy.Module, trajectories: Iterable[Trajectory], seed: int = 0) -> list[Trajectory]:
    """One more call of the teacher for each answer read from two or more lines of evidence, one of them left out.

    Args:
        program: Its LM is the teacher.
        trajectories: Those that were kept are used.
        seed: Which line is left out.

    Returns:
        A trajectory of one call for each case in which the teacher refused.
    """
    predictors = dict(program.named_predictors())
    found = []
    for trajectory in trajectories:
        for call in trajectory.calls if trajectory.kept else ():
            lines = call.inputs.get("evidence", "").splitlines()
            if len(lines) < 2 or call.predictor not in predictors or is_refusal(call.outputs.get("answer")):
                continue
            lines.pop(random.Random(f"{seed} {trajectory.id} {call.predictor}").randrange(len(lines)))
            inputs = {**call.inputs, "evidence": "\n".join(lines)}
            reply = ask(predictors[call.predictor], inputs, tries=1)
            if not reply.problem and is_refusal(read_answer(reply["answer"])):
                less = Call(call.predictor, inputs, dict(reply.fields))
                found.append(Trajectory(trajectory.id, trajectory.question, "", 0.0, True, "", [less]))
    return found
