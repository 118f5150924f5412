"""DSPy's bootstrapping optimizers with our choice of demonstrations.

DSPy's: the search of ``BootstrapFewShotWithRandomSearch``, the proposals and the Bayesian search of ``MIPROv2``, the
loop of ``BootstrapFewShot`` over the training questions, all scoring. Ours: what a teacher's run is and when it counts
(``Teacher``), each run once however many sets of demonstrations are drawn, and which of its calls are shown
(``BalancedBootstrap``). DSPy's functions are run as they are, with ours under the name they look up.
"""

from __future__ import annotations

import inspect
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from types import FunctionType
from typing import Any

import dspy
from dspy.teleprompt.utils import create_n_fewshot_demo_sets

from cirag_dspy.distill.demos import balanced, is_about, labelled, steps
from cirag_dspy.distill.trajectories import Metric, Trajectory, trajectory_of
from cirag_dspy.distill.watch import unwatched
from cirag_dspy.errors import RunError
from cirag_dspy.modules.threads import each_in_threads

LMs = dict[str, Any]

_BELOW = "below threshold"


class Teacher:
    """A program whose runs are shown, each question run once a round.

    Args:
        program: The program; its LM by ``set_lm`` or ``dspy.context``.
        metric: ``metric(example, prediction)``, a number or a boolean.
        threshold: A run counts if it scores at least this.
        rounds: Tries a question at most; those after the first at temperature 1 and past the cache.
        known: Runs made before, by question id: such a question is not run again.
        threads: Questions at a time.
        ahead: Questions that are run together at least, whatever ``threads`` is, so that runs and counts do not depend
            on it. With 1, no question is run that bootstrapping one by one would not have run.
    """

    def __init__(
        self,
        program: dspy.Module,
        metric: Metric,
        threshold: float,
        *,
        rounds: int = 1,
        known: Sequence[Trajectory] = (),
        threads: int = 1,
        ahead: int = 1,
    ) -> None:
        self.program = program
        self.threads = threads
        self.ahead = ahead
        self.metric = metric
        self.threshold = threshold
        self.rounds = rounds
        self.signatures = {name: predictor.signature for name, predictor in program.named_predictors()}
        self._known = {trajectory.id: _judged(trajectory, threshold) for trajectory in known}
        # By identity: DSPy passes the same examples round in other orders. Keeping the example keeps its identity.
        self._runs: dict[int, tuple[dspy.Example, dict[int, Trajectory]]] = {}

    def run(self, example: dspy.Example, round: int = 0) -> Trajectory:
        """The run of a question, made now or before.

        Raises:
            dspy.utils.exceptions.LMError: No call can succeed (key, billing, configuration).
        """
        _, runs = self._runs.setdefault(id(example), (example, {}))
        if round not in runs:
            runs[round] = self._made(example, round)
        return runs[round]

    def prepare(self, examples: Sequence[dspy.Example], wanted: int) -> int:
        """Run questions in their order, ``threads`` at a time, until so many count; how many do.

        Raises:
            dspy.utils.exceptions.LMError: No call can succeed (key, billing, configuration).
        """
        kept, rest = 0, iter(examples)
        while kept < wanted and (block := list(islice(rest, max(wanted - kept, self.ahead)))):
            for example, made in each_in_threads(self._tried, block, self.threads):
                self._runs.setdefault(id(example), (example, {}))[1].update(made)
            kept += sum(any(run.kept for run in self._runs[id(example)][1].values()) for example in block)
        return kept

    def require_one(self, examples: Sequence[dspy.Example]) -> None:
        """Run questions until one counts.

        Raises:
            RunError: None does; it says how many were dropped for which reason (known failure D10).
        """
        if not self.prepare(examples, 1):
            reasons = ", ".join(f"{reason}: {number}" for reason, number in self.counts()[1].items())
            raise RunError(
                f"nothing bootstrapped: none of {len(examples)} questions reached {self.threshold:g} ({reasons}); "
                "take a better teacher, a lower threshold or more questions"
            )

    def counts(self) -> tuple[int, dict[str, int]]:
        """Of the questions run so far how many count, and how many don't for which reason."""
        kept, dropped = 0, Counter[str]()
        for _, runs in self._runs.values():
            if any(run.kept for run in runs.values()):
                kept += 1
            else:
                dropped[": ".join(runs[max(runs)].reason.split(": ")[:2])] += 1
        return kept, dict(dropped.most_common())

    def _tried(self, example: dspy.Example) -> dict[int, Trajectory]:
        """A question's runs by round, up to the first that counts. Changes nothing, so that threads can share it."""
        runs = dict(self._runs.get(id(example), (example, {}))[1])
        for round in range(self.rounds):
            if round not in runs:
                runs[round] = self._made(example, round)
            if runs[round].kept:
                break
        return runs

    def _made(self, example: dspy.Example, round: int) -> Trajectory:
        if (known := self._known.get(example.get("id"))) is not None:
            return known
        # Demonstrations may come without a file to write them to, and examples without an id.
        asked = example if "id" in example else dspy.Example(example, id="").with_inputs(*example.inputs())
        with dspy.context(callbacks=unwatched()):
            return trajectory_of(self._program_for(example, round), asked, self.metric, self.threshold)

    def _program_for(self, example: dspy.Example, round: int) -> dspy.Module:
        """The program without demonstrations of this very question and, after the first round, with fresh LMs.

        A copy where anything differs: other threads run the program at the same time.
        """
        predictors = dict(self.program.named_predictors())
        about = any(is_about(demo, example) for predictor in predictors.values() for demo in predictor.demos)
        if not about and not round:
            return self.program
        copied = self.program.deepcopy()
        for name, predictor in copied.named_predictors():
            lm = predictors[name].lm
            predictor.demos = [demo for demo in predictors[name].demos if not is_about(demo, example)]
            predictor.lm = (lm or dspy.settings.lm).copy(rollout_id=round, temperature=1.0) if round else lm
        return copied


