"""A model in this process, as DSPy's LM layer wants it: an lm15 engine that answers many callers at once.

Not responsible for the response cache, retries, several answers per request or history: those are dspy.LM's.
"""

from __future__ import annotations

import asyncio
import hashlib
import queue
import threading
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any

import torch
from dspy.lm15 import ConfigurationError, ContextLengthError, Request, Response, response_to_events
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from cirag_dspy.content import same_content
from cirag_dspy.errors import ModelError
from cirag_dspy.lms.chat import ChatFormat, check_config
from cirag_dspy.lms.decode import Decoder, Row
from cirag_dspy.lms.generation import Generation, eos_ids
from cirag_dspy.lms.weights import MARK

MAX_TOKENS = 512
_POLL_SECONDS = 0.5  # waiting in slices lets Ctrl-C through, and notices a worker that is gone


class _Job:
    """A request on its way: its row, its answer so far, and the future its caller waits for."""

    def __init__(self, row: Row, generation: Generation, model: str) -> None:
        self.row = row
        self.generation = generation
        self.model = model
        self.future: Future[Response] = Future()
        self.abandoned = False

    def take(self, logits: torch.Tensor) -> bool:
        """Add a token; True once the answer is complete and delivered."""
        self.row.next_token = self.generation.add(logits)
        if self.generation.finish_reason is None:
            return False
        self.future.set_result(
            self.generation.response(self.model, prompt_tokens=len(self.row.prompt), reused=self.row.reused)
        )
        return True


class LocalEngine:
    """Answers lm15 requests with a transformers model, from any number of threads.

    One worker thread runs the model. Requests join and leave between decoding steps; a greedy answer is the same,
    token for token, whoever else is being answered. When `queue_size` requests wait, further callers wait too.

    Args:
        model: A decoder-only model; the engine takes it over (its attention implementation is replaced).
        tokenizer: Its tokenizer, with a chat template.
        source: What `load_engine` was given, so that a saved program can find the model again.
        content: The fingerprint of the weights, as it marks an LM's name.
        max_batch: Requests answered at a time.
        chunk: Prompt tokens per forward pass, and the unit in which repeated prompt prefixes are reused.
        prefix_bytes: What reusable prefixes may occupy.
        queue_size: Requests that may wait.

    Raises:
        ModelError: The tokenizer has no chat template, or the model is of a kind this engine cannot run.
    """

    supported_params = ("temperature", "max_tokens", "top_p", "top_k", "stop", "seed", "logprobs", "top_logprobs")

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        source: dict[str, Any] | None = None,
        content: str | None = None,
        max_batch: int = 8,
        chunk: int = 128,
        prefix_bytes: int = 512 * 2**20,
        queue_size: int = 64,
    ) -> None:
        if not tokenizer.chat_template:
            raise ModelError(f"{model.name_or_path or 'the model'} has no chat template; use its instruct version")
        self.tokenizer = tokenizer
        self.context = int(getattr(model.config.get_text_config(), "max_position_embeddings", None) or 2**31)
        self.source = source
        self.content = content
        self._others: dict[str, LocalEngine] = {}
        self._chat = ChatFormat(tokenizer)
        self._decoder = Decoder(model, max_batch=max_batch, chunk=chunk, prefix_bytes=prefix_bytes)
        self._eos = eos_ids(model, tokenizer)
        self._samples: Counter[bytes] = Counter()
        self._jobs: queue.Queue[_Job] = queue.Queue(queue_size)
        self._lock = threading.Lock()
        self._worker: threading.Thread | None = None
        self._closed = threading.Event()

    @property
    def model(self) -> PreTrainedModel:
        """The model; its weights may be read, but only the worker thread runs it."""
        return self._decoder.model

    def complete(self, request: Request) -> Response:
        """Answer one request; blocks until the answer is there.

        Raises:
            ContextLengthError: The prompt alone exceeds the model's context.
            UnsupportedFeatureError: Tools, structured output, or anything but text was asked for.
            ConfigurationError: The engine is closed, or the model asked for cannot be had.
        """
        engine = self.engine_for(request.model)
        if engine is not self:
            return engine.complete(request)
        job = self.prepare(request)
        try:
            while not self.enqueue(job, timeout=_POLL_SECONDS):
                pass
            while True:
                try:
                    return job.future.result(_POLL_SECONDS)
                except FutureTimeoutError:
                    self._ensure_worker()
        finally:
            job.abandoned = True

    def stream(self, request: Request) -> Iterator[Any]:
        """The whole answer as a stream of one delta."""
        return iter(response_to_events(self.complete(request)))

    def engine_for(self, model: str) -> LocalEngine:
        """The engine of a model name: this one, unless the name is marked with other content.

        DSPy gives a trained LM its new name and leaves it the engine of the LM that was trained.

        Raises:
            ConfigurationError: The model cannot be had.
        """
        mark = MARK.search(model)
        if mark is None or same_content(mark[1], self.content):
            return self
        engine = self._others.get(model)
        if engine is None or engine.closed:
            from cirag_dspy.lms import local_engine

            options = {name: (self.source or {}).get(name) for name in ("dtype", "device")}
            try:
                engine = self._others[model] = local_engine(model, **options, max_batch=self._decoder.max_batch)[1]
            except ModelError as error:
                raise ConfigurationError(str(error), provider="local") from error
        return engine

    def prepare(self, request: Request) -> _Job:
        """Build the prompt and check the request."""
        check_config(request)
        config = request.config
        prompt = self._chat.encode(request)
        room = self.context - len(prompt)
        if room < 1:
            raise ContextLengthError(
                f"the prompt has {len(prompt)} tokens, and the model's context is {self.context}", provider="local"
            )
        limit = min(config.max_tokens or MAX_TOKENS, room)
        seed = config.seed if config.seed is not None else self._seed(prompt) if config.temperature else 0
        generation = Generation(self.tokenizer, config, limit=limit, eos=self._eos, seed=seed)
        return _Job(Row(prompt, len(prompt) + min(limit, 64)), generation, request.model)

    def enqueue(self, job: _Job, timeout: float) -> bool:
        """Hand a job to the worker; False if the queue stayed full for `timeout` seconds."""
        self._ensure_worker()
        try:
            self._jobs.put(job, block=timeout > 0, timeout=timeout)
        except queue.Full:
            return False
        if self._closed.is_set():
            self._drain()  # the worker may have emptied the queue just before this job came in
        return True

    def close(self) -> None:
        """End the worker after the step it is in; whoever still waits gets an error. Safe to call twice."""
        with self._lock:
            self._closed.set()
            worker = self._worker
        if worker is not None and worker is not threading.current_thread():
            worker.join(timeout=30)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed.is_set()

    def __deepcopy__(self, memo: dict[int, Any]) -> LocalEngine:
        """Itself: copies of a program share the weights."""
        return self

    def dump_state(self) -> dict[str, Any]:
        """What `load_state` needs to find the model again; holds no weights."""
        if self.source is None:
            raise TypeError("this engine was made from objects, not by load_lm: save the program without its LM")
        return dict(self.source)

    @classmethod
    def load_state(cls, state: dict[str, Any]) -> LocalEngine:
        """The engine of a saved program."""
        from cirag_dspy.lms.loading import load_engine

        return load_engine(**state)

    def _seed(self, prompt: list[int]) -> int:
        """The k-th sample of a prompt has the same random numbers in every run, and other ones than the k-1 before."""
        digest = hashlib.blake2b(array("l", prompt).tobytes(), digest_size=8).digest()
        with self._lock:
            if len(self._samples) > 100_000:
                self._samples.clear()
            self._samples[digest] += 1
            return (int.from_bytes(digest) + self._samples[digest]) % 2**63

    def _ensure_worker(self) -> None:
        with self._lock:
            if self._closed.is_set():
                raise _closed_error()
            if self._worker is None or not self._worker.is_alive():  # first use, or after a fork
                self._worker = threading.Thread(target=self._work, name="cirag-local-engine", daemon=True)
                self._worker.start()

    def _work(self) -> None:
        running: list[_Job] = []
        while not self._closed.is_set():
            running = [job for job in running if not job.abandoned]
            self._admit(running)
            if not running:
                continue
            try:
                logits = self._decoder.step([job.row for job in running])
            except Exception as error:
                _fail(running, error)
                running = []
                continue
            running = [job for job, scores in zip(running, logits, strict=True) if not _guarded(job, scores)]
        _fail(running, _closed_error())
        self._drain()

    def _drain(self) -> None:
        with suppress(queue.Empty):
            while True:
                _fail([self._jobs.get_nowait()], _closed_error())

    def _admit(self, running: list[_Job]) -> None:
        """Prefill waiting requests until the batch is full; with nothing to do, wait for one."""
        while len(running) < self._decoder.max_batch:
            try:
                job = self._jobs.get(block=not running, timeout=_POLL_SECONDS)
            except queue.Empty:
                return
            if job.abandoned or not job.future.set_running_or_notify_cancel():
                continue
            try:
                logits = self._decoder.prefill(job.row)
            except Exception as error:
                _fail([job], error)
                continue
            if not _guarded(job, logits):
                running.append(job)


