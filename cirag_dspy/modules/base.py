"""What every module of this package can do beside its work: be awaited, and be saved and loaded safely."""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy

from cirag_dspy.errors import RunError, StateError
from cirag_dspy.modules import state as states

_abandoned: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar("abandoned", default=None)


class Abandoned(Exception):
    """Ends the work of a question that nobody waits for any more."""


class Module(dspy.Module):
    """A ``dspy.Module`` that can be awaited, and whose files are written whole and read with care.

    ``save``, ``load``, ``dump_state`` and ``load_state`` are DSPy's, with the same files. In addition demonstrations
    are made plain; a file is replaced only by a complete one; no key of an LM is written; and a state of another
    program is refused in one line, the module being what it was before.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As ``dspy.Module``; nothing is begun once an awaiting caller has gone."""
        abandoned = _abandoned.get()
        if abandoned is not None and abandoned.is_set():
            raise Abandoned
        return super().__call__(*args, **kwargs)

    async def aforward(self, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward`` in a thread, with the settings of the caller's context.

        As many run at a time as ``dspy.settings.async_max_workers`` says. When the caller is cancelled, the call in
        flight goes on to its end, and no module is begun after it.
        """
        abandoned = threading.Event()
        token = _abandoned.set(abandoned)
        try:
            return await dspy.asyncify(self._run)(*args, **kwargs)
        finally:
            abandoned.set()
            _abandoned.reset(token)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        # By way of object: DSPy warns whoever takes ``forward`` from a module.
        return object.__getattribute__(self, "forward")(*args, **kwargs)

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """The state of each predictor; with ``json_mode`` in plain values.

        Raises:
            StateError: A demonstration holds a value that has no plain form.
        """
        if json_mode:
            return states.dump(self)
        return {name: predictor.dump_state(json_mode=False) for name, predictor in states.predictors(self).items()}

    def load_state(self, state: dict[str, Any], *, allow_unsafe_lm_state: bool = False) -> None:
        """Take over a state as ``dump_state`` gives it.

        Raises:
            StateError: It is that of another program, or damaged; the module is unchanged.
        """
        try:
            states.load(self, state, allow_unsafe_lm_state=allow_unsafe_lm_state)
        except StateError as error:
            raise StateError(f"the state {error}") from None

    def save(self, path: str | Path, save_program: bool = False, modules_to_serialize: Any = None) -> None:
        """Save the state to a ``.json`` file; what else ``dspy.Module.save`` can do, it does.

        Raises:
            StateError: A demonstration holds a value that has no plain form; an older file stays as it was.
            RunError: The file can't be written.
        """
        path = Path(path)
        if save_program or path.suffix != ".json":
            super().save(path, save_program=save_program, modules_to_serialize=modules_to_serialize)
            return
        content = states.to_file(self.dump_state())
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            part.write_bytes(content)
            part.replace(path)
        except OSError as error:
            raise RunError(f"{path} can't be written: {error.strerror or error}") from None
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)

    def load(self, path: str | Path, allow_pickle: bool = False, allow_unsafe_lm_state: bool = False) -> None:
        """Load a state that ``save`` wrote; arguments as of ``dspy.Module.load``.

        Raises:
            StateError: The file is missing, damaged, or the state of another program; the module is unchanged.
        """
        path = Path(path)
        try:
            if path.suffix != ".pkl":
                state = states.read(path)
                states.load(self, state, allow_unsafe_lm_state=allow_unsafe_lm_state)
                states.warn_of_versions(path, state)
            elif allow_pickle:
                _load_pickle(super().load, path, allow_unsafe_lm_state)
            else:
                raise StateError("is a pickle, which can run anything: save as .json, or allow_pickle=True")
        except StateError as error:
            raise StateError(f"{path} {error}") from None


def _load_pickle(load: Callable[..., None], path: Path, allow_unsafe_lm_state: bool) -> None:
    try:
        load(path, allow_pickle=True, allow_unsafe_lm_state=allow_unsafe_lm_state)
    except StateError as error:
        raise StateError(f"can't be loaded: {error}") from None
    except Exception as error:  # a pickle can raise anything
        raise StateError(f"can't be read: {type(error).__name__}: {' '.join(str(error).split())}") from None
