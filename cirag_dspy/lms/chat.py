"""An lm15 request -> the token ids of a prompt, in the model's own chat template."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dspy.lm15 import InvalidRequestError, Request, TextPart, UnsupportedFeatureError
from transformers import PreTrainedTokenizerBase


class ChatFormat:
    """Builds prompts with a tokenizer's chat template, so that text can never open or close a turn.

    Args:
        tokenizer: Must have a chat template.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        added = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
        special = sorted({t for t in added | set(tokenizer.all_special_tokens) if len(t) > 1}, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, special)) or r"(?!)")

    def encode(self, request: Request) -> list[int]:
        """The prompt's token ids; a last message from the assistant is continued, not answered.

        Raises:
            UnsupportedFeatureError: A message has another role than user or assistant, or a part that is not text.
            InvalidRequestError: The template refuses the conversation.
        """
        messages = []
        if request.system is not None:
            parts = (TextPart(request.system),) if isinstance(request.system, str) else request.system
            messages.append({"role": "system", "content": _text(parts, "system")})
        for index, message in enumerate(request.messages):
            where = f"messages[{index}]"
            if message.role not in ("user", "assistant"):
                raise UnsupportedFeatureError(f"a local model takes no {message.role} message", feature=where)
            messages.append({"role": message.role, "content": _text(message.parts, where)})
        return self.prompt(messages)

    def prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The ids after which the model speaks; a last message from the assistant is continued, not answered.

        Args:
            messages: Each with "role" (system, user or assistant) and "content".

        Raises:
            InvalidRequestError: The template refuses the conversation.
        """
        open_ended = messages[-1]["role"] == "assistant"
        return self._apply(messages, add_generation_prompt=not open_ended, continue_final_message=open_ended)

    def conversation(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The ids of the whole conversation, its last turn closed as the template closes it; otherwise as `prompt`."""
        return self._apply(messages)

    def _apply(self, messages: Sequence[Mapping[str, str]], **options: bool) -> list[int]:
        safe = [{"role": message["role"], "content": self.neutral(message["content"])} for message in messages]
        try:
            return list(self.tokenizer.apply_chat_template(safe, return_dict=False, **options))
        except Exception as error:  # a template is foreign code, and may raise anything
            raise InvalidRequestError(f"the chat template refuses this conversation: {error}") from error

    def neutral(self, text: str) -> str:
        """The text with every special token's spelling broken by a blank: `<|im_end|>` becomes `< |im_end|>`."""
        return self._special.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)


def _text(parts: Any, where: str) -> str:
    for index, part in enumerate(parts):
        if not isinstance(part, TextPart):
            raise UnsupportedFeatureError(
                f"a local model takes text only, not {part.type}", feature=f"{where}.parts[{index}]"
            )
    return "\n".join(part.text for part in parts)


def check_config(request: Request) -> None:
    """Refuse what would change the answer and cannot be honoured; what only concerns a remote service is let pass.

    Raises:
        UnsupportedFeatureError: Naming the first such field.
    """
    config = request.config
    asked = {
        "tools": request.tools,
        "config.tool_choice": config.tool_choice,
        "config.response_format": config.response_format,
        "config.reasoning": config.reasoning is not None and config.reasoning.effort not in (None, "off"),
        "config.frequency_penalty": config.frequency_penalty,
        "config.presence_penalty": config.presence_penalty,
        "config.probabilities": config.probabilities == "required",
        "config.extensions": config.extensions,
    }
    for feature, value in asked.items():
        if value:
            raise UnsupportedFeatureError(f"a local model does not take {feature} ({value!r:.80})", feature=feature)
