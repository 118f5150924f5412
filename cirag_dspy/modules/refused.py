"""What a content filter refuses: one text among many, whose refusal need not cost the others."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dspy.utils.exceptions import LMError, LMProviderError

_FILTERED = re.compile(
    r"content[\s_-]*(?:filter|policy|management|moderation|restriction|safety|blocked)"
    r"|responsible[\s_-]*ai|data_?inspection|moderat(?:ion|ed)|safety (?:system|setting|filter|polic|reason|guideline)"
    r"|prohibited[\s_]content|inappropriate[\s_]content|sensitive[\s_](?:content|information|words?)|block_?reason"
    r"|guardrails?|flagged|usage polic(?:y|ies)|violat\w* .{0,40}polic(?:y|ies)",
    re.I,
)


def is_refused(error: LMError) -> bool:
    """Whether an error of the provider says that a content filter refused the prompt or the reply.

    Providers report it as an invalid request, some as a lack of permission; code and message tell it from the others.
    """
    if not isinstance(error, LMProviderError):
        return False
    first = str(error).strip().split("\n")[0]
    return bool(_FILTERED.search(f"{error.provider_code or ''} {first}"))


def without_refused(inputs: dict[str, Any], accepts: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
    """The inputs of a refused call without the lines that are refused; ``None`` where that is not the fault of lines.

    The lines are those of the field that has most of them: passages, facts, notes. Halves are tried, and the halves of
    those that are refused again, so that one line of ten costs some eight calls.

    Args:
        inputs: The inputs that were refused.
        accepts: Whether the LM takes inputs.
    """
    name = max(inputs, key=lambda name: len(inputs[name].splitlines()) if isinstance(inputs[name], str) else 0)
    lines = inputs[name].splitlines() if isinstance(inputs[name], str) else []

    def accepted(lines: list[str]) -> list[str]:
        if not lines or accepts({**inputs, name: "\n".join(lines)}):
            return lines
        half = len(lines) // 2
        return accepted(lines[:half]) + accepted(lines[half:]) if half else []

    if len(lines) < 2 or not accepts({**inputs, name: "none"}):
        return None
    half = len(lines) // 2
    kept = accepted(lines[:half]) + accepted(lines[half:])
    return {**inputs, name: "\n".join(kept)} if 0 < len(kept) < len(lines) else None
