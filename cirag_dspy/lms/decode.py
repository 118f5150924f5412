"""The forward passes of a local model: prefill and joint decoding, with one unpadded key/value buffer per request.

Greedy answers must not depend on who else is being answered. Three things make that hold: a request's prompt is run
alone, in chunks cut at absolute positions; running requests are decoded together in a batch of constant size, so that
matrix products keep their shape; and attention is computed row by row over exactly the keys of that row.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional as F
from transformers import AttentionInterface, PreTrainedModel

from cirag_dspy.errors import ModelError

ATTENTION = "cirag_rowwise"


class Row:
    """The running state of one request: its prompt, and keys and values per layer for the first `length` tokens.

    Args:
        prompt: Token ids, at least one.
        capacity: Tokens the buffers are first made for; they double when that is exceeded.
    """

    def __init__(self, prompt: list[int], capacity: int = 0) -> None:
        self.prompt = prompt
        self.length = 0
        self.reused = 0
        self.next_token = -1
        self._capacity = max(capacity, len(prompt))
        self._layers: dict[int, torch.Tensor] = {}

    def extend(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Append keys and values, each [heads, tokens, dim]; returns all so far, [2, heads, length + tokens, dim]."""
        end = self.length + keys.shape[1]
        buffer = self._layers.get(layer)
        if buffer is None or buffer.shape[2] < end:
            while self._capacity < end:
                self._capacity *= 2
            grown = keys.new_empty(2, keys.shape[0], self._capacity, keys.shape[2])
            if buffer is not None:
                grown[:, :, : self.length] = buffer[:, :, : self.length]
            buffer = self._layers[layer] = grown
        buffer[0, :, self.length : end] = keys
        buffer[1, :, self.length : end] = values
        return buffer[:, :, :end]

    def copy_out(self, start: int, end: int) -> list[torch.Tensor]:
        """Keys and values of tokens `start` to `end`, one tensor per layer."""
        return [self._layers[layer][:, :, start:end].clone() for layer in sorted(self._layers)]

    def copy_in(self, chunk: list[torch.Tensor]) -> None:
        """Append what `copy_out` gave."""
        for layer, pair in enumerate(chunk):
            self.extend(layer, pair[0], pair[1])
        self.length += chunk[0].shape[2]
        self.reused = self.length


class PrefixCache:
    """Keys and values of recent prompts, in chunks known by all tokens up to their end; the least recently used go.

    Not responsible for exactness: a chunk is only worth keeping if it was computed with the same boundaries.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._chunks: OrderedDict[bytes, list[torch.Tensor]] = OrderedDict()

    @staticmethod
    def key(tokens: Sequence[int]) -> bytes:
        """A digest of all tokens up to a chunk's end."""
        return hashlib.blake2b(array("l", tokens).tobytes(), digest_size=16).digest()

    def get(self, key: bytes) -> list[torch.Tensor] | None:
        """The chunk, or None."""
        chunk = self._chunks.get(key)
        if chunk is not None:
            self._chunks.move_to_end(key)
        return chunk

    def clear(self) -> None:
        """Forget everything."""
        self._chunks.clear()
        self._bytes = 0

    def put(self, key: bytes, chunk: list[torch.Tensor]) -> None:
        """Keep a chunk, and forget the oldest beyond the limit."""
        if key in self._chunks:
            return
        self._chunks[key] = chunk
        self._bytes += _size(chunk)
        while self._bytes > self._max_bytes:
            self._bytes -= _size(self._chunks.popitem(last=False)[1])


def _size(chunk: list[torch.Tensor]) -> int:
    return sum(pair.nbytes for pair in chunk)


