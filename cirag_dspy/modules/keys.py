"""What must not reach a file: keys and other credentials among the options of an LM."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

# Names of credentials as LiteLLM and the providers' clients have them. ``max_tokens`` and the like are none.
_SECRET = re.compile(
    r"(^|[_-])(key|keys|token|secret|secrets|password|passwd|pwd|credential|credentials|auth|authorization|bearer|"
    r"cookie|cookies|header|headers|signature|sas)($|[_-])|api-?key|_id_token",
    re.I,
)


def without_keys(value: Any) -> Any:
    """Options without those that are credentials by their names, at any depth, and addresses without theirs."""
    if isinstance(value, Mapping):
        return {key: without_keys(item) for key, item in value.items() if not is_secret(key)}
    if isinstance(value, list | tuple):
        return [without_keys(item) for item in value]
    return bare_address(value) if isinstance(value, str) and "://" in value else value


def is_secret(name: Any) -> bool:
    """Whether an option of that name holds a credential."""
    return bool(_SECRET.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(name))))


def bare_address(address: str) -> str:
    """An address without user, password, query and fragment."""
    try:
        parts = urlsplit(address)
    except ValueError:  # no address after all
        return address
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
