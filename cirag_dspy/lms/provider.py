"""What DSPy asks a local LM's provider: to train it. So ``lm.finetune(...)`` and ``dspy.BootstrapFinetune`` work."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from dspy.clients.provider import Provider, TrainingJob
from dspy.clients.utils_finetune import TrainDataFormat, TrainingStatus

from cirag_dspy.errors import CiragError, DataError, RunError
from cirag_dspy.paths import cache_dir

_ALONE = threading.Lock()  # two trainings at once would be no faster, and need twice the memory
_PLACES = ("out", "output_dir", "device", "dtype", "resume")


class LocalTrainingJob(TrainingJob):
    """A LoRA training in a thread. Its result is the trained LM, or the error that ended it.

    `step`, `steps` and `loss` say how far it is.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.step = 0
        self.steps = 0
        self.loss: float | None = None
        self.started = False
        self._cancelled = threading.Event()

    def status(self) -> TrainingStatus:
        """Pending (another one is training), running, succeeded, failed or cancelled."""
        if not self.done():
            return TrainingStatus.running if self.started else TrainingStatus.pending
        if not isinstance(self.result(), Exception):
            return TrainingStatus.succeeded
        return TrainingStatus.cancelled if self._cancelled.is_set() else TrainingStatus.failed

    def cancel(self) -> bool:
        """Stop after the present step, with a checkpoint that the same call goes on from; False if it has ended."""
        if self.done():
            return False
        self._cancelled.set()
        return True

    def on_step(self, step: int, steps: int, loss: float) -> None:
        """The training reports here.

        Raises:
            KeyboardInterrupt: It was cancelled.
        """
        self.step, self.steps, self.loss = step, steps, loss
        self.stop_if_cancelled()

    def stop_if_cancelled(self) -> None:
        """Raise KeyboardInterrupt if `cancel` was called."""
        if self._cancelled.is_set():
            raise KeyboardInterrupt


class LocalProvider(Provider):
    """Trains LoRA adapters for local LMs, in this process; nothing is served, so there is nothing to launch or kill."""

    def __init__(self) -> None:
        super().__init__()
        self.finetunable = True
        self.TrainingJob = LocalTrainingJob

    @staticmethod
    def is_provider_model(model: str) -> bool:
        """Whether the name is a local LM's."""
        from cirag_dspy.lms import is_local

        return is_local(model)

    @staticmethod
    def launch(lm: Any, launch_kwargs: dict[str, Any] | None = None) -> None:
        """Nothing: the model runs in this process."""

    @staticmethod
    def kill(lm: Any, launch_kwargs: dict[str, Any] | None = None) -> None:
        """Nothing, as `launch`."""

    @staticmethod
    def finetune(
        job: TrainingJob,
        model: str,
        train_data: list[dict[str, Any]],
        train_data_format: TrainDataFormat | str | None,
        train_kwargs: dict[str, Any] | None = None,
    ) -> str:
        """Train an adapter for a local LM; one that has an adapter is trained on from it.

        Args:
            job: Told how far it is, if it is a `LocalTrainingJob`.
            model: `local/MODEL`, `local/MODEL+ADAPTER` or `embedded`, with or without the mark of its content.
            train_data: Chat rows, {"messages": [...]}.
            train_data_format: Chat.
            train_kwargs: Fields of `LoraSettings`; `out` (or `output_dir`), the adapter's folder, by default one in the
                cache that is named after model, data and settings; `device`, `dtype` and `resume`, see `lora.train`.

        Returns:
            The name of the trained LM, `local/MODEL+OUT@0123456789ab`.

        Raises:
            DataError: The data are no chat rows.
            RunError: An unknown or wrong setting; the folder holds another adapter; or the job was cancelled.
            ModelError: The model cannot be had.
        """
        from cirag_dspy.lms import trainable
        from cirag_dspy.lms.weights import fingerprint

        if train_data_format not in (None, TrainDataFormat.CHAT, TrainDataFormat.CHAT.value):
            raise DataError(f"a local LM is trained on chat data, not on {train_data_format}")
        lora = import_module("cirag_dspy.distill.lora")  # by name: it stands above this package
        base_name, base, init = trainable(model)
        values, places = _parted(train_kwargs or {})
        settings = lora.LoraSettings.of((lora.adapter_shape(init) if init else {}) | values)
        out = places.pop("out", None) or _default_folder(fingerprint(base, init), train_data, asdict(settings))
        watched = job if isinstance(job, LocalTrainingJob) else LocalTrainingJob()
        with _ALONE:
            watched.started = True
            try:
                watched.stop_if_cancelled()
                lora.train(
                    base,
                    train_data,
                    out,
                    settings,
                    base_name=base_name,
                    init=init,
                    on_step=watched.on_step,
                    **places,
                )
            except KeyboardInterrupt:
                raise RunError(
                    f"cancelled; the same call goes on from the checkpoint in {out}, if there is one"
                ) from None
        return f"{base_name}+{out}@{fingerprint(base, out)}"


def _parted(train_kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings, and where and how they are run."""
    values = {name: value for name, value in train_kwargs.items() if name not in _PLACES}
    places = {name: value for name, value in train_kwargs.items() if name in _PLACES}
    if folder := places.pop("output_dir", None):
        places.setdefault("out", folder)
    if places.get("out"):
        places["out"] = Path(places["out"]).expanduser().resolve()
    try:
        import_module("cirag_dspy.distill.settings").LoraSettings.of(values)
    except CiragError as error:
        raise RunError(f"train_kwargs: {error}, and {', '.join(_PLACES)}") from error
    return values, places


def _default_folder(content: str, rows: Sequence[dict[str, Any]], settings: dict[str, Any]) -> Path:
    made_of = json.dumps([content, rows, settings], sort_keys=True)
    return cache_dir().resolve() / "adapters" / hashlib.sha256(made_of.encode()).hexdigest()[:12]
