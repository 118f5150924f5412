"""Contrastive training of an aligner (KiRAG section 3.4, appendix B.3) with the sentence-transformers trainer."""

from __future__ import annotations

import json
import math
import platform
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sentence_transformers
import torch
import transformers
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.losses import MultipleNegativesRankingLoss
from transformers import PrinterCallback, TrainerCallback
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import sort_checkpoints

from cirag_dspy.content import former
from cirag_dspy.corpus.embedder import TRAINING_RECORD, Embedder, unit
from cirag_dspy.corpus.ranker import content_of
from cirag_dspy.corpus.shelves import fact
from cirag_dspy.distill.batches import QuestionBatchSampler
from cirag_dspy.distill.curve import thinned
from cirag_dspy.distill.links import Rank, Row, Walk, passage_recall, triple_recall
from cirag_dspy.distill.settings import AlignerSettings
from cirag_dspy.errors import RunError
from cirag_dspy.files import digest, disk_problem, read_json, write_json
from cirag_dspy.lms.loading import pick_device, quiet_transformers
from cirag_dspy.schema import Triple

__all__ = ["AlignerSettings", "require_room", "train_aligner"]

OnStep = Callable[[int, int], None]


def train_aligner(
    base: str,
    rows: Sequence[Row],
    val: Sequence[Walk],
    out: Path,
    settings: AlignerSettings | None = None,
    *,
    draws: Mapping[str, Any] | None = None,
    device: str | None = None,
    on_step: OnStep | None = None,
) -> dict[str, Any]:
    """Train an aligner and write its folder; goes on after the last whole epoch, and returns at once if it is finished.

    The folder is one of sentence-transformers', weights in safetensors, that ``Embedder(folder)`` loads, with what was
    trained on what and how in training.json. It is written whole at the end, with the weights of the epoch that found
    most of the gold passages of ``val`` (of equals, most of the gold triples), the base itself being epoch 0. While it
    is trained, a hidden folder beside it, ``.NAME-training``, holds the best weights and the last epoch's checkpoint;
    on a CPU, a run that was interrupted and went on ends with the weights of one that was not.

    Args:
        base: The model to start from: ``embedded``, a folder, or a hub id.
        rows: What to train on.
        val: Questions to choose the epoch by.
        out: The aligner's folder.
        settings: Default ``AlignerSettings()``.
        draws: How the questions were drawn, by data set, for training.json.
        device: cpu or cuda; by default what there is.
        on_step: Called after each optimizer step with the step (from 1) and the steps in all.

    Returns:
        What training.json says.

    Raises:
        ModelError: The base or the device cannot be had.
        RunError: There are no rows; the folder holds something else, or cannot be written; the loss is no number.
    """
    settings = settings or AlignerSettings()
    if not rows:
        raise RunError("nothing to train on: no gold fact is stated by a triple of its passage")
    place = pick_device(device)
    source = Embedder(base, device=place.type)
    identity = {
        "base": content_of(source),
        "data": digest([[list(map(str, asdict(row).values())) for row in rows], [one.question for one in val]]),
        "settings": asdict(settings),
    }
    work = out.with_name(f".{out.name}-training")
    if (known := _finished(out, identity)) is not None:
        shutil.rmtree(work, ignore_errors=True)  # where it was killed after its last step
        return known
    try:
        _prepare(work, identity)
        watch = _Watch(source, val, settings, work / "best", on_step)
        _fit(source, rows, settings, place, work, watch)
        record = {
            "base": {"name": Path(base).name if Path(source.name).is_dir() else base, "content": identity["base"]},
            "data": identity["data"],
            "draws": dict(draws or {}),
            "settings": asdict(settings),
            "rows": len(rows),
            "val_questions": len(val),
            "steps": watch.step,
            "seconds": round(watch.seconds, 1),
            "epochs": watch.epochs,
            "best": watch.best,
            "losses": thinned(watch.losses),
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "sentence-transformers": sentence_transformers.__version__,
            },
            "identity": identity,
        }
        write_json(watch.folder / TRAINING_RECORD, record)
        watch.folder.replace(out)
        shutil.rmtree(work)
    except Exception as error:  # what writes a checkpoint has errors of its own
        problem = disk_problem(error) or (isinstance(error, OSError) and (error.strerror or str(error)))
        if not problem:
            raise
        raise RunError(f"{out} can't be written: {problem}; choose another folder, or free room") from None
    return record


