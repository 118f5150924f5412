"""LoRA training of a local model on chat rows, in a plain torch loop (paper section 3.5, appendix B.4).

Logits are computed only where a token is learnt; the usual trainers compute those of every position, which for a small
model with a large vocabulary is half of the work.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from cirag_dspy.distill.adapter_folder import CONFIG, WEIGHTS, AdapterFolder, read_object
from cirag_dspy.distill.curve import thinned
from cirag_dspy.distill.encode import TokenRow, encode_rows
from cirag_dspy.distill.fitting import EncodeReport
from cirag_dspy.distill.settings import LoraSettings
from cirag_dspy.distill.training import Training
from cirag_dspy.errors import CiragError, ModelError, RunError
from cirag_dspy.lms.generation import eos_ids
from cirag_dspy.lms.loading import pick_device, pick_dtype, quiet_transformers
from cirag_dspy.lms.weights import fingerprint

__all__ = ["LoraSettings", "train"]

_FORMAT = 1  # of the checkpoint

OnStep = Callable[[int, int, float], None]


def train(
    base: Path,
    rows: Sequence[dict[str, Any]],
    out: Path,
    settings: LoraSettings | None = None,
    *,
    base_name: str,
    resume: bool = True,
    init: Path | None = None,
    device: str | None = None,
    dtype: str | None = None,
    on_step: OnStep | None = None,
    on_rows: Callable[[EncodeReport], None] | None = None,
) -> Path:
    """Train an adapter and write its folder; goes on from a checkpoint in it, and returns at once if it is finished.

    The folder holds the adapter as peft lays it out, and training.json: base, data, settings, versions, what became of
    the rows (`EncodeReport`), and the loss curve as [step, loss, tokens so far, seconds so far]. Until then it holds a
    checkpoint, and losses.jsonl with the curve so far. On a CPU, a run that was interrupted and went on ends with the
    very adapter of one that was not.

    Args:
        base: The model's folder. It is not changed, and gets no new tokens.
        rows: Chat rows, {"messages": [{"role", "content"}, ...], "predictor", "id"}; see `encode_rows`.
        out: The adapter's folder.
        settings: Default `LoraSettings()`.
        base_name: What the adapter calls its base, such as "embedded"; of a path only the last part is kept, for
            folders move.
        resume: Go on from a checkpoint; False starts anew, and gives up what the folder holds.
        init: An adapter of the same base, rank, alpha and targets to go on from.
        device: As torch names it; by default cuda where there is one, else cpu.
        dtype: bfloat16 or float32, of model and adapter; by default bfloat16 where the hardware computes in it. The
            optimizer keeps the adapter in float32 either way.
        on_step: Called after each optimizer step with the step (from 1), the steps in all, and the loss. May raise
            KeyboardInterrupt, which as from the keyboard ends the training with a checkpoint.
        on_rows: Called before the first step with what became of the rows. May raise to end it there.

    Returns:
        `out`.

    Raises:
        DataError: The rows cannot be trained on (see `encode_rows`).
        ModelError: The model cannot be loaded, or device or dtype cannot be had.
        RunError: The folder belongs to other inputs, or the loss is no number any more.
    """
    settings = settings or LoraSettings()
    base, out = Path(base), Path(out)
    place = pick_device(device)
    kind = pick_dtype(dtype, place)
    if kind == torch.float16:
        raise ModelError("float16 is not for training: use bfloat16 or float32")
    identity = {
        "base": fingerprint(base),
        "init": fingerprint(base, init) if init else None,
        "data": rows_digest(rows),
        "settings": {name: value for name, value in asdict(settings).items() if name != "save_every"},
        "dtype": str(kind).removeprefix("torch."),
        "device": place.type,
        "format": _FORMAT,
    }
    folder = AdapterFolder(out)
    if resume and folder.finished(identity):
        return out

    gpus = [torch.cuda.current_device()] if place.type == "cuda" else []
    with torch.random.fork_rng(gpus):
        model, tokenizer = _load(base, settings, kind, init)
        encoded, report = encode_rows(rows, tokenizer, eos_ids(model, tokenizer), max_length=settings.max_length)
        if on_rows is not None:
            on_rows(report)
        _check_fit(model, encoded)
        training = Training(model.to(place), settings, encoded)
        if not resume:
            folder.clear()
        elif saved := folder.checkpoint(identity):
            training.restore(*saved)
        folder.start(training.losses)
        try:
            _loop(training, folder, identity, on_step)
        except KeyboardInterrupt:
            if training.whole:
                folder.save(training.state(), training.losses, identity)
            raise
    _finish(training, folder, identity, base_name, report)
    return out


def rows_digest(rows: Sequence[dict[str, Any]]) -> str:
    """12 hex digits of what the rows say; their ids and predictors do not count."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row.get("messages"), sort_keys=True).encode() + b"\n")
    return digest.hexdigest()[:12]


