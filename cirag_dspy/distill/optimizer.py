"""Trajectory distillation as a DSPy optimizer: a program in, the same program with a trained local LM out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import dspy
from dspy.teleprompt.teleprompt import Teleprompter

from cirag_dspy.distill.contrast import contrasts
from cirag_dspy.distill.rows import Row, chat_rows, extraction_rows, sample, write_rows
from cirag_dspy.distill.shorten import short_prompts
from cirag_dspy.distill.trajectories import Metric, Trajectory, collect, reasons, trajectory_of
from cirag_dspy.errors import RunError
from cirag_dspy.lms import load_lm, trainable
from cirag_dspy.modules.threads import each_in_threads
from cirag_dspy.schema import Passage, Triple

if TYPE_CHECKING:
    from cirag_dspy.distill.lora import LoraSettings


class TrajectoryDistillation(Teleprompter):
    """Trains a local student on a teacher's trajectories (CIRAG section 3.5).

    Unlike ``dspy.BootstrapFinetune`` it is right for programs with loops: rows are grouped by the predictor that made
    them, every hop is kept, and a conversation is one row with every decision a target (equation 8).

    Args:
        metric: ``metric(example, prediction)``, 0 to 1 or a boolean; the data set's official one.
        out: Folder of the adapter; ``out/traces.jsonl`` and ``out/rows/`` lie beside it unless ``traces`` says where.
        threshold: The score from which on a trajectory is learnt from.
        base: The student, a local LM string; by default the local LM of the program to compile. Its adapter, if it has
            one, is what training goes on from.
        lora: Training settings; the paper's by default (appendix B.4).
        shorten: Whether the student gets prompts without instructions: it is trained on the task, and pays no tokens
            for being told about it.
        contrast: Whether the teacher is asked again, with other evidence (see ``contrasts``).
        extracted: Passages with the triples that the student shall extract from them.
        most: At most so many rows of a predictor, by its name in the program.
        traces: Trajectories' file; what it holds is not asked of the teacher again.
        seed: Of sampling and contrast.
        threads: Questions at a time.
        on_trajectory: Called with each trajectory.
        on_step: Called after each training step with the step, the steps in all and the loss.
    """

    def __init__(
        self,
        metric: Metric,
        out: Path | str,
        *,
        threshold: float = 1.0,
        base: str | None = None,
        lora: LoraSettings | None = None,
        shorten: bool = True,
        contrast: bool = True,
        extracted: Sequence[tuple[Passage, Sequence[Triple]]] = (),
        most: Mapping[str, int] | None = None,
        traces: Path | None = None,
        seed: int = 0,
        threads: int = 1,
        on_trajectory: Callable[[Trajectory], None] = lambda trajectory: None,
        on_step: Callable[[int, int, float], None] | None = None,
    ) -> None:
        super().__init__()
        self.metric = metric
        self.out = Path(out)
        self.threshold = threshold
        self.base = base
        self.lora = lora
        self.shorten = shorten
        self.contrast = contrast
        self.extracted = extracted
        self.most = most or {}
        self.traces = traces or self.out / "traces.jsonl"
        self.seed = seed
        self.threads = threads
        self.on_trajectory = on_trajectory
        self.on_step = on_step

    def compile(
        self,
        student: dspy.Module,
        *,
        trainset: Sequence[dspy.Example],
        teacher: dspy.Module | dspy.BaseLM | None = None,
        valset: Sequence[dspy.Example] | None = None,
    ) -> dspy.Module:
        """Run the teacher, train the student, and return ``student``'s copy with the trained LM.

        Args:
            student: The program; not changed. Its demonstrations are not carried over: the student is trained without.
            trainset: Questions for the teacher, each with an ``id``.
            teacher: The same program with the teacher's LM, or that LM; by default ``student`` as it is, with its own
                LM or that of ``dspy.context``.
            valset: Questions to score the compiled program on; nothing is chosen by them.

        Returns:
            The compiled program. Its ``distilled`` says what was done: trajectories kept and dropped by reason, rows by
            predictor, the LM's name, and the score on ``valset``.

        Raises:
            DataError: An example has no id or question, or two have the same id.
            RunError: No trajectory reached the threshold (with the reasons), ``traces`` is of another teacher, or
                ``most`` names a predictor that is not there.
            ModelError: The student's base is no local model.
        """
        names = [name for name, _ in student.named_predictors()]
        if unknown := [name for name in self.most if name not in names]:
            raise RunError(f"most: there is no predictor {', '.join(unknown)}; there are {', '.join(names)}")
        base = trainable(self.base or _lm_of(student))
        if isinstance(teacher, dspy.BaseLM):
            lm, teacher = teacher, student.deepcopy()
            teacher.set_lm(lm)
        teacher = teacher or student
        trajectories = collect(
            teacher,
            trainset,
            self.traces,
            metric=self.metric,
            threshold=self.threshold,
            threads=self.threads,
            manifest={"teacher": _lm_of(teacher), "prompts": _prompts_of(teacher)},
            on_done=self.on_trajectory,
        )
        if not any(trajectory.kept for trajectory in trajectories):
            raise RunError(f"no trajectory to learn from: {_listed(reasons(trajectories))}; see {self.traces}")
        told = [*trajectories, *(contrasts(teacher, trajectories, self.seed, self.threads) if self.contrast else ())]

        compiled = student.deepcopy()
        for _, predictor in compiled.named_predictors():
            predictor.demos = []
        if self.shorten:
            short_prompts(compiled)
        rows = sample(
            [*chat_rows(compiled, told), *extraction_rows(compiled, self.extracted)], self.most, seed=self.seed
        )
        report = write_rows(self.out / "rows", rows)
        lm = self._train(base, rows)
        compiled.set_lm(lm)
        compiled.distilled = {
            "optimizer": type(self).__name__,
            "trajectories": reasons(trajectories),
            "rows": {name: group["rows"] for name, group in report["by_predictor"].items()},
            "lm": lm.model,
            "score": self._score(compiled, valset) if valset else None,
        }
        compiled._compiled = True
        return compiled

    def _train(self, base: tuple[str, Path, Path | None], rows: Sequence[Row]) -> dspy.LM:
        from cirag_dspy.distill.lora import train

        name, folder, init = base
        train(folder, rows, self.out, self.lora, base_name=name, init=init, on_step=self.on_step)
        return load_lm(f"{name}+{self.out}")

    def _score(self, program: dspy.Module, valset: Sequence[dspy.Example]) -> float:
        def score(number: int) -> float:
            return trajectory_of(program, valset[number], self.metric, self.threshold).score

        scores = dict(each_in_threads(score, range(len(valset)), self.threads))
        return sum(scores[number] for number in range(len(valset))) / len(valset)


def _lm_of(program: dspy.Module) -> str:
    """Name of the program's LM; of several, that of its first predictor."""
    lms = [predictor.lm for _, predictor in program.named_predictors() if predictor.lm] or [dspy.settings.lm]
    if lms[0] is None:
        raise RunError("the program has no LM: set_lm one, or compile inside dspy.context(lm=...)")
    return str(lms[0].model)


def _prompts_of(program: dspy.Module) -> str:
    """What trajectories depend on besides the LM, as far as a program's state tells."""
    state = {name: [p.signature.dump_state(), p.demos] for name, p in program.named_predictors()}
    return hashlib.sha256(json.dumps(state, default=str).encode()).hexdigest()[:12]


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in counts.items())
