"""Counting what a run asks of its LMs, exactly, in threads too.

DSPy's own usage tracking loses counts in threads and nested trackers, and cannot tell a cached call from a free one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dspy
from dspy.utils.callback import ACTIVE_CALL_ID, BaseCallback
from dspy.utils.usage_tracker import UsageTracker

COUNTS = ("calls", "cached", "failed", "prompt_tokens", "completion_tokens", "cut_replies", "cut_prompts")


class LMMeter(BaseCallback):
    """Counts every `dspy.LM` call made inside `context()`, in this thread and in those DSPy starts from it.

    `calls` were answered by a model, `cached` by DSPy's cache, `failed` raised: a call is one of the three. Tokens are
    those of answered and failed calls; a cached call costs none. `cut_replies` ended at `max_tokens`, `cut_prompts`
    were read in part only, as far as can be told. Meters nest, and an outer `dspy.track_usage` sees everything as well.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, bool] = {}
        self._counts: dict[str, dict[str, int]] = {}
        self._passed_for_cached: list[str] = []

    def snapshot(self) -> dict[str, Any]:
        """The counts so far, by the names of ``COUNTS``; ``by_module`` the same for each module whose predictors
        called, by its class name.
        """
        with self._lock:
            modules = {module: dict(counts) for module, counts in self._counts.items()}
        return {name: sum(counts[name] for counts in modules.values()) for name in COUNTS} | {"by_module": modules}

    @contextmanager
    def context(self) -> Iterator[LMMeter]:
        """Count what runs inside; entering again inside itself counts nothing twice."""
        callbacks = dspy.settings.get("callbacks") or []
        if any(callback is self for callback in callbacks):
            yield self
            return
        tap = _Tap(self, dspy.settings.get("usage_tracker"))
        with dspy.context(usage_tracker=tap, callbacks=[*callbacks, self]):
            yield self

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """DSPy calls this before every LM call."""
        with self._lock:
            self._open[call_id] = False

    def on_lm_end(self, call_id: str, outputs: dict[str, Any] | None, exception: BaseException | None = None) -> None:
        """DSPy calls this after every LM call; only a model's answer has reported usage by then."""
        with self._lock:
            answered = self._open.pop(call_id, False)
            if exception is None and not answered:
                self._passed_for_cached.append(_caller())
            self._count("failed" if exception is not None else "calls" if answered else "cached")

    def add_usage(self, usage: Mapping[str, Any]) -> None:
        """Add what an answer cost, as its provider reports it; `{}` where it reports nothing."""
        with self._lock:
            call_id, module = ACTIVE_CALL_ID.get(), _caller()
            if call_id in self._open:
                self._open[call_id] = True
            else:  # handed over by a nested dspy.track_usage: that call ended, and passed for a cached one
                module = self._passed_for_cached.pop() if self._passed_for_cached else module
                self._count("calls", 1, module)
                self._count("cached", -1, module)
            self._count("prompt_tokens", _number(usage, "prompt_tokens", "input_tokens"), module)
            self._count("completion_tokens", _number(usage, "completion_tokens", "output_tokens"), module)

    def on_cut_reply(self) -> None:
        """`modules.ask` reports here a reply that ended at the limit of its tokens."""
        with self._lock:
            self._count("cut_replies")

    def on_cut_prompt(self) -> None:
        """`RemoteLM` reports here a prompt that its server read in part only."""
        with self._lock:
            self._count("cut_prompts")

    def _count(self, name: str, number: int = 1, module: str | None = None) -> None:
        self._counts.setdefault(module or _caller(), dict.fromkeys(COUNTS, 0))[name] += number

    def __deepcopy__(self, memo: dict[int, Any]) -> LMMeter:
        """Itself: DSPy copies settings for its threads, and all of them count here."""
        return self


class _Tap(UsageTracker):
    """What DSPy reports usage to inside a meter's context: passes it to the meter and to the tracker around it."""

    def __init__(self, meter: LMMeter, outer: UsageTracker | None) -> None:
        super().__init__()
        self.usage_data = _ByModel(self)
        self._meter = meter
        self._outer = outer

    def add_usage(self, lm: str, usage_entry: dict[str, Any]) -> None:
        self._meter.add_usage(usage_entry)
        if self._outer is not None:
            self._outer.add_usage(lm, usage_entry)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Tap:
        return self


class _ByModel(dict):
    """`dspy.track_usage`, nested inside, hands over its entries as `usage_data[model].extend(entries)`."""

    def __init__(self, tap: _Tap) -> None:
        super().__init__()
        self._tap = tap

    def __missing__(self, model: str) -> _Entries:
        return _Entries(self._tap, model)


class _Entries:
    def __init__(self, tap: _Tap, model: str) -> None:
        self._tap = tap
        self._model = model

    def extend(self, entries: list[dict[str, Any]]) -> None:
        for entry in entries:
            self._tap.add_usage(self._model, entry)


def _caller() -> str:
    """Class name of the innermost module around the predictor that calls; of the predictor where it stands alone."""
    callers = [caller for caller in dspy.settings.get("caller_modules") or [] if isinstance(caller, dspy.Module)]
    modules = [caller for caller in callers if not isinstance(caller, dspy.Predict)] or callers
    return type(modules[-1]).__name__ if modules else "no module"


def _number(usage: Mapping[str, Any], *names: str) -> int:
    return next((int(usage[name]) for name in names if usage.get(name) is not None), 0)
