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
from cirag_dspy.modules.extract import FATAL
from cirag_dspy.modules.reader import read_answer
from cirag_dspy.modules.threads import each_in_threads
from cirag_dspy.text import is_refusal


def refusals(
    program: dspy.Module, trajectories: Iterable[Trajectory], seed: int = 0, threads: int = 1
) -> list[Trajectory]:
    """One more call of the teacher for each answer read from two or more lines of evidence, one of them left out.

    Args:
        program: Its LM is the teacher.
        trajectories: Those that were kept are used.
        seed: Which line is left out.
        threads: Calls at a time.

    Returns:
        A trajectory of one call for each case in which the teacher refused, in the order of ``trajectories``. A call
        that fails is left out.

    Raises:
        dspy.utils.exceptions.LMError: No call can succeed (key, billing, configuration).
    """
    predictors = dict(program.named_predictors())
    cases = [
        (trajectory, call.predictor, _less(call, f"{seed} {trajectory.id} {call.predictor}"))
        for trajectory in trajectories
        for call in (trajectory.calls if trajectory.kept else ())
        if call.predictor in predictors and len(call.inputs.get("evidence", "").splitlines()) > 1
        if not is_refusal(call.outputs.get("answer"))
    ]

    def refused(number: int) -> Trajectory | None:
        trajectory, name, inputs = cases[number]
        try:
            reply = ask(predictors[name], inputs, tries=1)
        except FATAL:
            raise
        except Exception:  # one case less to learn from
            return None
        if reply.problem or not is_refusal(read_answer(reply["answer"])):
            return None
        call = Call(name, inputs, dict(reply.fields))
        return Trajectory(trajectory.id, trajectory.question, "", 0.0, True, "", [call])

    found = dict(each_in_threads(refused, range(len(cases)), threads))
    return [made for number in range(len(cases)) if (made := found[number])]


def _less(call: Call, seed: str) -> dict[str, str]:
    lines = call.inputs["evidence"].splitlines()
    lines.pop(random.Random(seed).randrange(len(lines)))
    return {**call.inputs, "evidence": "\n".join(lines)}
