"""An LM's error, or a reply that was cut, as one line: what happened, where, what to do; never a key or password."""

from __future__ import annotations

import re
from typing import Any

from cirag_dspy.text import one_line

# user:password@ of an address, also with a slash in the password, and where the address is told without its scheme.
_USER = re.compile(
    r"(?<=://)[^\s/@\"'<>]*(?:/[^\s/@\"'<>]*)?@|(?<![\w/])[^\s/@:\"'<>]+:(?!//)[^\s@\"'<>]+@(?=[\w.\[-])"
)
_SECRET = re.compile(
    r"([?&;][\w.-]*(?:key|token|secret|sig|signature|passw(?:or)?d|pass|pwd|auth|code|credential)[\w.-]*=)[^&;\s\"'<>)]+",
    re.I,
)
_KEY = re.compile(r"\b(?:sk|pk|gsk|xai|hf|AIza|key)[-_][\w-]{6,}(?:\*+[\w-]*)?|\b[Bb]earer\s+[\w.~+/=-]{6,}")
_REFUSED = re.compile(r"refused|actively refused|errno 111|connection reset|reset by peer|closed the connection", re.I)
_NO_HOST = re.compile(r"name or service|nodename|getaddrinfo|resolve|name resolution|no address|unreachable", re.I)
_MODEL = re.compile(r"\bmodel\b|\bdeployment\b", re.I)
_LM15 = re.compile(r"[;:]?\s*no bytes for [\d.]+s; this is lm15's .*?(?=$|\n)|pass RouterConfig\([^)]*\)")

CUT_REPLY = "cut off by the limit of its tokens: --max-tokens (in Python max_tokens) gives it more"


def without_secrets(text: str) -> str:
    """Text without user names, passwords and keys of addresses, and without API keys of the usual forms."""
    return _KEY.sub("…", _SECRET.sub(r"\1…", _USER.sub("", text)))


def lm_advice(error: BaseException, address: str | None = None) -> str:
    """An error of an LM call as one line that ends with what to do, where that is known.

    Args:
        error: DSPy's; any other is told as it is.
        address: The server's; default: what the LM noted on the error.
    """
    told = _LM15.sub("", str(error).partition("\n\n  To fix:")[0])  # lm15's advice is for those who write lm15
    told = without_secrets(one_line(told))[:300].rstrip(" ;,") or type(error).__name__
    place = without_secrets(address or getattr(error, "address", None) or "")
    what = _what_to_do(error, str(error), place)
    where = f" at {place}" if place and place not in told else ""
    return f"{told}{where}" + (f"; {what}" if what else "")


def _what_to_do(error: BaseException, told: str, place: str) -> str:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    status: Any = getattr(error, "status", None)
    if kinds & {"LMTimeoutError", "ReplyTimeoutError"}:
        return "--timeout (in Python timeout) gives it more seconds"
    if "ContextWindowExceededError" in kinds:
        return "the prompt exceeds the model's context: a smaller -k or -n, or a model with a longer one"
    if "LMNotConfiguredError" in kinds or ("LMAuthError" in kinds and _lacks_key(told)):
        return f"set {_variable(error)}; a server that needs no key takes any text"
    if "LMAuthError" in kinds or status in (401, 403):
        return f"the key was refused: check {_variable(error)} and that the address is the key's"
    if "LMBillingError" in kinds or status == 402:
        return "the account has no credit or quota left"
    if "LMRateLimitError" in kinds or status == 429:
        return "the server limits the rate: fewer --threads, more --tries, or wait"
    if "LMTransportError" in kinds or _REFUSED.search(told) or _NO_HOST.search(told):
        return _unreached(told)
    if "LMUnsupportedModelError" in kinds or status == 404 or re.search(r"\b404\b", told):
        return _not_found(error, told, place)
    if "LMServerError" in kinds or (isinstance(status, int) and status >= 500):
        return "the server failed: see its log; --tries asks more often"
    return ""


def _unreached(told: str) -> str:
    if _NO_HOST.search(told):
        return "no such host is known here: check --api-base and the network"
    return "nothing answers there: start the server, or check --api-base"


def _not_found(error: BaseException, told: str, place: str) -> str:
    local = str(getattr(error, "model", "") or "").startswith("ollama")
    if _MODEL.search(re.sub(r"^\[[^\]]*\]", "", told)) and not re.search(r"page not found", told, re.I):
        listed = "`ollama list` shows" if local or ":11434" in place else f"GET {place or 'ADDRESS'}/models lists"
        return f"the server has no such model: {listed} those it has"
    path = re.sub(r"^\w+://[^/]*", "", place).rstrip("/")
    if local:
        return "Ollama's own address has no path, http://localhost:11434" if path else "is that Ollama's address?"
    if place and not path.endswith("/v1"):
        return f"servers like OpenAI's (Ollama, vLLM, llama.cpp) answer below /v1: --api-base {place.rstrip('/')}/v1"
    return "nothing is served at that path: check --api-base, which mostly ends with /v1"


def _lacks_key(told: str) -> bool:
    return bool(
        re.search(
            r"no (?:api[ _-]?)?(?:key|credential)|(?:key|credential)\w* (?:is )?(?:missing|required|must)", told, re.I
        )
    )


def _variable(error: BaseException) -> str:
    """The environment variable that has the key of the error's provider."""
    if named := [name for name in getattr(error, "env_keys", None) or () if name]:
        return str(named[0])
    model = str(getattr(error, "model", "") or "")
    provider = model.partition("/")[0] if "/" in model else str(getattr(error, "provider", "") or "openai")
    return f"{re.sub(r'[^A-Za-z0-9]+', '_', provider).upper()}_API_KEY"
