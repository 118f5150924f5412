"""One answer as it grows: which token comes next, and when to stop. Pure decisions on logits; runs no model."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import torch
from dspy.lm15 import Config, Message, Response, TextPart, TokenLogprob, TopLogprob, Usage
from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Generation:
    """Collects an answer token by token.

    Args:
        tokenizer: Turns the tokens into text.
        config: Honoured: temperature (0 or None is greedy), top_p, top_k, stop, logprobs.
        limit: Tokens at most, end-of-turn included.
        eos: Token ids that end the turn.
        seed: Of this answer's own random numbers.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, config: Config, *, limit: int, eos: Collection[int], seed: int
    ) -> None:
        self._tokenizer = tokenizer
        self._config = config
        self._limit = limit
        self._eos = eos
        self._random = torch.Generator().manual_seed(seed) if config.temperature else None
        self._count = 0
        self._tokens: list[int] = []
        self._text = ""
        self._scores: list[tuple[int, TokenLogprob]] = []  # with where in the text each token ends
        self._scores_complete = True
        self.finish_reason: str | None = None

    def add(self, logits: torch.Tensor) -> int:
        """Choose the next token from logits of shape [vocabulary]; sets `finish_reason` when it was the last."""
        token = int(logits.argmax()) if self._random is None else self._sample(logits)
        self._count += 1
        if token in self._eos:
            self.finish_reason = "stop"
            return token
        self._tokens.append(token)
        if self._config.stop or self._config.logprobs is not None:
            self._read(token, logits)
        if self.finish_reason is None and self._count >= self._limit:
            self.finish_reason = "length"
        return token

    def response(self, model: str, *, prompt_tokens: int, reused: int) -> Response:
        """The finished answer. `reused` of the prompt's tokens were not run again."""
        return Response(
            id=None,
            model=model,
            message=Message.assistant([TextPart(self._text if self._config.stop else self._decode())]),
            finish_reason=self.finish_reason or "length",
            usage=Usage(input_tokens=prompt_tokens, output_tokens=self._count, cache_read_tokens=reused),
            logprobs=self._logprobs() if self._config.logprobs is not None else None,
            logprobs_complete=self._scores_complete,
        )

    def _decode(self) -> str:
        text: str = self._tokenizer.decode(self._tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def _read(self, token: int, logits: torch.Tensor) -> None:
        """Follow the text: how far it reaches with this token, and whether a stop sequence is now in it."""
        self._text = self._decode()
        if self._config.logprobs is not None:
            # The first half of a character reads as a replacement mark until its second half is there.
            self._scores.append((len(self._text.rstrip("\ufffd")), self._score(token, logits)))
        cuts = [at for stop in self._config.stop if (at := self._text.find(stop)) >= 0]
        if cuts:
            self.finish_reason = "stop"
            self._text = self._text[: min(cuts)]
            self._scores = [(end, score) for end, score in self._scores if end <= min(cuts)]
            self._scores_complete = bool(self._scores) and self._scores[-1][0] == min(cuts)

    def _score(self, token: int, logits: torch.Tensor) -> TokenLogprob:
        """Log-probabilities under the model itself: before temperature, top_k and top_p."""
        scores = logits.float().log_softmax(-1)
        top = scores.topk(min(self._config.logprobs or 0, len(scores)))
        ranked = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        return TokenLogprob(
            token="",
            logprob=float(scores[token]),
            token_id=token,
            top=tuple(TopLogprob(token=self._tokenizer.decode([i]), logprob=value, token_id=i) for i, value in ranked),
        )

    def _logprobs(self) -> tuple[TokenLogprob, ...]:
        """The scores, each with what its token added to the text; joined, that is the text scored."""
        ends = [end for end, _ in self._scores]
        if ends and self._scores_complete:
            ends[-1] = len(self._text)
        starts = [0, *ends]
        return tuple(
            replace(score, token=self._text[start:end])
            for (_, score), start, end in zip(self._scores, starts, ends, strict=False)
        )

    def _sample(self, logits: torch.Tensor) -> int:
        scores = logits.float().cpu() / float(self._config.temperature or 1)
        if self._config.top_k:
            scores[scores < scores.topk(min(self._config.top_k, len(scores))).values[-1]] = -torch.inf
        probabilities = scores.softmax(-1)
        if self._config.top_p is not None and self._config.top_p < 1:
            ranked, order = probabilities.sort(descending=True)
            beyond = ranked.cumsum(-1) - ranked >= self._config.top_p
            beyond[0] = False
            probabilities[order[beyond]] = 0
        return int(torch.multinomial(probabilities, 1, generator=self._random))


def eos_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The tokens that end a turn: the tokenizer's, and one or several from the generation settings."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured]
    return frozenset(i for i in [*ids, tokenizer.eos_token_id] if i is not None)
