"""Why an LM gave no text, and whether it refused a prompt for its length, in the words of the servers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dspy.utils.exceptions import (
    AdapterParseError,
    ContextWindowExceededError,
    LMAuthError,
    LMBillingError,
    LMError,
    LMRateLimitError,
)

# How servers say that prompt and reply exceed the context. Most send an HTTP 400 without a code of its own.
_TOO_LONG = re.compile(
    "|".join(
        (
            r"maximum context length|max(?:imum)? model (?:context )?len(?:gth)?|max_model_len",  # OpenAI, vLLM, SGLang
            r"context[ _-]?(?:length|window|size|limit)[ _]?(?:is |was |has been |limit )?"
            r"(?:exceed|overflow|too small)",
            r"(?:exceed|overflow|larger than|longer than|greater than|more than|beyond|over|fit)\w*[^.\n]{0,80}"
            r"\b(?:context|n_ctx|max_position_embeddings)\b",  # llama.cpp, Ollama, LM Studio, SGLang
            r"\b(?:context|n_ctx)\b[^.\n]{0,60}\b(?:exceed|overflow|too (?:small|long)|is not enough|full)\w*",
            r"context (?:the )?overflow|exceed_context_size|context_length_exceeded|context_window_exceeded",
            r"`?inputs`? tokens? \+ `?max_new_tokens`?|`?inputs`? must have less than",  # TGI
            r"(?:prompt|input|messages?|request|conversation) (?:is |are |was |were )?too (?:long|large|big)\b"
            r"(?!.*\b(?:per min|tpm)\b)",  # Anthropic, Bedrock
            r"too many (?:input |prompt |total )?tokens(?! per)|too many total text bytes",
            r"(?:input|prompt|token)s?(?: token)?[ _](?:count|length)[^.\n]{0,60}"
            r"\b(?:exceed|must be|greater|longer|more)",
            r"(?:number of|total|input|prompt|requested) (?:input |prompt |requested )?tokens[^.\n]{0,60}"
            r"\b(?:exceed|larger|greater|longer|more than|over|cannot be)",  # Together, Fireworks, Gemini
            r"exceeds? (?:the )?(?:model'?s? )?(?:max(?:imum)?|allowed|available|supported)[^.\n]{0,40}"
            r"\b(?:tokens?|input|prompt|sequence|context)\b",
            r"(?:reduce|shorten) (?:the |your )?(?:length|prompt|input|messages?)",
            r"n_keep(?: of \d+)?\s*(?:>=|tokens)|trying to keep the first \d+ tokens",  # LM Studio
            r"range of input length should be|\btoken limit (?:is |was )?exceeded|string too long\b.{0,40}maximum",
            r"max_(?:completion_)?tokens`? must be (?:at least|greater than)[^\n]{0,20} got -\d",  # vLLM
            r"sequence length (?:is )?longer than|prompt (?:contains|has) \d+ tokens",
        )
    ),
    re.I,
)
_OTHERWISE = (LMAuthError, LMBillingError, LMRateLimitError)
_STATUSES = (400, 413, 422)


def is_too_long(error: BaseException) -> bool:
    """Whether an LM refused its prompt for its length: a smaller one may do.

    Known by DSPy's error type, by the wordings of vLLM, llama.cpp, Ollama, LM Studio, TGI, SGLang, Together, Anthropic
    and others, also in the errors that one was made from, and by HTTP status 413. A refusal that says nothing at all
    (DSPy drops the words of vLLM's flat error bodies) may be one as well.
    """
    if isinstance(error, _OTHERWISE):
        return False
    chain = list(_causes(error))
    if any(isinstance(one, ContextWindowExceededError) or _TOO_LONG.search(_said(one)) for one in chain):
        return True
    statuses = {getattr(one, "status", None) or getattr(one, "status_code", None) for one in chain}
    silent = isinstance(error, LMError) and not getattr(error, "message", "")
    return 413 in statuses or bool(silent and statuses.intersection(_STATUSES))


def _causes(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    for _ in range(10):
        if one is None:
            return
        yield one
        one = one.__cause__ or one.__context__


def _said(error: BaseException) -> str:
    body = getattr(error, "body", None) or getattr(getattr(error, "response", None), "text", None)
    return f"{error} {getattr(error, 'provider_code', None) or ''} {body if isinstance(body, (str, Mapping)) else ''}"


# Finish reasons of providers that withhold a reply, or the rest of one.
WITHHELD = frozenset({"content_filter", "refusal", "safety", "recitation", "blocked"})


def why_no_text(error: AdapterParseError, response: Any) -> str:
    """Why a reply has no text: refused, withheld, a tool call or thinking alone, or empty; empty if it has text.

    Args:
        error: Says that a reply could not be read.
        response: What the LM returned, as DSPy has it; ``None`` where that is not known.
    """
    source = _first(_get(response, "choices")) or response
    message = _get(source, "message") or source
    if "empty or null response" not in str(error) and str(error.lm_response or "").strip():
        return ""
    if refusal := _refusal(response, message):
        return f"the LM refused ({refusal[:300]})"
    reason = str(_get(source, "finish_reason") or "")
    if reason.lower() in WITHHELD:
        return f"the provider withheld it ({reason})"
    kinds = {_get(part, "type") for part in _list(_get(message, "parts"))}
    if _get(message, "tool_calls") or "tool_call" in kinds:
        return "it is a tool call"
    if _get(message, "reasoning_content") or "thinking" in kinds or str(error.lm_response or "").strip():
        return "it is thinking alone"
    return f"it is empty ({reason})" if reason not in ("", "stop", "length") else "it is empty"


def _refusal(response: Any, message: Any) -> str:
    """The words of a refusal: a field of the message, or one of its parts; also of what a provider sent."""
    sent = _get(_first(_get(_get(response, "provider_data"), "choices")), "message")
    for spoken in message, sent:
        parts = [spoken, *_list(_get(spoken, "parts")), *_list(_get(spoken, "content"))]
        for part in parts:
            told = _get(part, "refusal") or (_get(part, "text") if _get(part, "type") == "refusal" else "")
            if isinstance(told, str) and told.strip():
                return " ".join(told.split())
    return ""


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _first(value: Any) -> Any:
    return _list(value)[0] if _list(value) else None
