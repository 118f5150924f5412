"""A remote LM as DSPy has it, with one deadline a reply and a word when its server cuts prompts."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import threading
import time
from collections.abc import Mapping
from typing import Any

import dspy
from dspy.clients.base_lm import LM_CLASS_STATE_KEY
from dspy.clients.execution import aexecute, execute, finalize, prepare
from dspy.utils.callback import with_callbacks
from dspy.utils.exceptions import LMProviderError, is_retryable_lm_error

from cirag_dspy.text import word_count

logger = logging.getLogger(__name__)

_SHARE = 0.6  # of our lowest count: a server that read less has cut the prompt
_LEAST_COUNT = 600  # tokens: nothing is said of prompts that any server's window holds
_LEAST_WINDOW = 256  # tokens: who reports fewer doesn't count them
_LONGEST_PAUSE = 60.0


class ReplyTimeoutError(LMProviderError):
    """The reply was not whole by its deadline. Not tried again: each try would be paid for, and take as long."""

    default_code = "timeout"


class RemoteLM(dspy.LM):
    """An LM behind an address.

    ``timeout`` is the seconds that one reply may take in all, whatever trickles in meanwhile: DSPy's own is for each
    wait for a next byte. Its tries share them, pauses between tries left out, so a reply that came too late is not
    asked for again; ``num_retries`` goes for rate limits, broken connections and servers that failed. A stream has no
    deadline but DSPy's own, and neither has an LM without a ``timeout``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._windows: dict[str, int] = {}  # the most tokens read of a prompt, by model; shared by copies
        self._told: set[str] = set()

    @with_callbacks
    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """As `dspy.LM`.

        Raises:
            ReplyTimeoutError: The reply was not whole by its deadline.
        """
        call = prepare(self, prompt, messages, kwargs)
        once, deadline = self._once(), _Deadline(self._seconds(call))
        for attempt in range(self.num_retries + 1):
            try:
                result = deadline.wait(lambda: execute(once, call)) if deadline else execute(self, call)
                break
            except Exception as error:
                self._note(error)
                if not deadline or attempt == self.num_retries or not is_retryable_lm_error(error):
                    raise
                time.sleep(_pause(error, attempt))
        self._watch(call, result)
        return finalize(self, call, result)

    @with_callbacks
    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """As `__call__`; a late reply's connection is closed."""
        call = await asyncio.to_thread(prepare, self, prompt, messages, kwargs, asynchronous=True)
        once, deadline = self._once(), _Deadline(self._seconds(call))
        for attempt in range(self.num_retries + 1):
            try:
                result = await (deadline.await_(aexecute(once, call)) if deadline else aexecute(self, call))
                break
            except Exception as error:
                self._note(error)
                if not deadline or attempt == self.num_retries or not is_retryable_lm_error(error):
                    raise
                await asyncio.sleep(_pause(error, attempt))
        self._watch(call, result)
        return finalize(self, call, result)

    def dump_state(self) -> dict[str, Any]:
        """As `dspy.LM`, and as one: it can be loaded without this package."""
        return super().dump_state() | {LM_CLASS_STATE_KEY: "dspy.clients.lm.LM"}

    def _once(self) -> RemoteLM:
        """A copy without retries of DSPy's: those are ours, and never multiply."""
        once = self.__copy__()
        once.num_retries = 0
        return once

    def _seconds(self, call: Any) -> float | None:
        seconds = call.legacy.get("timeout", self.kwargs.get("timeout"))
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        return float(seconds) if is_number and dspy.settings.send_stream is None else None

    def _note(self, error: Exception) -> None:
        """Note on an error where it happened, for who tells it."""
        address = self.kwargs.get("api_base") or self.kwargs.get("base_url")
        if address and isinstance(error, dspy.LMError):
            error.address = str(address)

    def _watch(self, call: Any, result: Any) -> None:
        """Say once, and count, when the server read much less than it was sent."""
        if result.cache_hit or not (read := _prompt_tokens(result.usage or {})):
            return
        most = self._windows
        most[self.model] = max(most.get(self.model, 0), read)
        if read < _LEAST_WINDOW or read < 0.8 * most[self.model]:
            return  # a window that is full reads as much every time; less was read elsewhere: from a cache
        sent = least_tokens(call.request or call.legacy.get("messages"))
        if sent < _LEAST_COUNT or read >= _SHARE * sent:
            return
        for callback in dspy.settings.get("callbacks") or []:
            if told := getattr(callback, "on_cut_prompt", None):
                told()
        if self.model not in self._told:
            self._told.add(self.model)
            logger.warning(
                "%s reads only %s tokens of a prompt of %s or more, so the rest is lost: give its server a longer "
                "context (Ollama: num_ctx or OLLAMA_CONTEXT_LENGTH; vLLM: --max-model-len), or ask with a smaller k",
                self.model,
                read,
                sent,
            )