def _finished(out: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    if (out / TRAINING_RECORD).is_file():
        record = read_json(out / TRAINING_RECORD, "choose another folder")
        if json.dumps(record.get("identity"), sort_keys=True) in _written(identity):
            return record
        raise RunError(f"{out} holds an aligner made of other data or settings; choose another folder")
    require_room(out)
    return None


def require_room(out: Path) -> None:
    """Raise RunError if something that is no aligner is where one is to be."""
    if (out / TRAINING_RECORD).is_file():
        return
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise RunError(f"{out} is there already, and is no aligner; choose another folder")


def _prepare(work: Path, identity: dict[str, Any]) -> None:
    """Make the folder that the training works in: as it was left, if it was for the same, else empty."""
    mark = work / "identity.json"
    if not mark.is_file() or json.dumps(read_json(mark, f"remove {work}"), sort_keys=True) not in _written(identity):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        write_json(mark, identity)


def _written(identity: dict[str, Any]) -> tuple[str, str]:
    """An identity as JSON, and as earlier versions would have written it."""
    text = json.dumps(identity, sort_keys=True)
    return text, former(text)


def _last_checkpoint(work: Path) -> Path | None:
    """The newest that is whole: the trainer writes its state after everything else."""
    newest_first = map(Path, reversed(sort_checkpoints(str(work))))
    return next((path for path in newest_first if (path / TRAINER_STATE_NAME).is_file()), None)


def _fit(
    source: Embedder,
    rows: Sequence[Row],
    settings: AlignerSettings,
    place: torch.device,
    work: Path,
    watch: _Watch,
) -> None:
    model = source.load()
    # So that the folder's prompts are the base's, whatever the folder is called.
    model.prompts = {"query": source.query_prompt, "document": source.passage_prompt}
    negatives = {f"negative_{n}": [row.negatives[n] for row in rows] for n in range(len(rows[0].negatives))}
    columns = {"query": [row.query for row in rows], "positive": [row.positive for row in rows], **negatives}
    prompts = {name: model.prompts["query" if name == "query" else "document"] for name in columns}
    batches = settings.batches([row.question for row in rows])
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(work),
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        warmup_steps=math.ceil(settings.warmup * settings.epochs * batches),
        seed=settings.seed,
        batch_sampler=partial(QuestionBatchSampler, rows=rows, batches=batches),
        prompts={name: prompt for name, prompt in prompts.items() if prompt} or None,
        use_cpu=place.type == "cpu",
        dataloader_pin_memory=place.type != "cpu",
        save_strategy="epoch",
        save_total_limit=1,
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
    )
    gpus = [torch.cuda.current_device()] if place.type == "cuda" else []
    with torch.random.fork_rng(gpus):
        trainer = _Trainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_dict(columns),
            loss=MultipleNegativesRankingLoss(model, scale=1 / settings.temperature),
            callbacks=[watch],
        )
        trainer.remove_callback(PrinterCallback)  # it writes to stdout
        if checkpoint := _last_checkpoint(work):
            watch.go_on_from(checkpoint)
        with quiet_transformers():
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)


class _Trainer(SentenceTransformerTrainer):
    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """No card is written, and none of what it takes is gathered."""


class _Watch(TrainerCallback, ExportableState):
    """Notes losses, scores every epoch, and keeps the weights of the best. A checkpoint holds what was noted."""

    def __init__(
        self, source: Embedder, val: Sequence[Walk], settings: AlignerSettings, folder: Path, on_step: OnStep | None
    ) -> None:
        self.folder = folder
        self.losses: list[list[float]] = []
        self.epochs: list[dict[str, float]] = []
        self.best: dict[str, float] = {}
        self.step = 0
        self._started = time.monotonic()
        self._source = source
        self._val = val
        self._n = settings.n
        self._on_step = on_step

    @property
    def seconds(self) -> float:
        """Since the training began, without the time between an interruption and going on."""
        return time.monotonic() - self._started

    def state(self) -> dict[str, Any]:
        """The trainer writes this into its checkpoints."""
        noted = {name: getattr(self, name) for name in ("losses", "epochs", "best", "step", "seconds")}
        return {"args": {}, "attributes": noted}

    def go_on_from(self, checkpoint: Path) -> None:
        """Note what the training up to a checkpoint noted."""
        saved = read_json(checkpoint / TRAINER_STATE_NAME, f"remove {checkpoint.parent}")
        noted = saved["stateful_callbacks"][type(self).__name__]["attributes"]
        self.losses, self.epochs, self.best, self.step = (noted[name] for name in ("losses", "epochs", "best", "step"))
        self._started -= noted["seconds"]

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The trainer calls this before the first step."""
        if not self.epochs:
            self._score(0)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """And this after each."""
        self.step = state.global_step
        if self._on_step is not None:
            self._on_step(state.global_step, state.max_steps)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        """And this with the loss of a step."""
        if logs and "loss" in logs:
            if not math.isfinite(logs["loss"]):
                raise RunError(f"the loss of step {state.global_step} is {logs['loss']}: use a lower learning rate")
            self.losses.append([state.global_step, round(logs["loss"], 6)])

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """And this after each epoch."""
        self._score(round(state.epoch))

    def _score(self, epoch: int) -> None:
        rank = _rank_with(self._source, self._val)
        scores = {
            "passage_recall@5": passage_recall(self._val, rank, k=5, n=self._n),
            "triple_recall@5": triple_recall(self._val, rank, n=5),
        }
        entry = {"epoch": epoch} | {name: round(score, 4) for name, score in scores.items()}
        self.epochs.append(entry)
        # The passages found decide, ties the triples, then the earlier epoch.
        if not self.best or list(entry.values())[1:] > list(self.best.values())[1:]:
            self.best = entry
            with quiet_transformers():
                self._source.load().save_pretrained(str(self.folder), create_model_card=False)


def _rank_with(source: Embedder, walks: Sequence[Walk]) -> Rank:
    """Ranking by the model as it is now; all that the walks need is encoded at once."""
    looks = [look for one in walks for look in one.path]
    queries = _encode(source, [look.query for look in looks], source.query_prompt)
    facts = _encode(source, [fact(triple) for look in looks for triple in look.offered], source.passage_prompt)

    def rank(query: str, triples: Sequence[Triple]) -> list[tuple[Triple, float]]:
        if not triples:
            return []
        scores = np.stack([facts[fact(triple)] for triple in triples]) @ queries[query]
        return [(triples[i], float(scores[i])) for i in np.argsort(-scores, kind="stable")]

    return rank


def _encode(source: Embedder, texts: Sequence[str], prompt: str) -> dict[str, np.ndarray]:
    # Not by the embedder's own methods, which remember queries, and trace the model as it was.
    distinct = list(dict.fromkeys(texts))
    if not distinct:
        return {}
    vectors = source.load().encode(distinct, prompt=prompt, batch_size=128, show_progress_bar=False)
    return dict(zip(distinct, unit(vectors), strict=True))
