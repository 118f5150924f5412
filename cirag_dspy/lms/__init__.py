"""LM strings -> `dspy.LM`: remote ones as DSPy knows them, and models that run in this process.

Importing this imports neither torch nor transformers; loading a local model does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import dspy

from cirag_dspy.content import same_content
from cirag_dspy.errors import ModelError
from cirag_dspy.lms.meter import LMMeter
from cirag_dspy.lms.provider import LocalProvider
from cirag_dspy.lms.weights import MARK, embedded_model, fingerprint, model_folder
from cirag_dspy.reply_cache import guard_reply_cache

if TYPE_CHECKING:
    from cirag_dspy.lms.local import LocalEngine

__all__ = ["LMMeter", "embedded_model", "load_lm"]

_EXAMPLES = "embedded, local/FOLDER, local/FOLDER+ADAPTER, openai/gpt-4o-mini, ollama_chat/llama3.2"


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
    and `+ADAPTER` after either a peft adapter's folder or hub id. `annotations` is no model but a teacher that answers
    from gold. Everything else is DSPy's own, `openai/gpt-4o-mini` for one. A local LM is named after its content,
    `local/MODEL+ADAPTER@0123456789ab`, because DSPy's cache keys on the name; such a name is a spec too, and is refused
    if the content has changed since. The same local spec shares one engine, whoever asks.

    Args:
        spec: The LM string.
        max_tokens: Tokens of an answer at most.
        temperature: 0 or None is greedy. OpenAI's reasoning models, which refuse it, get neither.
        cache: Whether DSPy may answer a repeated request from its cache.
        num_retries: Of a remote call that failed; one whose reply came too late is not repeated.
        kwargs: Of `annotations`: `examples` (with their gold), `passages` (the corpus), `triples` (silver ones by
            passage id). Of a local LM: `dtype`, `device`, `max_batch` (see `load_engine`), and further generation
            settings. Of a remote one: whatever `dspy.LM` takes, such as `api_base`, and `timeout`, the seconds that one
            reply may take in all.

    Raises:
        ModelError: The spec names nothing, or the model cannot be loaded.
    """
    if cache:
        guard_reply_cache()
    common = {"max_tokens": max_tokens, "temperature": temperature, "cache": cache, "num_retries": num_retries}
    if spec == "annotations":
        return _annotations(kwargs)
    if not is_local(spec):
        provider, _, name = spec.partition("/")
        if not provider.strip() or not name.strip():
            raise ModelError(f"no LM {spec!r}: give one of {_EXAMPLES}")
        from cirag_dspy.lms.remote import RemoteLM

        return _make(spec, common | kwargs, RemoteLM)

    from cirag_dspy.lms.local import AsyncLocalEngine

    options = {name: kwargs.pop(name) for name in ("dtype", "device", "max_batch") if name in kwargs}
    name, engine = local_engine(spec, **options)
    own = {"engine": engine, "async_engine": AsyncLocalEngine(engine), "provider": LocalProvider()}
    return _make(name, common | kwargs | own)


def local_engine(spec: str, **options: Any) -> tuple[str, LocalEngine]:
    """The name, marked with its content, and the engine of a local LM; the same spec shares one engine.

    Args:
        spec: As `load_lm` takes it.
        options: `dtype`, `device`, `max_batch` (see `load_engine`).

    Raises:
        ModelError: The model cannot be loaded, or its content is not what the spec is marked with.
    """
    from cirag_dspy.lms.loading import load_engine

    plain, mark = MARK.sub("", spec), MARK.search(spec)
    model, adapter = split_spec(spec)
    folder = base_folder(model)
    adapter_folder = model_folder(adapter, adapter=True) if adapter else None
    content = fingerprint(folder, adapter_folder)
    if mark and not same_content(mark[1], content):
        raise ModelError(f"{plain} has changed: its content is {content}, and {mark[1]} was asked for")
    engine = load_engine(str(folder), str(adapter_folder) if adapter_folder else None, content=content, **options)
    return f"{plain}@{content}", engine


def _annotations(options: dict[str, Any]) -> dspy.LM:
    """The teacher that answers from gold; asking it again costs nothing, so nothing is cached or retried."""
    from cirag_dspy.lms.annotations import AnnotationsEngine, AsyncAnnotationsEngine

    if not options.get("examples"):
        raise ModelError("annotations is no model: it answers a benchmark's own questions from gold (eval, compile)")
    engine = AnnotationsEngine(options["examples"], options.get("passages") or (), options.get("triples"))
    made = {"engine": engine, "async_engine": AsyncAnnotationsEngine(engine), "cache": False, "num_retries": 0}
    return _make(f"annotations/{engine.content}", {"max_tokens": None, "temperature": None} | made)


def split_spec(spec: str) -> tuple[str, str]:
    """The model and the adapter ("" for none) of an LM string, the mark of its content left out.

    `local/FOLDER+ADAPTER@0123456789ab` is `local/FOLDER` and `ADAPTER`; a remote LM has no adapter.
    """
    if not is_local(spec):
        return spec, ""
    plain = MARK.sub("", spec)
    if not plain.startswith("local/"):
        return _split(plain)
    base, adapter = _split(plain.removeprefix("local/"))
    return f"local/{base}", adapter


def is_local(spec: str) -> bool:
    """Whether an LM string names a model that runs in this process, with or without an adapter."""
    return spec.startswith("local/") or MARK.sub("", spec).split("+", 1)[0] == "embedded"


def trainable(spec: str) -> tuple[str, Path, Path | None]:
    """What training a local LM starts from: the name of its base, the base's folder, and that of its adapter, if any.

    Raises:
        ModelError: It is no local LM, or can't be had.
    """
    base, adapter = split_spec(spec)
    if not is_local(base):
        raise ModelError(f"{base} can't be trained here: give embedded, or local/MODEL")
    return base, base_folder(base), model_folder(adapter, adapter=True) if adapter else None


def base_folder(model: str) -> Path:
    """The folder of a local LM without adapter: `embedded`, or `local/` and a folder or hub id.

    Raises:
        ModelError: It can't be had.
    """
    name = model.removeprefix("local/")
    return embedded_model() if name == "embedded" else model_folder(name)


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


def _make(name: str, options: dict[str, Any], kind: type[dspy.LM] = dspy.LM) -> dspy.LM:
    try:
        try:
            return kind(name, **options)
        except dspy.LMConfigurationError:
            # OpenAI's reasoning models take no temperature and few tokens; our defaults are not worth refusing them.
            if options["temperature"] != 0.0:
                raise
            return kind(name, **options | {"temperature": None, "max_tokens": None})
    except (ValueError, TypeError, dspy.LMError) as error:
        raise ModelError(f"cannot use {name}: {error}") from error