def rowwise_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    rows: Sequence[Row] = (),
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention of each batch row over its own keys; batch rows beyond `rows` are padding and come out zero.

    Shapes as transformers passes them: query [batch, heads, tokens, dim], key and value [batch, kv heads, tokens, dim];
    returns [batch, tokens, heads, dim].
    """
    refused = [name for name in ("softcap", "s_aux", "position_bias") if kwargs.get(name) is not None]
    if refused or attention_mask is not None:
        raise NotImplementedError(f"attention with {', '.join(refused) or 'a mask'}")
    batch, heads, tokens, dim = query.shape
    kv_heads = key.shape[1]
    groups = heads // kv_heads
    out = query.new_zeros(batch, tokens, heads, value.shape[-1])
    mask = None
    for index, row in enumerate(rows):
        keys, values = row.extend(int(module.layer_idx), key[index], value[index])
        total = keys.shape[1]
        if tokens == 1 and sliding_window:
            keys, values = keys[:, -sliding_window:], values[:, -sliding_window:]
        elif tokens > 1:
            mask = torch.ones(tokens, total, dtype=torch.bool, device=query.device).tril(total - tokens)
            if sliding_window:
                mask = mask.triu(total - tokens - sliding_window + 1)
            mask = mask.repeat(groups, 1)
        # The query heads that share a key head are laid out as further queries of it, so that no key is repeated.
        grouped = query[index].reshape(kv_heads, groups * tokens, dim)
        attended = F.scaled_dot_product_attention(grouped[None], keys[None], values[None], mask, scale=scaling)
        out[index] = attended.reshape(heads, tokens, -1).transpose(0, 1)
    return out, None


AttentionInterface.register(ATTENTION, rowwise_attention)


class Decoder:
    """Runs the model for rows. One thread only.

    Args:
        model: A decoder-only model whose attention is causal (full or sliding window); its attention is replaced.
        max_batch: Rows decoded together; a step always runs this many, filled up with padding.
        chunk: Tokens per prefill call, and the unit in which prefixes are reused.
        prefix_bytes: What reusable prefixes may occupy; 0 reuses none.

    Raises:
        ModelError: The model's attention cannot be run row by row.
    """

    def __init__(
        self, model: PreTrainedModel, *, max_batch: int = 8, chunk: int = 128, prefix_bytes: int = 512 * 2**20
    ) -> None:
        self.model = model.eval()
        self.max_batch = max_batch
        self.chunk = chunk
        self._prefixes = PrefixCache(prefix_bytes)
        self._replace_attention()

    @torch.inference_mode()
    def prefill(self, row: Row) -> torch.Tensor:
        """Run the prompt, from the longest prefix still known; returns the next token's logits, shape [vocabulary]."""
        ends = range(self.chunk, len(row.prompt) + 1, self.chunk)
        keys = [self._prefixes.key(row.prompt[:end]) for end in ends]
        for end, key in zip(ends, keys, strict=True):
            known = self._prefixes.get(key)
            if known is None or end == len(row.prompt):  # the last token is always run: its logits are the answer
                break
            row.copy_in(known)
        logits = torch.empty(0)
        while row.length < len(row.prompt):
            start = row.length
            logits = self._forward([row], [row.prompt[start : start + self.chunk]])[0]
            if row.length - start == self.chunk:
                self._prefixes.put(keys[start // self.chunk], row.copy_out(start, row.length))
        return logits

    def forget_prefixes(self) -> None:
        """Start the next prompts from nothing."""
        self._prefixes.clear()

    @torch.inference_mode()
    def step(self, rows: Sequence[Row]) -> torch.Tensor:
        """Run each row's `next_token`; returns the logits of the tokens after them, shape [rows, vocabulary]."""
        padding = [[0]] * (self.max_batch - len(rows))
        return self._forward(rows, [[row.next_token] for row in rows] + padding)[: len(rows)]

    def _forward(self, rows: Sequence[Row], tokens: list[list[int]]) -> torch.Tensor:
        width = len(tokens[0])
        starts = [row.length for row in rows] + [0] * (len(tokens) - len(rows))
        device = self.model.device
        output = self.model(
            input_ids=torch.tensor(tokens, device=device),
            position_ids=torch.tensor([list(range(start, start + width)) for start in starts], device=device),
            use_cache=False,
            logits_to_keep=1,
            rows=rows,
        )
        for row in rows:
            row.length += width
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    @torch.inference_mode()
    def _replace_attention(self) -> None:
        """Switch to row-wise attention, and compare with the model's own on a few tokens."""
        name = type(self.model).__name__
        vocabulary = self.model.get_input_embeddings().num_embeddings
        tokens = [(7 * i + 3) % vocabulary for i in range(6)]
        try:
            if self.model.config._attn_implementation == ATTENTION:  # another engine had this model before
                self.model.set_attn_implementation("eager")
            own = self.model(input_ids=torch.tensor([tokens], device=self.model.device), use_cache=False).logits[0, -1]
            self.model.set_attn_implementation(ATTENTION)
            row = Row(tokens)
            self._forward([row], [tokens[:4]])
            self._forward([row], [tokens[4:5]])
            ours = self._forward([row], [tokens[5:]])[0]
        except (NotImplementedError, TypeError, KeyError, ValueError, RuntimeError) as error:
            raise ModelError(f"{name} cannot be run in this process ({error}); serve it and use its API") from error
        if F.cosine_similarity(own.float(), ours.float(), dim=0) < 0.99:
            raise ModelError(f"{name} has an attention this engine does not know; serve it and use its API")