def _guarded(job: _Job, logits: torch.Tensor) -> bool:
    """`job.take`, where an error is the end of that job only."""
    try:
        return job.take(logits)
    except Exception as error:
        _fail([job], error)
        return True


def _fail(jobs: list[_Job], error: Exception) -> None:
    for job in jobs:
        with suppress(InvalidStateError):  # its caller has gone
            job.future.set_exception(error)


def _closed_error() -> ConfigurationError:
    return ConfigurationError("this local engine is closed", provider="local")


class AsyncLocalEngine:
    """The same engine for `acall`: shares the worker, and holds no thread while it waits."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine

    async def complete(self, request: Request) -> Response:
        """Answer one request; a cancelled caller's answer is given up."""
        engine = await asyncio.to_thread(self.engine.engine_for, request.model)
        job = await asyncio.to_thread(engine.prepare, request)
        waiting = asyncio.wrap_future(job.future)
        try:
            while not engine.enqueue(job, timeout=0):
                await asyncio.sleep(0.01)
            return await waiting
        finally:
            job.abandoned = True

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        """The whole answer as a stream of one delta."""
        for event in response_to_events(await self.complete(request)):
            yield event

    async def aclose(self) -> None:
        """Nothing to do: the engine is shared, and closed by who made it."""

    def __deepcopy__(self, memo: dict[int, Any]) -> AsyncLocalEngine:
        return self

    def dump_state(self) -> dict[str, Any]:
        """As the engine's."""
        return self.engine.dump_state()

    @classmethod
    def load_state(cls, state: dict[str, Any]) -> AsyncLocalEngine:
        """The engine of a saved program."""
        return cls(LocalEngine.load_state(state))
