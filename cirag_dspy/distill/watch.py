"""What DSPy's optimizers do not say of the programs they run, noted by callbacks: errors, calls, unreadable replies."""

from __future__ import annotations

from collections import Counter
from typing import Any

import dspy
from dspy.utils.callback import BaseCallback
from dspy.utils.exceptions import AdapterParseError

UNREADABLE = "unreadable"


class Watch(BaseCallback):
    """Counts the runs of a program that raised, which DSPy scores 0, and notes which predictors were called.

    Copies of the program count as the program: DSPy makes one for every candidate.

    Args:
        program: The program.
    """

    def __init__(self, program: dspy.Module) -> None:
        self.errors: Counter[str] = Counter()
        self.called: set[str] = set()
        self._kind = type(program)
        # DSPy gives every predictor a random mark of its own, which its copies share.
        self._names: dict[str, list[str]] = {}
        for name, predictor in program.named_predictors():
            self._names.setdefault(predictor.stage, []).append(name)
        self._running: set[str] = set()

    def clear(self) -> None:
        """Forget what was seen."""
        self.errors.clear()
        self.called.clear()

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """DSPy calls this before every call of a module."""
        if type(instance) is self._kind:
            self._running.add(call_id)
        if isinstance(instance, dspy.Predict):
            self.called.update(self._names.get(instance.stage, ()))

    def on_module_end(self, call_id: str, outputs: Any | None, exception: BaseException | None = None) -> None:
        """DSPy calls this after it."""
        if call_id in self._running:
            self._running.discard(call_id)
            if isinstance(exception, Exception):
                self.errors[type(exception).__name__] += 1


class KeepUnreadable(BaseCallback):
    """Puts a call whose reply could not be read into DSPy's trace: ``UNREADABLE`` is its only output, the reply's text.

    Our modules survive such replies, so an optimizer that learns from traces would never see what most needs learning.
    """

    def __init__(self) -> None:
        self._open: dict[str, tuple[Any, dict[str, Any]]] = {}

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """DSPy calls this before every call of a module."""
        if isinstance(instance, dspy.Predict):
            given = inputs.get("kwargs", {})
            known = {name: given[name] for name in instance.signature.input_fields if name in given}
            self._open[call_id] = (instance, known)

    def on_module_end(self, call_id: str, outputs: Any | None, exception: BaseException | None = None) -> None:
        """DSPy calls this after it."""
        call = self._open.pop(call_id, None)
        if call is not None and isinstance(exception, AdapterParseError) and dspy.settings.trace is not None:
            reply = dspy.Prediction(**{UNREADABLE: str(exception.lm_response or "")})
            dspy.settings.trace.append((*call, reply))


def unwatched() -> list[Any]:
    """The callbacks of DSPy's settings without a ``Watch``: for runs that are no candidate's."""
    return [callback for callback in dspy.settings.get("callbacks") or [] if not isinstance(callback, Watch)]
