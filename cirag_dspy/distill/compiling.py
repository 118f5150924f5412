"""One compilation of prompts: what DSPy's optimizers are given, under which settings, and what comes of it."""

from __future__ import annotations

import inspect
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import dspy
import dspy.evaluate.evaluate as evaluating
from dspy.utils.exceptions import AdapterParseError

from cirag_dspy.distill.bootstrap import Teacher, attach, lms_of, mipro, random_search
from cirag_dspy.distill.feedback import feedback_metric
from cirag_dspy.distill.options import plain
from cirag_dspy.distill.reflection import Proposer, mark, unmark
from cirag_dspy.distill.trajectories import Metric, Trajectory
from cirag_dspy.distill.watch import KeepUnreadable, Watch, unwatched
from cirag_dspy.errors import RunError
from cirag_dspy.modules.extract import FATAL
from cirag_dspy.text import one_line

# What the optimizers hang on the program they return: other programs, logs. The report has what is worth keeping.
_BALLAST = (
    "candidate_programs",
    "mb_candidate_programs",
    "trial_logs",
    "score",
    "prompt_model_total_calls",
    "total_calls",
    "detailed_results",
)


# Questions that the teacher is asked together: a search over many sets of demonstrations comes to them anyway.
_AHEAD = 8


@dataclass
class Job:
    """What every optimizer needs of one compilation."""

    program: dspy.Module
    trainset: list[dspy.Example]
    valset: list[dspy.Example] | None
    metric: Metric
    teacher: dspy.Module | dspy.LM | None
    lm: dspy.LM
    prompt_lm: dspy.LM
    threshold: float
    threads: int
    seed: int
    options: dict[str, Any]
    trajectories: Sequence[Trajectory]
    lms: dict[str, Any] = field(init=False)
    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        self.lms = lms_of(self.program)
        self.watch = Watch(self.program)

    @contextmanager
    def context(self) -> Iterator[None]:
        """DSPy's settings while compiling. No trace: where one is needed, optimizers open their own."""
        with asked_once(), dspy.context(lm=self.lm, trace=None, callbacks=[*unwatched(), self.watch]):
            yield

    def score(self, example: Any, prediction: Any, trace: Any = None) -> float:
        """The metric as a number. What counts as a success is up to ``Teacher``, by the threshold alone."""
        return float(self.metric(example, prediction))

    def counted(self, metric: Callable[..., Any]) -> Callable[..., Any]:
        """A metric whose failures are counted; DSPy scores them 0."""

        def judge(*args: Any, **kwargs: Any) -> Any:
            try:
                return metric(*args, **kwargs)
            except Exception as error:
                self.watch.errors[f"metric: {type(error).__name__}"] += 1
                raise

        return judge

    def student(self) -> dspy.Module:
        """A copy to optimize; its LMs come without their history, which DSPy would copy for each candidate."""
        student = self.program.deepcopy()
        student._compiled = False  # or DSPy would refuse to go on from where an earlier optimizer left it
        attach(student, {name: lm.copy() if lm is not None else None for name, lm in self.lms.items()})
        return student

    def taught(self, rounds: int = 1) -> tuple[Teacher, dspy.Module]:
        """The teacher; and the same program without an LM, for DSPy, which looks at it but never runs it."""
        program = self.teacher if isinstance(self.teacher, dspy.Module) else self.student()
        if self.teacher is not None and self.teacher is not program:
            program.set_lm(self.teacher)
        stand_in = program.deepcopy()
        attach(stand_in, {})
        options: dict[str, Any] = {"known": self.trajectories, "threads": self.threads, "ahead": _AHEAD}
        teacher = Teacher(program, self.metric, self.threshold, rounds=rounds, **options)
        return teacher, stand_in

    def try_out(self) -> None:
        """Ask one question first: an LM without key or address would be scored as so many wrong answers."""
        try:
            self.student()(**(self.valset or self.trainset)[0].inputs())
        except FATAL:
            raise
        except Exception:  # whatever else a question meets is counted when it is scored
            pass
        self.watch.clear()

    def compile(
        self, kind: Any, metric: Callable[..., Any], student: dspy.Module, fixed: Mapping[str, Any], **extra: Any
    ) -> Any:
        """Make an optimizer and run it, with DSPy's refusals as ours.

        Args:
            kind: The optimizer's class.
            metric: Its metric.
            student: What it compiles.
            fixed: Arguments of the class that are no options.
            extra: Further arguments of ``compile``.
        """
        of_class = inspect.signature(kind.__init__).parameters
        mine = {key: value for key, value in self.options.items() if key in of_class}
        extra |= {key: value for key, value in self.options.items() if key not in of_class}
        try:
            optimizer = kind(metric=self.counted(metric), num_threads=self.threads, **mine, **fixed)
            return optimizer.compile(student, trainset=self.trainset, valset=self.valset, **extra)
        except AdapterParseError as error:
            message = f"{self.prompt_lm.model} wrote no instruction that can be read; give another prompt_lm"
            raise RunError(f"{message} ({one_line(str(error))[:200]})") from error
        except (ValueError, AssertionError) as error:
            raise RunError(f"{kind.__name__}: {one_line(str(error))}") from error
        except Exception as error:
            if "Execution cancelled" not in str(error):
                raise
            failed = ", ".join(f"{kind}: {number}" for kind, number in self.watch.errors.items())
            raise RunError(f"too many questions failed ({failed}); set that right, or raise max_errors") from error

    def finish(self, compiled: dspy.Module) -> None:
        """Give the program its LMs back, take off it what the search left, and instructions that were never tried."""
        attach(compiled, self.lms)
        before = {name: predictor.signature for name, predictor in self.program.named_predictors()}
        for name, predictor in compiled.named_predictors():
            if name not in self.watch.called:
                predictor.signature = before[name]
        for attribute in _BALLAST:
            vars(compiled).pop(attribute, None)

    def report(self, compiled: dspy.Module) -> dict[str, Any]:
        """What is reported of every optimizer."""
        before, after = _instructions(self.program), _instructions(compiled)
        return {
            "options": plain(self.options),
            "threshold": self.threshold,
            "seed": self.seed,
            "train": len(self.trainset),
            "val": len(self.valset) if self.valset else None,
            "demos": {name: len(predictor.demos) for name, predictor in compiled.named_predictors()},
            "changed": [name for name, text in before.items() if after[name] != text],
            "errors": dict(self.watch.errors),
        }


