"""Compile the prompts of a program: demonstrations and instructions, by DSPy's own optimizers, chosen by name.

``bootstrap_random_search`` is DSPy's ``BootstrapFewShotWithRandomSearch``, ``mipro`` its ``MIPROv2``, ``gepa`` its
``GEPA``. They are run as they are; what this package puts into them is said in ``demos``, ``bootstrap``, ``feedback``
and ``reflection``.
"""

from __future__ import annotations

import importlib.util
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from cirag_dspy.distill.compiling import RUNS, Job, off_stdout
from cirag_dspy.distill.options import ALIASES, OPTIMIZERS, all_options, check_options, known_options, optimizer_class
from cirag_dspy.distill.trajectories import Metric, Trajectory
from cirag_dspy.errors import ModelError, RunError

__all__ = ["ALIASES", "OPTIMIZERS", "check_options", "compile_prompts", "known_options"]

_ONE_AT_A_TIME = threading.RLock()


def compile_prompts(
    name: str,
    program: dspy.Module,
    *,
    trainset: Sequence[dspy.Example],
    valset: Sequence[dspy.Example] | None = None,
    metric: Metric,
    teacher: dspy.Module | dspy.LM | None = None,
    lm: dspy.LM,
    prompt_lm: dspy.LM | None = None,
    threshold: float = 1.0,
    threads: int = 1,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    trajectories: Sequence[Trajectory] = (),
    quiet: bool = False,
) -> tuple[dspy.Module, dict[str, Any]]:
    """Optimize the prompts of a copy of ``program``.

    Extract the triples of the corpus before: an index keeps what was extracted first, so a prompt for extraction that
    is tried while compiling changes nothing any more and cannot be scored.

    While it runs, all that this process prints goes to stderr: DSPy prints to stdout, which belongs to results. For the
    same reason one compilation runs at a time; a second one waits.

    Args:
        name: One of ``OPTIMIZERS``, or ``bootstrap`` for the first.
        program: The program; its LMs are those that ``set_lm`` gave it, else ``lm``. It is not changed.
        trainset: Questions, with ``question`` as input and the fields that the metric needs.
        valset: Questions that candidates are scored on. Without them DSPy takes the training questions, or, for
            ``mipro``, the last four fifths of them.
        metric: ``metric(example, prediction)``, 0 to 1 or a boolean. Candidates are scored by its value.
        teacher: Whose runs are shown: an LM for the same program, or the program with a better LM set on it; without
            it the program teaches itself. Not used by ``gepa``, which learns from feedback.
        lm: The LM of predictors that have none of their own.
        prompt_lm: Writes instructions (``mipro``, ``gepa``); without it ``lm`` does.
        threshold: A run of the teacher is shown if it scores at least this; above 0.
        threads: Questions at a time, of the teacher and when candidates are scored. The result does not depend on it,
            and no question is asked again because it takes long.
        seed: The same seed, models and data give the same program.
        options: Of the optimizer, as DSPy names them (``known_options``). Defaults that are not DSPy's: no labelled
            demonstrations; GEPA's budget is ``auto="light"``; MIPROv2's ``auto`` is off as soon as ``num_candidates``
            or ``num_trials`` is given, and it scores on minibatches only if there are more questions than in one.
        trajectories: Runs of the teacher made before; their questions are not run again.
        quiet: Show nothing of DSPy's progress, not on stderr either.

    Returns:
        The compiled program, with the LMs of ``program``; and a report that JSON can hold:

        - ``optimizer`` (the DSPy class that ran), ``options`` (all of them), ``threshold``, ``seed``, ``train`` and
          ``val`` (numbers of questions);
        - ``score`` and ``baseline`` (mean of the metric over the validation questions, compiled and before),
          ``scores`` (of every candidate);
        - ``demos`` (number by predictor), ``changed`` (predictors with another instruction; that of one which was never
          called is not changed);
        - ``bootstrapped`` and ``dropped`` (runs of the teacher that count, and those that don't by reason), or, of
          ``gepa``, ``proposed`` (new instructions by predictor) and ``failed`` (proposals that could not be read);
        - ``errors`` (candidates' runs, and scorings, that raised and count as 0, by error).

    Raises:
        RunError: Unknown optimizer or option, nothing to compile on or nothing bootstrapped, no LM for prose, or the
            optimizer refuses.
        ModelError: ``mipro`` without optuna.
        dspy.utils.exceptions.LMError: No LM call can succeed (key, billing, configuration).
    """
    given = dict(options or {})
    check_options(name, given)
    name = ALIASES.get(name, name)
    if not trainset:
        raise RunError("no examples to compile on")
    if not threshold > 0:
        raise RunError(f"threshold must be above 0, or failed runs would be shown, not {threshold:g}")
    if name == "mipro" and importlib.util.find_spec("optuna") is None:
        raise ModelError("MIPROv2 needs optuna: pip install 'cirag-dspy[optimizers]'")
    prompt_lm = prompt_lm or lm
    if name != "bootstrap_random_search" and re.match(r"annotations\b", prompt_lm.model):
        optimizer = optimizer_class(name).__name__
        raise RunError(f"{optimizer} has an LM write instructions, which annotations can't; give a prompt_lm that can")
    job = Job(
        program=program,
        trainset=list(trainset),
        valset=list(valset) if valset else None,
        metric=metric,
        teacher=teacher,
        lm=lm,
        prompt_lm=prompt_lm,
        threshold=threshold,
        threads=threads,
        seed=seed,
        options=all_options(name, given, len(trainset), len(valset or ())),
        trajectories=trajectories,
    )
    with _ONE_AT_A_TIME, off_stdout(quiet), job.context():
        job.try_out()
        compiled, result = RUNS[name](job)
    job.finish(compiled)
    return compiled, {"optimizer": optimizer_class(name).__name__, **job.report(compiled), **result}
