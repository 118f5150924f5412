"""Folders -> a running engine; each combination of weights, dtype and device is loaded once per process."""

from __future__ import annotations

import atexit
import json
import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from cirag_dspy.content import same_content
from cirag_dspy.errors import ModelError
from cirag_dspy.files import read_text
from cirag_dspy.lms.local import LocalEngine
from cirag_dspy.lms.weights import fingerprint

logger = logging.getLogger(__name__)

_engines: dict[tuple[str, ...], LocalEngine] = {}
_lock = threading.Lock()


def load_engine(
    base: str,
    adapter: str | None = None,
    *,
    dtype: str | None = None,
    device: str | None = None,
    max_batch: int = 8,
    content: str | None = None,
) -> LocalEngine:
    """The engine for a model folder and, merged into it, a peft adapter folder; shared by all who ask for the same.

    Args:
        base: The model's folder. It wins over the base an adapter names, which may have moved.
        adapter: The adapter's folder.
        dtype: bfloat16, float32 or float16; by default bfloat16 where the hardware computes in it, else float32.
        device: As torch names it; by default cuda where there is one, else cpu.
        max_batch: Requests answered at a time.
        content: The fingerprint of base and adapter, where the caller has just computed it.

    Raises:
        ModelError: The files cannot be loaded, or dtype or device cannot be had.
    """
    place = pick_device(device)
    kind = pick_dtype(dtype, place)
    source = {"base": base, "adapter": adapter, "dtype": dtype, "device": device, "max_batch": max_batch}
    content = content or fingerprint(Path(base), Path(adapter) if adapter else None)
    # The content, for a folder may have been trained anew since it was loaded.
    key = (content, base, adapter or "", str(kind), str(place), str(max_batch))
    with _lock:
        engine = _engines.get(key)
        if engine is None or engine.closed:
            try:
                model, tokenizer = _load(Path(base), adapter and Path(adapter), kind)
                engine = _engines[key] = LocalEngine(
                    model.to(place), tokenizer, source=source, content=content, max_batch=max_batch
                )
            except ModelError:
                raise
            except Exception as error:  # damaged files raise whatever the library that reads them raises
                what = f"{base}+{adapter}" if adapter else base
                first = (str(error).strip().splitlines() or [type(error).__name__])[0]
                raise ModelError(f"cannot load {what}: {first[:300]}") from error
    return engine


@atexit.register
def close_engines() -> None:
    """End the worker of every shared engine; the next `load_engine` loads anew."""
    with _lock:
        for engine in _engines.values():
            engine.close()
        _engines.clear()


def _load(
    base: Path, adapter: Path | str | None, dtype: torch.dtype
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    with quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(base, local_files_only=True)
        # An adapter is merged in float32 and the sum rounded once.
        model = AutoModelForCausalLM.from_pretrained(
            base, dtype=torch.float32 if adapter else dtype, local_files_only=True
        )
        if adapter:
            from peft import PeftModel

            _check_base(base, Path(adapter))
            model = PeftModel.from_pretrained(model, str(adapter), local_files_only=True).merge_and_unload()
    return model.to(dtype), tokenizer


def _check_base(base: Path, adapter: Path) -> None:
    """Warn where an adapter's record says it was trained on other weights; an adapter without a record is trusted."""
    try:
        trained_on = json.loads(read_text(adapter / "training.json"))["base"]
        name, content = trained_on["name"], trained_on["content"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if not same_content(content, given := fingerprint(base)):
        logger.warning("%s was trained on %s (%s), and is used on %s (%s)", adapter, name, content, base, given)


def pick_device(name: str | None) -> torch.device:
    """The device of that name; for None, cuda where there is one, else cpu.

    Raises:
        ModelError: torch has no such device.
    """
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError as error:
        raise ModelError(f"no device {name!r}: use cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"no device {name!r}: torch sees no GPU; use cpu")
    return device


def pick_dtype(name: str | None, device: torch.device) -> torch.dtype:
    """The dtype of that name; for None, bfloat16 where the device computes in it, else float32.

    Raises:
        ModelError: There is no such dtype, or not on this device.
    """
    if name is None:
        return torch.bfloat16 if _computes_bfloat16(device) else torch.float32
    dtypes = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float16": torch.float16}
    if name not in dtypes:
        raise ModelError(f"no dtype {name!r}: use one of {', '.join(dtypes)}")
    if name == "float16" and device.type == "cpu":
        raise ModelError("float16 is not for the CPU: use float32, or bfloat16")
    return dtypes[name]


def _computes_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "amx_tile", "bf16"))


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars, and no advice meant for the authors of transformers and peft; errors still raise."""
    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()