def _run_random_search(job: Job) -> tuple[dspy.Module, dict[str, Any]]:
    teacher, stand_in = job.taught(job.options["max_rounds"])
    teacher.require_one(job.trainset)  # before candidates are scored for nothing
    if job.seed:
        random.Random(job.seed).shuffle(job.trainset)
    compiled = job.compile(random_search(teacher, job.lms), job.score, job.student(), {}, teacher=stand_in)
    scores = {candidate["seed"]: candidate["score"] / 100 for candidate in compiled.candidate_programs}
    return compiled, _scores(list(scores.values()), scores.get(-3)) | _bootstrapped(teacher)


def _run_mipro(job: Job) -> tuple[dspy.Module, dict[str, Any]]:
    teacher, stand_in = job.taught()
    fixed = {"prompt_model": job.prompt_lm, "task_model": job.lm, "seed": job.seed}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*multivariate", Warning)  # an option of optuna's that DSPy sets
        compiled = job.compile(mipro(teacher), job.score, job.student(), fixed, teacher=stand_in)
    scores = [candidate["score"] / 100 for candidate in compiled.candidate_programs]
    return compiled, _scores(scores, compiled.trial_logs[1]["full_eval_score"] / 100) | _bootstrapped(teacher)


def _run_gepa(job: Job) -> tuple[dspy.Module, dict[str, Any]]:
    lookup = getattr(getattr(job.program, "index", None), "passages", None)
    metric = feedback_metric(job.metric, threshold=job.threshold, lookup=lookup)
    student = job.student()
    before = mark(student)
    fixed = {"reflection_lm": job.prompt_lm, "seed": job.seed, "track_stats": True}
    with dspy.context(callbacks=[*dspy.settings.callbacks, KeepUnreadable()]):
        compiled = job.compile(dspy.GEPA, metric, student, fixed)
    unmark(compiled, before)
    scores = compiled.detailed_results.val_aggregate_scores
    report = _scores(scores, scores[0])
    if isinstance(proposer := job.options["instruction_proposer"], Proposer):
        proposer.check(job.prompt_lm)
        report |= proposer.report()
    return compiled, report


RUNS: dict[str, Callable[[Job], tuple[dspy.Module, dict[str, Any]]]] = {
    "bootstrap_random_search": _run_random_search,
    "mipro": _run_mipro,
    "gepa": _run_gepa,
}


def _instructions(program: dspy.Module) -> dict[str, str]:
    return {name: predictor.signature.instructions for name, predictor in program.named_predictors()}


def _scores(scores: Sequence[float], baseline: float | None) -> dict[str, Any]:
    rounded = [round(score, 4) for score in scores]
    return {
        "score": max(rounded),
        "baseline": None if baseline is None else round(baseline, 4),
        "scores": sorted(rounded, reverse=True),
    }


def _bootstrapped(teacher: Teacher) -> dict[str, Any]:
    kept, dropped = teacher.counts()
    return {"bootstrapped": kept, "dropped": dropped}


@contextmanager
def asked_once() -> Iterator[None]:
    """Let ``dspy.Evaluate`` ask each question once, however long it takes.

    DSPy's executor submits the last questions again after 120 seconds, and both are paid for. ``Evaluate`` has no
    option for that; so for the time of a compilation it makes its executors without the time limit, in all threads.
    """
    name = "ParallelExecutor"
    before = getattr(evaluating, name)
    setattr(evaluating, name, partial(before, timeout=0))
    try:
        yield
    finally:
        setattr(evaluating, name, before)


@contextmanager
def off_stdout(quiet: bool) -> Iterator[None]:
    """All that is printed goes to stderr, or nowhere."""
    with ExitStack() as stack:
        if quiet:
            nowhere = stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
            stack.enter_context(redirect_stderr(nowhere))
        stack.enter_context(redirect_stdout(sys.stderr))
        yield
