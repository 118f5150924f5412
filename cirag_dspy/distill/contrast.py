"""What the teacher makes of evidence that lacks a piece, or holds some that are beside the point.

A teacher that finds everything never refuses, and trajectories that end without an answer are not kept; a student of
those alone would answer from anything. And a teacher keeps what a question needs and no more, where a student's own
evidence has other facts among it. So each answer that was given is asked for again: from less, from more, from both.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

import dspy

from cirag_dspy.distill.trajectories import Call, Trajectory
from cirag_dspy.modules.ask import ask
from cirag_dspy.modules.extract import FATAL
from cirag_dspy.modules.reader import read_answer
from cirag_dspy.modules.threads import each_in_threads
from cirag_dspy.text import fact_lines, is_refusal, match_key, words

MOST_ADDED = 3


def contrasts(
    program: dspy.Module, trajectories: Iterable[Trajectory], seed: int = 0, threads: int = 1
) -> list[Trajectory]:
    """Ask the teacher again for each answer that it read from evidence, with other evidence.

    Evidence of two or more lines loses one of them. Evidence of facts gains up to ``MOST_ADDED`` that the trajectory
    was shown and did not keep, among those most like it; once as it was, once where it lost one.

    Args:
        program: Its LM is the teacher.
        trajectories: Those that were kept are used.
        seed: Which lines go and come, and where.
        threads: Calls at a time.

    Returns:
        A trajectory of one call for each case in which the teacher refused evidence that lost a line, or gave its
        answer again from evidence that only gained some, in the order of ``trajectories``. A call that fails is left
        out.

    Raises:
        dspy.utils.exceptions.LMError: No call can succeed (key, billing, configuration).
    """
    predictors = dict(program.named_predictors())
    cases = [
        (trajectory, call, lines)
        for trajectory in trajectories
        for call in (trajectory.calls if trajectory.kept else ())
        if call.predictor in predictors and call.inputs.get("evidence") and not is_refusal(call.outputs.get("answer"))
        for lines in _changed(call, trajectory, random.Random(f"{seed} {trajectory.id} {call.predictor}"))
    ]

    def asked(number: int) -> Trajectory | None:
        trajectory, call, lines = cases[number]
        inputs = {**call.inputs, "evidence": "\n".join(lines)}
        try:
            reply = ask(predictors[call.predictor], inputs, tries=1)
        except FATAL:
            raise
        except Exception:  # one case less to learn from
            return None
        answer, given = (read_answer(outputs["answer"]) for outputs in (reply, call.outputs))
        whole = set(call.inputs["evidence"].splitlines()) <= set(lines)
        if reply.problem or not (match_key(answer) == match_key(given) if whole else is_refusal(answer)):
            return None
        told = [Call(call.predictor, inputs, dict(reply.fields))]
        return Trajectory(trajectory.id, trajectory.question, answer if whole else "", 0.0, True, "", told)

    found = dict(each_in_threads(asked, range(len(cases)), threads))
    return [made for number in range(len(cases)) if (made := found[number])]


def _changed(call: Call, trajectory: Trajectory, chance: random.Random) -> Iterator[list[str]]:
    lines = call.inputs["evidence"].splitlines()
    less = lines.copy()
    del less[chance.randrange(len(less))]
    if less:
        yield less
    if spare := _beside_the_point(lines, trajectory):
        yield _with(lines, spare, chance)
        if less:
            yield _with(less, spare, chance)


def _beside_the_point(lines: Sequence[str], trajectory: Trajectory) -> list[str]:
    """Facts that were shown and are not in the evidence, the most alike first; none if it is not of facts."""
    shown = dict.fromkeys(fact for call in trajectory.calls for fact in fact_lines(call.inputs.get("facts", "")))
    if not all(line in shown for line in lines):
        return []
    kept = {word for line in lines for word in words(line)}
    spare = [fact for fact in shown if fact not in lines]
    return sorted(spare, key=lambda fact: -len(kept.intersection(words(fact))))[: 2 * MOST_ADDED]


def _with(lines: Sequence[str], spare: Sequence[str], chance: random.Random) -> list[str]:
    mixed = list(lines)
    for fact in chance.sample(spare, chance.randint(1, min(MOST_ADDED, len(spare)))):
        mixed.insert(chance.randint(0, len(mixed)), fact)
    return mixed
