"""LM strings -> `dspy.LM`: remote ones as DSPy knows them, and models that run in this process.

Importing this imports neither torch nor transformers; loading a local model does.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import dspy

from cirag_dspy.errors import ModelError
from cirag_dspy.lms.meter import LMMeter
from cirag_dspy.lms.weights import embedded_model, fingerprint, model_folder

__all__ = ["LMMeter", "embedded_model", "load_lm"]

_EXAMPLES = "embedded, local/FOLDER, local/FOLDER+ADAPTER, openai/gpt-4o-mini, ollama_chat/llama3.2"
_MARK = re.compile(r"@([0-9a-f]{12})$")


def load_lm(
    spec: str,
    *,
    max_tokens: int | None = 512,
    temperature: float | None = 0.0,
    cache: bool = True,
    num_retries: int = 3,
    **kwargs: Any,
) -> dspy.LM:
    """Make the LM that a string names.

    `embedded` is the small model that installs with the project, `local/MODEL` a folder or hub id run in this process,
    and `+ADAPTER` after either a peft adapter's folder or hub id. Everything else is DSPy's own, `openai/gpt-4o-mini`
    for one. A local LM is named after its content, `local/MODEL+ADAPTER@0123456789ab`, because DSPy's cache keys on the
    name; such a name is a spec too, and is refused if the content has changed since. The same local spec shares one
    engine, whoever asks.

    Args:
        spec: The LM string.
        max_tokens: Tokens of an answer at most.
        temperature: 0 or None is greedy. OpenAI's reasoning models, which refuse it, get neither.
        cache: Whether DSPy may answer a repeated request from its cache.
        num_retries: Of a failed remote call.
        kwargs: Of a local LM: `dtype`, `device`, `max_batch` (see `load_engine`), and further generation settings. Of a
            remote one: whatever `dspy.LM` takes, such as `api_base`.

    Raises:
        ModelError: The spec names nothing, or the model cannot be loaded.
    """
    common = {"max_tokens": max_tokens, "temperature": temperature, "cache": cache, "num_retries": num_retries}
    if spec == "annotations":
        raise ModelError("annotations is no model: it answers from a benchmark's gold annotations, and needs one")
    plain, mark = _MARK.sub("", spec), _MARK.search(spec)
    if plain.split("+", 1)[0] == "embedded":
        local = plain
    elif plain.startswith("local/"):
        local = plain.removeprefix("local/")
    else:
        provider, _, name = spec.partition("/")
        if not provider.strip() or not name.strip():
            raise ModelError(f"no LM {spec!r}: give one of {_EXAMPLES}")
        return _make(spec, common | kwargs)

    base, adapter = _split(local)
    base_folder = embedded_model() if base == "embedded" else model_folder(base)
    adapter_folder = model_folder(adapter, adapter=True) if adapter else None
    content = fingerprint(base_folder, adapter_folder)
    if mark and mark[1] != content:
        raise ModelError(f"{plain} has changed: its content is {content}, and {mark[1]} was asked for")

    from cirag_dspy.lms.loading import load_engine
    from cirag_dspy.lms.local import AsyncLocalEngine

    options = {name: kwargs.pop(name) for name in ("dtype", "device", "max_batch") if name in kwargs}
    engine = load_engine(str(base_folder), str(adapter_folder) if adapter_folder else None, **options)
    return _make(f"{plain}@{content}", common | kwargs | {"engine": engine, "async_engine": AsyncLocalEngine(engine)})


def _split(local: str) -> tuple[str, str]:
    """MODEL and ADAPTER ("" for none); a plus inside an existing folder's name does not part them."""
    if not local:
        raise ModelError(f"no LM 'local/': give one of {_EXAMPLES}")
    if Path(local).expanduser().is_dir():
        return local, ""
    parts = local.split("+")
    for cut in range(len(parts) - 1, 0, -1):
        base, adapter = "+".join(parts[:cut]), "+".join(parts[cut:])
        if cut == 1 or Path(base).expanduser().is_dir():
            if not base or not adapter:
                raise ModelError(f"no LM {local!r}: give local/MODEL+ADAPTER")
            return base, adapter
    return local, ""


def _make(name: str, options: dict[str, Any]) -> dspy.LM:
    try:
        try:
            return dspy.LM(name, **options)
        except dspy.LMConfigurationError:
            # OpenAI's reasoning models take no temperature and few tokens; our defaults are not worth refusing them.
            if options["temperature"] != 0.0:
                raise
            return dspy.LM(name, **options | {"temperature": None, "max_tokens": None})
    except (ValueError, TypeError, dspy.LMError) as error:
        raise ModelError(f"cannot use {name}: {error}") from error