def adapter_shape(adapter: Path) -> dict[str, Any]:
    """The settings an adapter can only be trained on with: rank and alpha, and targets if they are on record."""
    config = read_object(adapter / CONFIG)
    shape = {"rank": config.get("r"), "alpha": config.get("lora_alpha")}
    if (adapter / "training.json").is_file():
        shape["targets"] = read_object(adapter / "training.json").get("settings", {}).get("targets", "all-linear")
    return shape


def _loop(training: Training, folder: AdapterFolder, identity: dict[str, Any], on_step: OnStep | None) -> None:
    for batch in training.batches():
        loss = training.gradients(batch)
        training.update(loss, tokens=sum(len(row.ids) for row in batch))
        folder.append(training.losses[-1])
        if training.step % training.settings.save_every == 0 and training.step < training.total:
            folder.save(training.state(), training.losses, identity)
        if on_step is not None:
            on_step(training.step, training.total, loss)


def _load(base: Path, settings: LoraSettings, dtype: torch.dtype, init: Path | None) -> tuple[Any, Any]:
    """The model with a new adapter (which changes nothing yet) or the given one; and the tokenizer."""
    targets = [name.strip() for name in settings.targets.split(",")]
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha or 2 * settings.rank,
        lora_dropout=settings.dropout,
        target_modules=targets[0] if targets == ["all-linear"] else targets,
        task_type="CAUSAL_LM",
    )
    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(base, local_files_only=True)
            model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype, local_files_only=True)
            torch.manual_seed(settings.seed)
            model = get_peft_model(model, config, autocast_adapter_dtype=False)
            if init:
                _start_from(model, init, config)
    except CiragError:
        raise
    except Exception as error:  # damaged files raise whatever the library that reads them raises
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(f"cannot load {base} for training: {first[:300]}") from error
    model.train()
    return model, tokenizer


def _start_from(model: Any, init: Path, config: LoraConfig) -> None:
    shape = adapter_shape(init)
    if (shape["rank"], shape["alpha"]) != (config.r, config.lora_alpha):
        raise RunError(
            f"{init} has rank {shape['rank']} and alpha {shape['alpha']}, not {config.r} and {config.lora_alpha}: "
            "train it on with what it has"
        )
    weights = load_file(init / WEIGHTS)
    if weights.keys() != get_peft_model_state_dict(model, save_embedding_layers=False).keys():
        raise RunError(f"{init} does not adapt the layers that targets name: train it on with the targets it has")
    set_peft_model_state_dict(model, weights)


def _check_fit(model: Any, rows: Sequence[TokenRow]) -> None:
    """Before hours are spent: what would fail in the middle of an epoch."""
    known = model.get_input_embeddings().weight.shape[0]
    if (highest := max(max(row.ids) for row in rows)) >= known:
        raise ModelError(f"the tokenizer gives token {highest}, and the model knows {known} only: they don't match")
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    longest = max(len(row.ids) for row in rows)
    if context and longest > context:
        raise RunError(f"max_length lets rows of {longest} tokens in, and the model's context is {context}: lower it")


def _finish(
    training: Training, folder: AdapterFolder, identity: dict[str, Any], base_name: str, report: EncodeReport
) -> None:
    name = base_name.removeprefix("local/")
    name = Path(name).name if Path(name).expanduser().is_absolute() else name
    weights = get_peft_model_state_dict(training.model, save_embedding_layers=False)
    config = training.model.peft_config["default"].to_dict()
    config |= {"base_model_name_or_path": name, "inference_mode": True}
    record = {
        "base": {"name": name, "content": identity["base"]},
        "data": identity["data"],
        "settings": asdict(training.settings),
        "rows": report.as_dict(),
        "steps": training.total,
        "tokens": training.losses[-1][2],
        "seconds": training.losses[-1][3],
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "peft": peft.__version__,
        },
        "identity": identity,
        "losses": thinned(training.losses),
    }
    folder.finish(
        {key: weight.detach().cpu().contiguous() for key, weight in weights.items()},
        {key: sorted(value) if isinstance(value, set) else value for key, value in config.items()},
        record,
    )