class BalancedBootstrap(dspy.BootstrapFewShot):
    """``dspy.BootstrapFewShot`` that shows the calls of a ``Teacher``, hops in turn, and no incomplete examples."""

    def __init__(self, teacher: Teacher, **options: Any) -> None:
        super().__init__(**options)
        self.runs = teacher

    def _bootstrap(self, *, max_bootstraps: int | None = None) -> None:
        self.runs.require_one(self.trainset)
        self.runs.prepare(self.trainset, max_bootstraps or self.max_bootstrapped_demos)
        super()._bootstrap(max_bootstraps=max_bootstraps)

    def _bootstrap_one_example(self, example: dspy.Example, round_idx: int = 0) -> bool:
        run = self.runs.run(example, round_idx)
        if run.kept:
            found = steps(run.calls, example, self.runs.signatures)
            for name, questions in self.name2traces.items():
                questions.append([step for step in found if step.predictor == name])
        return run.kept

    def _train(self) -> dspy.Module:
        rng = random.Random(0)
        for name, predictor in self.student.named_predictors():
            demos = balanced(self.name2traces[name], self.max_bootstrapped_demos)
            predictor.demos = demos + labelled(predictor, self.validation, self.max_labeled_demos - len(demos), rng)
        return self.student


class CompleteLabels(dspy.LabeledFewShot):
    """``dspy.LabeledFewShot`` that leaves out examples without a predictor's fields."""

    def compile(self, student: dspy.Module, *, trainset: Sequence[dspy.Example], sample: bool = True) -> dspy.Module:
        """A copy of the student with its labelled demonstrations."""
        self.student = student.reset_copy()
        rng = random.Random(0)
        for predictor in self.student.predictors():
            predictor.demos = labelled(predictor, trainset, self.k, rng)
        return self.student


class EvaluateWith(dspy.Evaluate):
    """``dspy.Evaluate`` that gives a program its LMs back, which DSPy's ``reset_copy`` takes."""

    def __init__(self, lms: LMs, **options: Any) -> None:
        super().__init__(**options)
        self.lms = lms

    def __call__(self, program: dspy.Module, *args: Any, **kwargs: Any) -> Any:
        """Score a program with its LMs."""
        attach(program, self.lms)
        return super().__call__(program, *args, **kwargs)


def random_search(teacher: Teacher, lms: LMs) -> type[dspy.BootstrapFewShotWithRandomSearch]:
    """``dspy.BootstrapFewShotWithRandomSearch`` over sets of demonstrations that ``BalancedBootstrap`` draws."""

    class BootstrapFewShotWithRandomSearch(dspy.BootstrapFewShotWithRandomSearch):
        compile = _looking_up(
            dspy.BootstrapFewShotWithRandomSearch.compile,
            BootstrapFewShot=partial(BalancedBootstrap, teacher),
            LabeledFewShot=CompleteLabels,
            Evaluate=partial(EvaluateWith, lms),
        )

    return BootstrapFewShotWithRandomSearch


def mipro(teacher: Teacher) -> type[dspy.MIPROv2]:
    """``dspy.MIPROv2`` over sets of demonstrations that ``BalancedBootstrap`` draws."""
    demo_sets = _looking_up(
        create_n_fewshot_demo_sets, BootstrapFewShot=partial(BalancedBootstrap, teacher), LabeledFewShot=CompleteLabels
    )

    class MIPROv2(dspy.MIPROv2):
        _bootstrap_fewshot_examples = _looking_up(
            dspy.MIPROv2._bootstrap_fewshot_examples, create_n_fewshot_demo_sets=demo_sets
        )

        def _propose_instructions(self, program: Any, trainset: Sequence[dspy.Example], *args: Any, **kw: Any) -> Any:
            # DSPy shows examples whole to the LM that describes the data; ours hold kilobytes of gold.
            shown = [dspy.Example(**_bare(example)).with_inputs(*example.inputs()) for example in trainset]
            return super()._propose_instructions(program, shown, *args, **kw)

    return MIPROv2


def lms_of(program: dspy.Module) -> LMs:
    """The LMs that ``set_lm`` gave to predictors, by the predictor's name; ``None`` where there is none."""
    return {name: predictor.lm for name, predictor in program.named_predictors()}


def attach(program: dspy.Module, lms: Mapping[str, Any]) -> None:
    """Give predictors their LMs."""
    for name, predictor in program.named_predictors():
        predictor.lm = lms.get(name)


def _judged(run: Trajectory, threshold: float) -> Trajectory:
    """A run as this threshold judges it, whatever the one it was made with."""
    if run.reason not in ("", _BELOW):
        return run
    kept = run.score >= threshold
    return replace(run, kept=kept, reason="" if kept else _BELOW)


def _bare(example: dspy.Example) -> dict[str, Any]:
    return {**example.inputs(), **({"answer": example.answer} if "answer" in example else {})}


def _looking_up(function: Callable[..., Any], **names: Any) -> Any:
    """A copy of a DSPy function that finds these under the names it looks up; DSPy itself stays as it is."""
    function = inspect.unwrap(function)
    assert isinstance(function, FunctionType)
    if missing := names.keys() - set(function.__code__.co_names):
        wanted = f"{function.__qualname__} does not use {', '.join(sorted(missing))}"
        raise RunError(f"dspy {dspy.__version__} cannot be steered: {wanted}; install dspy 3.4")
    copied = FunctionType(
        function.__code__, {**function.__globals__, **names}, function.__name__, function.__defaults__
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied
