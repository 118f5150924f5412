"""Chat rows -> token ids and which of them are learnt: what the assistant says, and nothing else.

The prompt of a reply is built by the function that builds it at inference, and the reply is found behind it by
comparing token ids; so this holds for any chat template, with or without markers for the assistant's part.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dspy.lm15 import InvalidRequestError
from transformers import PreTrainedTokenizerBase

from cirag_dspy.errors import DataError, ModelError
from cirag_dspy.lms.chat import ChatFormat

_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class TokenRow:
    """`ids` of a conversation, and for each whether it is learnt (the same length; never the first)."""

    ids: list[int]
    learnt: list[bool]


@dataclass
class EncodeReport:
    """What became of the rows. A row is kept as it is, cut or split; replies are dropped, not rows.

    `kept` and `split` count conversations given; `cut` token rows whose prompt lost its beginning; `dropped` replies
    longer than a token row may be; `rows`, `tokens` and `learnt` what is left to train on.
    """

    kept: int = 0
    split: int = 0
    cut: int = 0
    dropped: int = 0
    rows: int = 0
    tokens: int = 0
    learnt: int = 0

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return asdict(self)


def encode_rows(
    rows: Sequence[dict[str, Any]], tokenizer: PreTrainedTokenizerBase, eos: Collection[int], *, max_length: int
) -> tuple[list[TokenRow], EncodeReport]:
    """Encode chat rows; every assistant turn of a row is learnt (eq. 8 of the paper: loss on the decisions only).

    A conversation is one token row, as long as it fits and each turn's prompt begins it. Else it is one token row per
    reply, each with what came before it, cut from the left where that is too long.

    Args:
        rows: Each with "messages", a list of {"role", "content"}; "id" and "predictor" name it in errors.
        tokenizer: With a chat template.
        eos: Ids that end the assistant's turn at inference (`lms.generation.eos_ids`).
        max_length: Tokens of a token row at most.

    Raises:
        DataError: A row has no assistant turn, an empty one, or one with nothing before it; or the chat template
            refuses it; or nothing is left to train on.
        ModelError: The tokenizer has no chat template, or no token that ends a turn.
    """
    if not tokenizer.chat_template:
        raise ModelError(f"{tokenizer.name_or_path or 'the model'} has no chat template; use its instruct version")
    encoder = _Encoder(tokenizer, eos)
    report, encoded = EncodeReport(), []
    for number, row in enumerate(rows, start=1):
        name = ", ".join(f"{key} {row[key]}" for key in ("id", "predictor") if row.get(key))
        where = f"row {number}" + (f" ({name})" if name else "")
        turns, joined = encoder.turns(row.get("messages") or [], where)
        if joined is not None and len(joined.ids) <= max_length:
            report.kept += 1
            encoded.append(joined)
            continue
        report.split += len(turns) > 1
        for prompt, reply in turns:
            if len(reply) >= max_length:  # its first token is predicted from a token before it
                report.dropped += 1
                continue
            kept = prompt[-(max_length - len(reply)) :]
            report.cut += len(kept) < len(prompt)
            report.kept += len(turns) == 1 and len(kept) == len(prompt)
            encoded.append(TokenRow(kept + reply, [False] * len(kept) + [True] * len(reply)))
    report.rows = len(encoded)
    report.tokens = sum(len(row.ids) for row in encoded)
    report.learnt = sum(sum(row.learnt) for row in encoded)
    if not encoded:
        reason = f"all {report.dropped} replies have max_length={max_length} tokens or more" if rows else "no rows"
        raise DataError(f"nothing to train on: {reason}")
    return encoded, report


class _Encoder:
    def __init__(self, tokenizer: PreTrainedTokenizerBase, eos: Collection[int]) -> None:
        self.tokenizer = tokenizer
        self.eos = set(eos)
        self.chat = ChatFormat(tokenizer)
        if not self.eos:
            raise ModelError(f"{tokenizer.name_or_path or 'the tokenizer'} has no token that ends a turn (eos_token)")

    def turns(
        self, messages: Sequence[dict[str, str]], where: str
    ) -> tuple[list[tuple[list[int], list[int]]], TokenRow | None]:
        """(prompt, reply) of each assistant turn; and the conversation as one row, None where it is no such row."""
        turns, closed = [], []
        for at, message in enumerate(messages):
            if not _is_message(message):
                raise DataError(f"{where}: messages[{at}] must have a role ({', '.join(_ROLES)}) and a text as content")
            if message["role"] != "assistant":
                continue
            if not message["content"]:
                raise DataError(f"{where}: messages[{at}] is an empty assistant turn: nothing to learn from")
            if at == 0 or messages[at - 1]["role"] == "assistant":
                raise DataError(f"{where}: messages[{at}] is an assistant turn that answers nothing")
            try:
                prompt, closed = self.chat.prompt(messages[:at]), self.chat.conversation(messages[: at + 1])
            except InvalidRequestError as error:
                raise DataError(f"{where}: {error}") from error
            turns.append((prompt, self._reply(prompt, closed, self.chat.neutral(message["content"]))))
        if not turns:
            raise DataError(f"{where}: no assistant turn, so nothing would be learnt from it")
        return turns, _join(closed, turns)

    def _reply(self, prompt: list[int], closed: list[int], text: str) -> list[int]:
        """The ids of a reply and of the end of its turn.

        As they stand in the closed conversation, if that begins with the prompt and shows the reply word for word.
        A template may strip the reply, or put something before it; then the reply is tokenised by itself.
        """
        rest = closed[len(prompt) :]
        end = next((at for at, token in enumerate(rest) if token in self.eos), None)
        if end is not None and closed[: len(prompt)] == prompt and self._decode(rest[:end]) == text:
            return rest[: end + 1]
        closing = [token for token in closed if token in self.eos]
        own = self.tokenizer.eos_token_id
        ending = closing[-1] if closing else own if own is not None else min(self.eos)
        return [*self.tokenizer.encode(text, add_special_tokens=False), ending]

    def _decode(self, ids: list[int]) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text


def _is_message(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") in _ROLES and isinstance(message.get("content"), str)


def _join(closed: list[int], turns: Sequence[tuple[list[int], list[int]]]) -> TokenRow | None:
    """One row of all turns, if each prompt and its reply are how the conversation begins."""
    learnt = [False] * len(closed)
    end = 0
    for prompt, reply in turns:
        end = len(prompt) + len(reply)
        if closed[:end] != prompt + reply:
            return None
        learnt[len(prompt) : end] = [True] * len(reply)
    return TokenRow(closed[:end], learnt[:end])
