"""The command line: one file a command; this one only wires them. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import typer

from cirag_dspy.cli.ablate import ablate
from cirag_dspy.cli.align import align
from cirag_dspy.cli.ask import ask
from cirag_dspy.cli.compile import compile_
from cirag_dspy.cli.evaluate import evaluate
from cirag_dspy.cli.export import export
from cirag_dspy.cli.finetune import finetune
from cirag_dspy.cli.index import index
from cirag_dspy.cli.traces import traces
from cirag_dspy.errors import CiragError

app = typer.Typer(
    name="cirag-dspy",
    help="Answer multi-hop questions over your own corpus, cheaply and with citations.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line."""
    app()


def _guarded(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose errors are one line on stderr and an exit code: 2 asked for wrongly, 130 interrupted."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except CiragError as error:
            _fail(str(error), 2)
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
            if not _is_lm_error(error):
                raise
            _fail(f"the LM can't be used: {' '.join(str(error).split())[:400]}", 2)

    return run


def _is_lm_error(error: Exception) -> bool:
    if "dspy" not in sys.modules:
        return False
    from dspy.utils.exceptions import LMError

    return isinstance(error, LMError)


def _fail(message: str, code: int) -> None:
    typer.echo(f"error: {message}", err=True)
    raise SystemExit(code)


app.command("index")(_guarded(index))
app.command("ask")(_guarded(ask))
app.command("eval")(_guarded(evaluate))
app.command("ablate")(_guarded(ablate))
app.command("compile")(_guarded(compile_))
app.command("traces")(_guarded(traces))
app.command("export")(_guarded(export))
app.command("finetune")(_guarded(finetune))
app.command("align")(_guarded(align))