class _Deadline:
    """The seconds that are left for a reply, over all tries; false where there is no limit."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.left = seconds or 0.0

    def __bool__(self) -> bool:
        return self.seconds is not None

    def wait(self, work: Any) -> Any:
        """What ``work`` returns or raises, in a thread that is left to itself when the time is over."""
        done: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        context = contextvars.copy_context()

        def run() -> None:
            try:
                done.put((context.run(work), None))
            except BaseException as error:
                done.put((None, error))

        started = time.monotonic()
        threading.Thread(target=run, name="cirag-lm-call", daemon=True).start()
        try:
            result, error = done.get(timeout=max(self.left, 0.001))
        except queue.Empty:
            raise self._over() from None
        finally:
            self.left -= time.monotonic() - started
        if error is not None:
            raise self._told(error)
        return result

    async def await_(self, work: Any) -> Any:
        """The same of a coroutine, which is cancelled."""
        started = time.monotonic()
        try:
            return await asyncio.wait_for(work, max(self.left, 0.001))
        except TimeoutError:
            raise self._over() from None
        except dspy.LMError as error:
            raise self._told(error) from None
        finally:
            self.left -= time.monotonic() - started

    def _told(self, error: BaseException) -> BaseException:
        """The error, or that the time is over where DSPy's own limit for a next byte, which is as long, came first."""
        late = isinstance(error, dspy.LMTimeoutError) and self.left < 0.2 * (self.seconds or 0.0)
        return self._over() if late else error

    def _over(self) -> ReplyTimeoutError:
        return ReplyTimeoutError(f"no whole reply within {self.seconds:g} s")


def least_tokens(value: Any) -> int:
    """Fewer tokens than any tokenizer needs for the text of messages: a word is one at least, a letter of scripts
    without blanks a third.
    """
    if isinstance(value, str):
        letters = sum(char >= "\u2e80" or "\u0e00" <= char < "\u10a0" for char in value)
        return word_count(value) - (letters + 1) // 2 + letters // 3 if letters else word_count(value)
    if isinstance(value, Mapping):
        return least_tokens(value.get("content"))
    if isinstance(value, list | tuple):
        return sum(map(least_tokens, value))
    if hasattr(value, "messages"):  # a Request
        return least_tokens(value.system) + least_tokens([message.text or "" for message in value.messages])
    return least_tokens(getattr(value, "text", None)) if hasattr(value, "text") else 0


def _prompt_tokens(usage: Mapping[str, Any]) -> int:
    """All tokens of the prompt that the provider reports as read, those from its cache included."""
    names = ("prompt_tokens", "input_tokens")
    read = next((usage[name] for name in names if isinstance(usage.get(name), int)), 0)
    cached = (usage.get(name) for name in ("cache_read_input_tokens", "cache_creation_input_tokens"))
    return int(read) + sum(number for number in cached if isinstance(number, int))


def _pause(error: Exception, attempt: int) -> float:
    """Seconds before the next try: as the server asks, else twice as long each time."""
    asked = getattr(error, "retry_after", None)
    return float(asked) if isinstance(asked, int | float) else min(2.0**attempt, _LONGEST_PAUSE)
