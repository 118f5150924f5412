"""How a command is run: paths checked as they are given, any text on any terminal, errors of one line."""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand

from cirag_dspy.advice import lm_advice, without_secrets
from cirag_dspy.errors import CiragError, RunError
from cirag_dspy.files import disk_problem, path_problem, printable, require_folder

TRACEBACK = "CIRAG_DSPY_TRACEBACK"
_WRITTEN = ("out", "work", "write_official")  # options that name a folder to write to


class Command(TyperCommand):
    """A command that refuses empty paths and impossible ones, and expands ``~`` where no shell has."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line; see the class."""
        any_text()
        given = list(args)
        if odd := next((arg for arg in given if "\0" in arg), None):
            fail(f"{printable(odd)}: a path can't hold a NUL byte")
        rest = super().parse_args(ctx, args)
        for name, value in ctx.params.items():
            try:
                ctx.params[name] = _checked(value, given)
            except CiragError as error:
                fail(f"{name.replace('_', '-')}: {error}")
        return rest


def _checked(value: Any, given: list[str]) -> Any:
    """A value of the command line; paths as they can be used.

    Raises:
        RunError: A path is none.
    """
    if isinstance(value, list | tuple):
        return type(value)(_checked(one, given) for one in value)
    if not isinstance(value, Path):
        return value
    if value == Path() and not any(text and Path(text) == value for text in (a.rpartition("=")[2] for a in given)):
        raise RunError("the path is empty; name a file or a folder")  # an empty text is Path("."), the present folder
    try:
        return value.expanduser()
    except RuntimeError:
        raise RunError(f"{value}: there is no such home folder; ./{value} is a name that begins with ~") from None


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose errors are one line on stderr and an exit code.

    2 is asked for wrongly, or not possible here; 130 interrupted; 1 everything else.
    """

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        any_text()
        try:
            for name in _WRITTEN:
                if kwargs.get(name) is not None:
                    require_folder(kwargs[name])
            command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except CiragError as error:
            fail(str(error))
        except KeyboardInterrupt:
            typer.echo(
                "error: interrupted; what was finished is saved, the same command goes on (eval, ablate: --resume)",
                err=True,
            )
            sys.stdout.flush()
            os._exit(130)  # a normal exit would wait for LM calls in flight
        except BrokenPipeError:
            # The reader of our output went away; nobody is left to tell.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(1) from None
        except Exception as error:
            _fail_with(error)

    return run


def _fail_with(error: Exception) -> NoReturn:
    """End with the line that an error of a library is to a user."""
    if full := disk_problem(error):
        place = getattr(error, "filename", None) or "a file"
        fail(f"{place} could not be written: {full}; make room, then the same command goes on")
    if problem := path_problem(error):
        fail(problem)
    if isinstance(error, sqlite3.Error):
        fail(f"the index's database: {error}")
    if _is_lm_error(error):
        fail(f"the LM can't be used: {lm_advice(error)}")
    if os.environ.get(TRACEBACK):
        raise error
    told = " ".join(f"{type(error).__name__}: {error}".split())[:400]
    fail(f"unexpected, a fault of cirag-dspy: {told}; {TRACEBACK}=1 shows where", 1)


def _is_lm_error(error: Exception) -> bool:
    if "dspy" not in sys.modules:
        return False
    from dspy.utils.exceptions import LMError

    return isinstance(error, LMError)


def fail(message: str, code: int = 2) -> NoReturn:
    """End the process with a line on stderr."""
    typer.echo(f"error: {without_secrets(' '.join(message.split()))}", err=True)
    raise SystemExit(code)


def any_text() -> None:
    """Let stdout and stderr take any text: what their encoding can't hold is replaced, and never an error.

    An answer that was paid for must reach a terminal of cp1252, too.
    """
    for stream, errors in ((sys.stdout, "replace"), (sys.stderr, "backslashreplace")):
        if change := getattr(stream, "reconfigure", None):
            with contextlib.suppress(ValueError, OSError):
                change(errors=errors)


def can_print(text: str) -> bool:
    """Whether stdout can hold a text as it is."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
