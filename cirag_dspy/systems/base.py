"""What every system is beside its method: a module that knows its own settings and says what it is at."""

from __future__ import annotations

import inspect
from typing import Any

from cirag_dspy.modules.base import Module
from cirag_dspy.modules.extract import Extract


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

    def settings(self) -> dict[str, Any]:
        """The settings that build this very system again, over whatever index, as they are now."""
        names = [name for name in inspect.signature(type(self).__init__).parameters if name not in ("self", "index")]
        values = {name: getattr(self, name) for name in names}
        return {name: value.calls if isinstance(value, Extract) else value for name, value in values.items()}
