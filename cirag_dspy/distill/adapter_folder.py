"""The folder of an adapter, while it is trained and after."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from cirag_dspy.content import same_content
from cirag_dspy.errors import RunError
from cirag_dspy.files import disk_problem, read_json, replacing, write_text

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"


class AdapterFolder:
    """An adapter's folder. What is in it is whole, whenever the process that trains is killed.

    While training: `losses.jsonl`, a line a step, and `checkpoint/step-N/`. After: the adapter as peft lays it out, and
    `training.json`, written last. An identity is a dict of what the adapter is made of; a folder of another is refused.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._checkpoints = path / "checkpoint"
        self._log = path / "losses.jsonl"
        self._record = path / "training.json"

    def clear(self) -> None:
        """Forget a checkpoint and a finished training."""
        for file in (self._record, self._log, self.path / WEIGHTS, self.path / CONFIG):
            file.unlink(missing_ok=True)
        shutil.rmtree(self._checkpoints, ignore_errors=True)

    def finished(self, identity: dict[str, Any]) -> bool:
        """Whether the adapter is there, made of the same.

        Raises:
            RunError: An adapter is there, made of something else.
        """
        weights = (self.path / WEIGHTS).is_file()
        if not self._record.is_file():
            if weights and not self._checkpoints.is_dir():
                raise RunError(f"{self.path} holds an adapter of unknown make: give another folder, or start anew")
            return False
        self._check(read_object(self._record).get("identity"), identity)
        return weights

    def checkpoint(self, identity: dict[str, Any]) -> tuple[dict[str, torch.Tensor], list[list[float]]] | None:
        """The state and the losses of the last checkpoint, None if there is none.

        Raises:
            RunError: It is of another training, or damaged.
        """
        steps = sorted(self._checkpoints.glob("step-*"))
        if not steps:
            return None
        saved = read_object(steps[-1] / "state.json")
        self._check(saved.get("identity"), identity)
        try:
            return load_file(steps[-1] / "state.safetensors"), saved["losses"]
        except Exception as error:  # safetensors has an error of its own
            raise RunError(f"cannot read {steps[-1]} ({error}): remove it and start again") from error

    def start(self, losses: list[list[float]]) -> None:
        """Make the folder, and its log agree with the losses.

        Raises:
            RunError: It cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_text(self._log, "".join(f"{json.dumps(entry)}\n" for entry in losses))
        except OSError as error:
            raise RunError(f"cannot write {self.path} ({error.strerror or error}): give another folder") from error

    def append(self, entry: list[float]) -> None:
        """Add a step to the log."""
        with self._writing(), self._log.open("a", encoding="utf-8") as log:
            log.write(f"{json.dumps(entry)}\n")

    def save(self, state: dict[str, torch.Tensor], losses: list[list[float]], identity: dict[str, Any]) -> None:
        """Write a checkpoint, then forget those before it."""
        part, whole = self._checkpoints / "part", self._checkpoints / f"step-{len(losses):08d}"
        if not losses or whole.exists():
            return
        with self._writing(part):
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            save_file(state, part / "state.safetensors")
            (part / "state.json").write_text(json.dumps({"identity": identity, "losses": losses}), encoding="utf-8")
            part.rename(whole)
        for older in sorted(self._checkpoints.glob("step-*"))[:-1]:
            shutil.rmtree(older)

    def finish(self, weights: dict[str, torch.Tensor], config: dict[str, Any], record: dict[str, Any]) -> None:
        """Write the adapter and then its record, which says that all is there; then the checkpoint goes."""
        with self._writing():
            with replacing(self.path / WEIGHTS) as part:
                save_file(weights, part, metadata={"format": "pt"})
            # Sorted, for the adapter's content is part of its LM's name.
            write_text(self.path / CONFIG, json.dumps(config, indent=2, sort_keys=True) + "\n")
            write_text(self._record, json.dumps(record, indent=1) + "\n")
        shutil.rmtree(self._checkpoints, ignore_errors=True)
        self._log.unlink(missing_ok=True)

    @contextmanager
    def _writing(self, part: Path | None = None) -> Iterator[None]:
        """Make one error of all that writing can raise; what was in the folder before stays usable."""
        try:
            yield
        except (OSError, SafetensorError) as error:
            if part is not None:
                shutil.rmtree(part, ignore_errors=True)
            problem = disk_problem(error) or getattr(error, "strerror", None) or str(error)
            raise RunError(
                f"cannot write {self.path} ({problem}): free room; the same command goes on from its checkpoint"
            ) from error

    def _check(self, saved: Any, identity: dict[str, Any]) -> None:
        before, now = _flat(saved if isinstance(saved, dict) else {}), _flat(identity)
        for name, value in now.items():
            if not same_content(before.get(name), value):
                raise RunError(
                    f"{self.path} was trained with another {name} ({before.get(name)}, and now {value}): "
                    "give the same, or another folder, or start anew"
                )


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file of the folder.

    Raises:
        RunError: There is none.
    """
    return read_json(file, f"remove {file.parent} and start again")


def _flat(identity: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in identity.items() if key != "settings"} | identity.get("settings", {})
