"""Chat rows -> token ids and which of them are learnt: what the assistant says, and nothing else.

The prompt of a reply is built by the function that builds it at inference, and the reply is found behind it by
comparing token ids; so this holds for any chat template, with or without markers for the assistant's part.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspy.lm15 import InvalidRequestError
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from cirag_dspy.distill.evidence import edited
from cirag_dspy.distill.fitting import EncodeReport
from cirag_dspy.errors import DataError, ModelError
from cirag_dspy.lms.chat import ChatFormat
from cirag_dspy.lms.loading import quiet_transformers

_ROLES = ("system", "user", "assistant")

Turn = tuple[int, list[int], list[int]]  # the reply's place among the messages, its prompt, itself


@dataclass(frozen=True)
class TokenRow:
    """`ids` of a conversation, and for each whether it is learnt (the same length; never the first)."""

    ids: list[int]
    learnt: list[bool]


def encode_rows(
    rows: Sequence[dict[str, Any]], tokenizer: PreTrainedTokenizerBase, eos: Collection[int], *, max_length: int
) -> tuple[list[TokenRow], EncodeReport]:
    """Encode chat rows; every assistant turn of a row is learnt (eq. 8 of the paper: loss on the decisions only).

    A conversation is one token row, as long as it fits and each turn's prompt begins it. Else it is one token row per
    reply, each with what came before it. Where that is too long, the oldest turns go, then evidence, as at inference
    (`modules.fit`); a row that still does not fit is dropped, and so is one of which it is not known what may go.

    Args:
        rows: Each with "messages", a list of {"role", "content"}; "id" and "predictor" name it in errors; "evidence" is
            what may go (`distill.evidence`).
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
    report, encoded = EncodeReport(max_length=max_length), []
    for number, row in enumerate(rows, start=1):
        name = ", ".join(f"{key} {row[key]}" for key in ("id", "predictor") if row.get(key))
        where = f"row {number}" + (f" ({name})" if name else "")
        turns, joined = encoder.turns(row.get("messages") or [], where)
        if joined is not None and len(joined.ids) <= max_length:
            report.kept += 1
            encoded.append(joined)
            continue
        report.split += len(turns) > 1
        for at, prompt, reply in turns:
            fitted = prompt
            if len(prompt) + len(reply) > max_length:
                shorter = encoder.shortened(row, at, max_length - len(reply))
                before, after = len(prompt) + len(reply), None if shorter is None else len(shorter) + len(reply)
                report.note(str(row.get("predictor") or ""), where, before, after)
                if shorter is None:
                    continue
                fitted = shorter
            report.kept += len(turns) == 1 and fitted is prompt
            encoded.append(TokenRow(fitted + reply, [False] * len(fitted) + [True] * len(reply)))
    report.rows = len(encoded)
    report.tokens = sum(len(row.ids) for row in encoded)
    report.learnt = sum(sum(row.learnt) for row in encoded)
    if not encoded:
        reason = f"none of {report.dropped} replies fits in max_length={max_length} tokens with its question"
        raise DataError(f"nothing to train on: {reason if rows else 'no rows'}")
    return encoded, report


def fit_report(rows: Sequence[dict[str, Any]], base: Path, max_length: int) -> EncodeReport:
    """What a student's tokenizer makes of rows, without its weights.

    Args:
        rows: As `encode_rows` takes them.
        base: The model's folder.
        max_length: Tokens of a row at most.

    Raises:
        DataError, ModelError: As `encode_rows`; or the tokenizer can't be read.
    """
    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(base, local_files_only=True)
    except Exception as error:  # damaged files raise whatever the library that reads them raises
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(f"cannot read the tokenizer of {base}: {first[:300]}") from error
    eos = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
    return encode_rows(rows, tokenizer, eos, max_length=max_length)[1]


class _Encoder:
    def __init__(self, tokenizer: PreTrainedTokenizerBase, eos: Collection[int]) -> None:
        self.tokenizer = tokenizer
        self.eos = set(eos)
        self.chat = ChatFormat(tokenizer)
        if not self.eos:
            raise ModelError(f"{tokenizer.name_or_path or 'the tokenizer'} has no token that ends a turn (eos_token)")

    def turns(self, messages: Sequence[dict[str, str]], where: str) -> tuple[list[Turn], TokenRow | None]:
        """Each assistant turn; and the conversation as one row, None where it is no such row."""
        turns: list[Turn] = []
        closed: list[int] = []
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
            turns.append((at, prompt, self._reply(prompt, closed, self.chat.neutral(message["content"]))))
        if not turns:
            raise DataError(f"{where}: no assistant turn, so nothing would be learnt from it")
        return turns, _join(closed, turns)

    def shortened(self, row: Mapping[str, Any], at: int, room: int) -> list[int] | None:
        """The longest prompt of the reply `messages[at]` that has at most `room` tokens; None if none has."""
        if "evidence" not in row:
            return None
        system = [m for m in row["messages"][:1] if m["role"] == "system"]
        before, asked = row["messages"][len(system) : at - 1], row["messages"][at - 1]
        edits = row["evidence"].get(str(at - 1), [])
        turns = len(before) // 2

        def prompt(step: int) -> list[int]:
            """The prompt after so many steps: a turn less each, then an edit."""
            content = asked["content"] if step <= turns else edited(asked["content"], edits[step - turns - 1])
            return self.chat.prompt([*system, *before[2 * step :], {**asked, "content": content}])

        steps = range(1, turns + len(edits) + 1)
        first = bisect_left(steps, True, key=lambda step: len(prompt(step)) <= room)
        return prompt(steps[first]) if first < len(steps) else None

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


def _join(closed: list[int], turns: Sequence[Turn]) -> TokenRow | None:
    """One row of all turns, if each prompt and its reply are how the conversation begins."""
    learnt = [False] * len(closed)
    end = 0
    for _, prompt, reply in turns:
        end = len(prompt) + len(reply)
        if closed[:end] != prompt + reply:
            return None
        learnt[len(prompt) : end] = [True] * len(reply)
    return TokenRow(closed[:end], learnt[:end])
