"""What every system is beside its method: a module that knows its own settings and says what it is at."""

from __future__ import annotations

import inspect
from typing import Any

import dspy

from cirag_dspy.modules.base import Module
from cirag_dspy.modules.extract import Extract
from cirag_dspy.modules.streaming import check_listeners, tell


class Of:
    """A setting that a part of the system holds: read and changed there, under its name in the constructor.

    Args:
        part: The attribute that is the part.
        name: The part's attribute.
    """

    def __init__(self, part: str, name: str) -> None:
        self.part = part
        self.name = name

    def __get__(self, system: Any, owner: type | None = None) -> Any:
        return self if system is None else getattr(getattr(system, self.part), self.name)

    def __set__(self, system: Any, value: Any) -> None:
        setattr(getattr(system, self.part), self.name, value)


class System(Module):
    """A module that answers ``forward(question)`` over an index.

    Every setting of its constructor can be read, and changed, under the name that it has there.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As ``dspy.Module``; a caller who streams is told the answer.

        Raises:
            RunError: A listener can't read the replies.
        """
        check_listeners()
        return _told(super().__call__(*args, **kwargs))

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        check_listeners()
        return _told(super()._run(*args, **kwargs))

    def settings(self) -> dict[str, Any]:
        """The settings that build this very system again, over whatever index, as they are now."""
        names = [name for name in inspect.signature(type(self).__init__).parameters if name not in ("self", "index")]
        values = {name: getattr(self, name) for name in names}
        return {name: value.calls if isinstance(value, Extract) else value for name, value in values.items()}


def _told(prediction: Any) -> Any:
    if isinstance(prediction, dspy.Prediction):  # optimizers replace ``forward``
        tell("answer", answer=str(prediction.get("answer") or ""), level=str(prediction.get("level") or ""))
    return prediction
