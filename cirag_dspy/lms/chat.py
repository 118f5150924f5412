"""An lm15 request -> the token ids of a prompt, in the model's own chat template."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dspy.lm15 import InvalidRequestError, Request, TextPart, UnsupportedFeatureError
from transformers import PreTrainedTokenizerBase

_PROBE = "Instructions7f3a"


class ChatFormat:
    """Builds prompts with a tokenizer's chat template, so that text can never open or close a turn.

    Of a template that refuses a system message (Gemma's, old ones of Mistral), drops it without a word, or keeps it in
    a first turn only, the instructions begin the first user turn: in training as at inference, since both ask here.

    Args:
        tokenizer: Must have a chat template.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        added = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
        special = sorted({t for t in added | set(tokenizer.all_special_tokens) if len(t) > 1}, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, special)) or r"(?!)")
        self.takes_system = self._takes_system()

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
        safe = safe if self.takes_system else _in_first_user_turn(safe)
        try:
            return list(self.tokenizer.apply_chat_template(safe, return_dict=False, **options))
        except Exception as error:  # a template is foreign code, and may raise anything
            raise InvalidRequestError(f"the chat template refuses this conversation: {error}") from error

    def _takes_system(self) -> bool:
        """Whether instructions are in the prompt, of one question and of a conversation, as a system message."""
        asked = [{"role": "system", "content": _PROBE}, {"role": "user", "content": "q"}]
        later = [{"role": "assistant", "content": "a"}, {"role": "user", "content": "r"}]
        return all(self._shows(asked + more) for more in ([], later)) or not self._shows(
            _in_first_user_turn(asked)
        )  # a template that takes neither is left to say so itself

    def _shows(self, messages: Sequence[Mapping[str, str]]) -> bool:
        try:
            text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except Exception:  # a template is foreign code, and may raise anything
            return False
        return _PROBE.casefold() in str(text).casefold()

    def neutral(self, text: str) -> str:
        """The text with every special token's spelling broken by a blank: `<|im_end|>` becomes `< |im_end|>`."""
        return self._special.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)


def _in_first_user_turn(messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The messages without system messages: what these say begins the first user turn, which is made if need be."""
    told = [message["content"] for message in messages if message["role"] == "system"]
    rest = [dict(message) for message in messages if message["role"] != "system"]
    if not told:
        return rest
    if not rest or rest[0]["role"] != "user":
        rest.insert(0, {"role": "user", "content": ""})
    rest[0]["content"] = "\n\n".join(filter(None, [*told, rest[0]["content"]]))
    return rest


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
