"""The stages: traces -> export -> finetune -> save; or, for an optimizer of prompts, optimize.

Each reads files and leaves files, so that it can be run alone, goes on after a kill, and is passed over while what it
depends on is the same:

    WORK/traces-DATA-SYSTEM.jsonl     the teacher's trajectories; other settings are refused, for they cost calls
    WORK/contrasts-DATA-SYSTEM.jsonl  what the teacher makes of less evidence and of more
    WORK/triples-DATA.jsonl           the triples of as many passages as the recipe trains on
    WORK/rows/                        chat rows, joint and by predictor, and their report
    WORK/adapter/                     the student; one of other rows or settings is put aside as adapter.old
    OUT/                              the saved program
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cirag_dspy import artifact
from cirag_dspy.content import former
from cirag_dspy.distill.fitting import EncodeReport
from cirag_dspy.distill.rows import Row, chat_rows, distinct, extraction_rows, sample
from cirag_dspy.distill.shorten import short_prompts
from cirag_dspy.distill.silver import Extracted, read_silver
from cirag_dspy.distill.trajectories import Trajectory, read_trajectories, reasons
from cirag_dspy.errors import DataError, RunError
from cirag_dspy.files import digest, path_errors, read_json, sha256, write_json
from cirag_dspy.lms import load_lm, split_spec, trainable
from cirag_dspy.lms.meter import LMMeter
from cirag_dspy.lms.weights import fingerprint
from cirag_dspy.pipeline.alone import ANEW, finetune_file, training_report, write_fitting
from cirag_dspy.pipeline.teaching import contrasts_of, require_kept, teach, traces_file
from cirag_dspy.pipeline.trainset import Move, OpenLM, Progress, TrainingSet
from cirag_dspy.recipe import Recipe, system_of
from cirag_dspy.systems import SYSTEMS, build_system

Report = dict[str, Any]


@contextmanager
def _silent(total: int | None, unit: str) -> Iterator[Move]:
    yield lambda *done: None


@dataclass
class Pipeline:
    """The stages of one recipe; each returns its report.

    Args:
        recipe: What to compile.
        work: Where the stages leave their files.
        out: The folder of the saved program.
        data_dir: Folder with the official files, a folder a data set, and with what ``[[triples]]`` names. Without it
            data sets come from the hub, and files are looked for here.
        from_traces: Files of trajectories to train on, in place of a teacher.
        threads: Questions, or passages, at a time.
        resume: Go on with what is there; if not, each stage starts anew.
        device: To train on, and its ``dtype``; by default what the machine has.
        quiet: Nothing of DSPy's own progress on stderr.
        strict: Refuse rows that are too long for the student, before it is trained.
        on_note: Told in a line what a person should know, such as how many rows were shortened.
        open_lm: Makes an LM from a string.
        progress: Opens a progress bar of a total and a unit.
    """

    recipe: Recipe
    work: Path
    out: Path
    data_dir: Path | None = None
    from_traces: Sequence[Path] = ()
    threads: int = 8
    resume: bool = True
    device: str | None = None
    dtype: str | None = None
    quiet: bool = False
    strict: bool = False
    on_note: Callable[[str], None] = lambda note: None
    open_lm: OpenLM = load_lm
    progress: Progress = field(default=_silent)

    def __post_init__(self) -> None:
        if self.from_traces and self.recipe.optimizer == "gepa":
            raise RunError("gepa learns from feedback, not from a teacher's traces: leave --from-traces out")

    def compile(self) -> dict[str, Report]:
        """All stages; their reports by stage."""
        stages: dict[str, Callable[[], Report]] = {"optimize": self.optimize}
        if self.recipe.distils:
            stages = {"traces": self.traces, "export": self.export, "finetune": self.finetune, "save": self.save}
        return {name: stage() for name, stage in stages.items()}

    def traces(self) -> Report:
        """Run the teacher over the training questions of every data set, with every system.

        Raises:
            RunError: No trajectory of a system was kept, with the reasons; or a file is of other settings.
        """
        meter, failed = LMMeter(), 0
        draws: dict[str, Report] = {}
        if not self.from_traces:
            for trainset in self.trainsets:
                draws[trainset.name] = trainset.benchmark.notes.get("draw", {})
                if trainset.data.first:
                    self.on_note(f"{trainset.name}: the first questions of a file are no sample; it may be sorted")
                with meter.context():
                    failed += teach(
                        trainset, self.work, threads=self.threads, resume=self.resume, progress=self.progress
                    )
        by_system: dict[str, list[Trajectory]] = {}
        for manifest, found in self.trajectories().values():
            by_system.setdefault(manifest["system"], []).extend(found)
        for system, trajectories in by_system.items():
            require_kept(system, trajectories)
        calls = {name: value for name, value in meter.snapshot().items() if name != "by_module"}
        cut = sum(trainset.cut_passages for trainset in self.trainsets)
        return {"files": self._kept(), "failed_passages": failed, "cut_passages": cut, "draws": draws, "lm": calls}

    def export(self) -> Report:
        """Write the chat rows of the kept trajectories and of the triples; the report of ``check_rows``.

        Raises:
            RunError: There are no trajectories yet.
            DataError: No row, or one that can't be trained on.
        """
        if not (self.resume and self.is_exported()):
            inputs, stamp = self._export_inputs(), self._export_stamp
            by_data: dict[str, list[Row]] = {}
            for file, (manifest, trajectories) in self.trajectories().items():
                also = contrasts_of(file) if self.recipe.distillation.contrast else []
                rows = chat_rows(self.programs[manifest["system"]], [*trajectories, *also])
                by_data.setdefault(self._entry_of(file, manifest), []).extend(rows)
            most = {trainset.name: trainset.data.most for trainset in self.trainsets}
            told = [sample(distinct(rows), most.get(name, {}), self.recipe.seed) for name, rows in by_data.items()]
            extracting = [extraction_rows(program, self.extracted) for program in self.programs.values()]
            rows = distinct([row for part in (*told, next(filter(None, extracting), [])) for row in part])
            stamp.unlink(missing_ok=True)
            rows = sample(rows, self.recipe.distillation.most, self.recipe.seed)
            max_length = self.recipe.lora_settings.max_length
            write_fitting(self.work / "rows", rows, self.recipe.lm.student, max_length, self.strict)
            write_json(stamp, inputs)
        report = read_json(self.work / "rows" / "report.json", ANEW)
        if self.strict:
            EncodeReport.of(report["fit"]).require_whole()
        return report

    def finetune(self) -> Report:
        """Train the student on the rows.

        Raises:
            RunError: There are no rows yet.
            ModelError: The base can't be had.
        """
        if not self.rows_file.is_file():
            raise RunError(f"{self.rows_file} is missing: cirag-dspy export writes it")
        _, base, init = trainable(self.recipe.lm.student)
        settings = self.recipe.lora_settings
        inputs = {
            "rows": sha256(self.rows_file),
            "student": fingerprint(base, init),
            "settings": {name: value for name, value in asdict(settings).items() if name != "save_every"},
        }
        stamp = self.work / "adapter.json"
        if not (self.resume and _is_stamped(stamp, inputs)):
            _put_aside(self.adapter)
            write_json(stamp, inputs)
        if not (self.adapter / "training.json").is_file():
            with self.progress(None, "step") as move:
                finetune_file(
                    self.rows_file,
                    self.adapter,
                    base=self.recipe.lm.student,
                    settings=settings,
                    device=self.device,
                    dtype=self.dtype,
                    on_step=lambda step, total, loss: move(step, total),
                    on_note=self.on_note,
                    strict=self.strict,
                )
        return training_report(self.adapter)

    def check(self) -> None:
        """Raise what the stages would fail with, before anything is called, opened or written.

        Raises:
            DataError: Questions, passages or ``[[triples]]`` are missing.
            ModelError: A local model, or the library that trains it, can't be had.
            RunError: A folder can't be written, or trajectories are missing or of other settings.
        """
        for folder in (self.work, self.out):
            require_place(folder)
        self.programs  # noqa: B018
        self.silver  # noqa: B018
        if self.from_traces:
            self.trajectories()
        for trainset in [] if self.from_traces else self.trainsets:
            trainset.check()
        if self.recipe.distils:
            trainable(self.recipe.lm.student)

    def save(self) -> Report:
        """Save the program with its student.

        Raises:
            RunError: There is no student yet, or the folder can't be written.
        """
        if not (self.adapter / "training.json").is_file():
            raise RunError(f"{self.adapter} holds no student: cirag-dspy finetune trains it")
        systems = self.recipe.systems
        made = {
            "name": self.recipe.optimizer,
            "trajectories": self._kept(),
            "rows": read_json(self.work / "rows" / "report.json", ANEW),
            "training": training_report(self.adapter),
        }
        return self._save(
            self.programs[self.recipe.system],
            lm=f"{split_spec(self.recipe.lm.student)[0]}+{self.adapter}",
            also=[
                (self.programs[name], systems[name])
                for name in systems
                if name != self.recipe.system and name in SYSTEMS
            ],
            made=made,
        )

    def optimize(self) -> Report:
        """Compile the prompts of the system, and save it.

        Raises:
            RunError: The optimizer has no such option, or nothing to go by.
        """
        from cirag_dspy.distill.prompts import compile_prompts

        recipe, (trainset,) = self.recipe, self.trainsets
        options = dict(recipe.options)
        metric, threshold = options.pop("metric"), options.pop("threshold")
        student = trainset.lm(recipe.lm.student)
        known = [t for _, found in self.trajectories().values() for t in found] if self.from_traces else []
        with trainset.index(self.threads, self.progress) as (index, _):
            program, teacher = (build_system(recipe.system, index, **recipe.systems[recipe.system]) for _ in range(2))
            teacher.set_lm(trainset.lm(recipe.lm.teacher))
            compiled, made = compile_prompts(
                recipe.optimizer,
                program,
                trainset=trainset.train,
                valset=trainset.val or None,
                metric=trainset.metric(metric, threshold),
                teacher=None if recipe.optimizer == "gepa" else teacher,
                lm=student,
                prompt_lm=trainset.lm(recipe.lm.prompt) if recipe.lm.prompt else None,
                threshold=threshold,
                threads=self.threads,
                seed=recipe.seed,
                options=options,
                trajectories=known,
                quiet=self.quiet,
            )
        return self._save(compiled, lm=student, made=made)

    # What the stages stand on

    @cached_property
    def trainsets(self) -> list[TrainingSet]:
        """The data sets of the recipe."""
        seen: Counter[str] = Counter()
        trainsets = []
        for data in self.recipe.data:
            seen[data.dataset] += 1
            name = data.dataset if seen[data.dataset] == 1 else f"{data.dataset}-{seen[data.dataset]}"
            trainsets.append(TrainingSet(self.recipe, data, name, self.data_dir, self.silver, self.open_lm))
        return trainsets

    @cached_property
    def silver(self) -> list[Extracted]:
        """The passages and triples of the recipe's ``[[triples]]``."""
        pairs: list[Extracted] = []
        for entry in self.recipe.triples:
            places = [(self.data_dir or Path()) / entry.file, Path(entry.file)]
            file = next(filter(Path.is_file, places), None)
            if file is None:
                raise DataError(
                    f"{places[0]} is missing, and so is {places[1]} here: --data-dir names the folder that [[triples]] "
                    "are in, unless another recipe writes them"
                )
            pairs += read_silver(file, skip=entry.skip, limit=entry.limit)
        return pairs

    @cached_property
    def extracted(self) -> list[Extracted]:
        """All passages whose triples are trained on: the recipe's, and those of the teacher."""
        return [*self.silver, *(pair for file in self._triples_files() for pair in read_silver(file))]

    @cached_property
    def programs(self) -> dict[str, Any]:
        """The student's programs by system, with the prompts it is trained on and asked with; without index and LM."""
        programs = {}
        for name, settings in self.recipe.systems.items():
            programs[name] = build_system(system_of(name), None, **settings)
            if self.recipe.distillation.shorten:
                short_prompts(programs[name])
        return programs

    def is_exported(self) -> bool:
        """Whether the rows are there, made of the present trajectories and triples.

        Raises:
            RunError: There are no trajectories.
        """
        return self.rows_file.is_file() and _is_stamped(self._export_stamp, self._export_inputs())

    @property
    def _export_stamp(self) -> Path:
        return self.work / "rows" / "inputs.json"

    @property
    def rows_file(self) -> Path:
        """The rows that are trained on."""
        return self.work / "rows" / "joint.jsonl"

    @property
    def adapter(self) -> Path:
        """The student's folder."""
        return self.work / "adapter"

    def trajectories(self) -> dict[Path, tuple[Report, list[Trajectory]]]:
        """The manifest and the trajectories of each file.

        Raises:
            RunError: A file is missing, or is of a system that the recipe does not train.
        """
        files = list(self.from_traces) or [
            traces_file(self.work, trainset, system) for trainset in self.trainsets for system in self.recipe.systems
        ]
        found = {}
        for file in files:
            if not file.is_file():
                raise RunError(f"{file} is missing: cirag-dspy traces writes it")
            manifest, trajectories = read_trajectories(file)
            if manifest.get("system") not in self.recipe.systems:
                known = ", ".join(self.recipe.systems)
                raise RunError(f"{file} is of the system {manifest.get('system')}, and the recipe trains {known}")
            found[file] = manifest, trajectories
        return found

    def _entry_of(self, file: Path, manifest: Report) -> str:
        """The name of the ``[[data]]`` entry that trajectories are of; of files from elsewhere, their data set."""
        for trainset in self.trainsets:
            if file == traces_file(self.work, trainset, manifest["system"]):
                return trainset.name
        return str(manifest.get("dataset", ""))

    def _save(self, program: Any, *, lm: Any, made: Report, also: Sequence[artifact.Part] = ()) -> Report:
        artifact.save(
            program,
            self.out,
            settings=self.recipe.systems[self.recipe.system],
            lm=lm,
            called={"max_tokens": self.recipe.lm.max_tokens, "temperature": 0.0},
            also=also,
            meta={"optimizer": made, "recipe": self.recipe.as_dict()},
        )
        return {"program": str(self.out), "sha256": artifact.Saved.read(self.out).sha256, "optimizer": made}

    def _kept(self) -> dict[str, dict[str, int]]:
        """Kept and dropped trajectories, by file."""
        return {file.name: reasons(found) for file, (_, found) in self.trajectories().items()}

    def _triples_files(self) -> list[Path]:
        """The triples that the traces stage wrote; with the traces that are trained on, where these come from."""
        folder = self.from_traces[0].parent if self.from_traces else self.work
        files = [folder / f"triples-{trainset.name}.jsonl" for trainset in self.trainsets if trainset.data.triples]
        if missing := [file for file in files if not file.is_file()]:
            raise RunError(f"{missing[0]} is missing: the traces stage writes it; or --set data.triples=0")
        return files

    def _export_inputs(self) -> Report:
        """What the rows depend on."""
        files = [*self.trajectories(), *self._triples_files()]
        return {
            "files": {file.name: sha256(file) for file in files},
            "silver": digest([[p.id, *(t.text for t in triples)] for p, triples in self.silver]),
            "prompts": digest({name: artifact.prompts(program) for name, program in self.programs.items()}),
            "most": [
                dict(self.recipe.distillation.most),
                *({data.dataset: dict(data.most)} for data in self.recipe.data),
            ],
            "contrast": self.recipe.distillation.contrast,
            "seed": self.recipe.seed,
            "fit": [self.recipe.lm.student, self.recipe.lora_settings.max_length],
        }


def require_place(folder: Path) -> None:
    """Raise RunError if a folder can be neither written to nor made; nothing is made."""
    with path_errors(RunError, folder, "name another folder"):
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise RunError(f"{folder} can't be written: {there} is no folder that may be written to; name another folder")


def _put_aside(folder: Path) -> None:
    if folder.exists():
        old = folder.with_name(f"{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)


def _is_stamped(file: Path, inputs: Report) -> bool:
    """Whether a stage's output was made of these inputs, as the file beside it says."""
    if not file.is_file():
        return False
    text = json.dumps(inputs)
    return read_json(file, ANEW) in (json.loads(text), json.loads(former(text)))
