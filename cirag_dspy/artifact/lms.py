"""The LMs of a saved program: which predictor has which, how each is called, and its adapter; never a key."""

from __future__ import annotations

import json
import logging
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import dspy

from cirag_dspy.artifact.layout import (
    ADAPTER,
    ADAPTER_FILES,
    EXTRACTION,
    READER,
    WEIGHTS,
    adapter_hash,
)
from cirag_dspy.content import same_content
from cirag_dspy.errors import ModelError
from cirag_dspy.lms import base_folder, is_local, split_spec
from cirag_dspy.lms.weights import MARK, fingerprint, model_folder, weights_hash
from cirag_dspy.modules.extract import Extract
from cirag_dspy.modules.keys import bare_address, is_secret, without_keys
from cirag_dspy.modules.plain import plain
from cirag_dspy.modules.state import predictors

logger = logging.getLogger(__name__)

Entry = dict[str, Any]
Named = tuple[str, Mapping[str, Any]]

# Options of a call that are saved, and passed on when a file is read: none of them says where a request is sent.
SETTINGS = (
    *("max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "n", "stop"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "reasoning_effort", "verbosity"),
    *("logprobs", "top_logprobs", "timeout", "extra_body", "api_version", "model_type", "dtype"),
)
DEFAULTS = {"max_tokens": 512, "temperature": 0.0}  # of ``load_lm``
CLIENT = {"cache": True, "num_retries": 3}  # of DSPy itself, with the defaults of ``load_lm``
_ADDRESSES = ("api_base", "base_url")


def by_role(program: dspy.Module, system: str) -> dict[str, Named | None]:
    """The LMs of a program's predictors: ``reader``, ``extraction`` where that is another, and ``SYSTEM.PREDICTOR`` for
    each predictor with another LM than its role, ``None`` where it has none. Empty where no predictor has one.
    """
    extracting = extractors(program)
    named = {name: _named(one.lm) for name, one in predictors(program).items()}
    roles = {name: EXTRACTION if id(one) in extracting else READER for name, one in predictors(program).items()}
    found: dict[str, Named | None] = {}
    for role in (READER, EXTRACTION):
        usual = _most_common(named[name] for name in named if roles[name] == role)
        if usual is not None and not _same(usual, found.get(READER)):
            found[role] = usual
    if not found:
        return {}
    for name, lm in named.items():
        if not _same(lm, found.get(roles[name]) or found.get(READER)):
            found[f"{system}.{name}"] = lm
    return found


def extractors(program: dspy.Module) -> set[int]:
    """The ids of a program's predictors that extract triples."""
    return {id(one) for _, part in program.named_sub_modules(Extract) for one in predictors(part).values()}


def keep(lm: Named, folder: Path, role: str) -> Entry:
    """What ``meta.json`` says of an LM; its adapter goes into the folder.

    Raises:
        ModelError: The adapter is missing, not in safetensors, or has changed since the LM was loaded.
    """
    spec, called = lm
    base, adapter = split_spec(spec)
    if base.startswith("local/") and (own := Path(base.removeprefix("local/")).expanduser()).is_dir():
        base = f"local/{own.resolve()}"  # the program may be loaded from anywhere
    if not adapter:
        return {"model": base, "base": base, **called}
    place = ADAPTER if role == READER else f"{ADAPTER}-{role}"
    _copy_adapter(model_folder(adapter, adapter=True), folder / place)
    mark = MARK.search(spec)
    if mark and not same_content(mark[1], fingerprint(base_folder(base), folder / place)):
        raise ModelError(f"{adapter} has changed since the LM was loaded: load the LM again, then save")
    hashes = {"adapter_sha256": adapter_hash(folder / place), "base_sha256": weights_hash(base_folder(base))}
    return {"model": f"{base}+{place}", "base": base, "adapter": place, **hashes, **called}


def described(lm: str | dspy.LM, called: Mapping[str, Any]) -> Named | None:
    """The spec of an LM and how it is called, ``called`` where the LM does not say; ``None`` if it has no name."""
    if isinstance(lm, str):
        return lm, _kept({**DEFAULTS, **called}, lm)
    named = _named(lm)
    return named and (named[0], {**_kept(called, named[0]), **{k: v for k, v in named[1].items() if v is not None}})


def _named(lm: Any) -> Named | None:
    if lm is None:
        return None
    spec = str(getattr(lm, "model", "") or type(lm).__name__)
    if not isinstance(lm, dspy.LM) or not (is_local(spec) or isinstance(lm.engine, str)):
        logger.warning("%s is an object of this process and isn't saved: give it again by set_lm", spec)
        return None
    options = dict(lm.kwargs)
    if "max_completion_tokens" in options:
        options["max_tokens"] = options.pop("max_completion_tokens")
    options |= {name: value for name, default in CLIENT.items() if (value := getattr(lm, name)) != default}
    if lm.model_type != "chat":
        options["model_type"] = lm.model_type
    source = getattr(lm.engine, "source", None) or {}
    if source.get("dtype"):
        options["dtype"] = source["dtype"]
    return spec, _kept(options, spec)


def _kept(options: Mapping[str, Any], spec: str) -> Entry:
    kept: Entry = {}
    for name, value in options.items():
        if name in _ADDRESSES and value:
            kept["api_base"] = bare_address(str(value))
        elif name in (*SETTINGS, *CLIENT) and (value is not None or name in DEFAULTS):
            try:
                kept[name] = without_keys(plain(value))
            except TypeError as error:
                raise ModelError(f"{name} of {spec} can't be saved as JSON: {error}") from None
        elif value is not None and not is_secret(name) and name not in _ADDRESSES:
            logger.warning("%s of %s isn't saved: give it again when you load the program", name, spec)
    return kept


def _most_common(lms: Iterable[Named | None]) -> Named | None:
    known = [lm for lm in lms if lm is not None]
    counts = Counter(map(_key, known))
    return max(known, key=lambda lm: counts[_key(lm)], default=None)


def _same(one: Named | None, other: Named | None) -> bool:
    return _key(one) == _key(other)


def _key(lm: Named | None) -> str:
    return json.dumps(lm, sort_keys=True)


def _copy_adapter(source: Path, target: Path) -> None:
    if not (source / WEIGHTS).is_file():
        raise ModelError(f"{source} has no {WEIGHTS}: only adapters in safetensors are saved")
    target.mkdir()
    for name in ADAPTER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
