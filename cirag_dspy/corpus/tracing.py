"""A small encoder, traced for one text at a time: a query takes two thirds of the time.

A hop encodes one query, and that is most of what it costs beside the LM. Only for the CPU, and only where the traced
model gives the vectors of the model itself.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# Frozen weights are held a second time, which is not worth it for large models.
MAX_PARAMETERS = 150_000_000
_PROBES = ("Who?", "Which river flows past the town where the director of the older of the two films was born in 1911?")


def trace(model: SentenceTransformer) -> Callable[[str], np.ndarray] | None:
    """A function from a text, prompt included, to its vector ``[d]``; ``None`` where tracing doesn't serve a model."""
    import torch

    class Whole(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = torch.nn.ModuleList(model)

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            features = {"input_ids": input_ids, "attention_mask": attention_mask}
            for part in self.parts:
                features = part(features)
            return features["sentence_embedding"]

    def tokens(text: str) -> tuple[Any, Any]:
        encoded = model.tokenizer([text], truncation=True, max_length=model.max_seq_length, return_tensors="pt")
        return encoded["input_ids"], encoded["attention_mask"]

    def encode(text: str) -> np.ndarray:
        with torch.inference_mode():
            vector: np.ndarray = frozen(*tokens(text))[0].float().numpy()
        return vector

    # Tracing looks at every attribute of the model, and transformers has something to say about some.
    log = logging.getLogger("transformers")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        if model.device.type != "cpu" or sum(weight.numel() for weight in model.parameters()) > MAX_PARAMETERS:
            return None
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frozen = torch.jit.freeze(torch.jit.trace(Whole().eval(), tokens(_PROBES[1]), strict=False))
        own = model.encode(list(_PROBES), show_progress_bar=False)
        same = all(np.allclose(encode(text), vector, atol=1e-5) for text, vector in zip(_PROBES, own, strict=True))
    except Exception:  # whatever a model's own code does under tracing: it runs as it is then
        return None
    finally:
        log.setLevel(level)
    return encode if same else None
