"""The command line: one file a command; this one only wires them. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import os
import sys

import typer

from cirag_dspy.cli.ask import ask
from cirag_dspy.cli.evaluate import evaluate
from cirag_dspy.cli.index import index
from cirag_dspy.errors import CiragError

app = typer.Typer(
    name="cirag-dspy",
    help="Answer multi-hop questions over your own corpus, cheaply and with citations.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("index")(index)
app.command("ask")(ask)
app.command("eval")(evaluate)


def main() -> None:
    """Run the command line; errors become one line on stderr and an exit code (see ``design.md``)."""
    try:
        app(standalone_mode=True)
    except CiragError as error:
        _fail(str(error), 2)
    except KeyboardInterrupt:
        _fail("interrupted; what was finished is saved, run the same command again to go on", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except Exception as error:
        if not _is_lm_error(error):
            raise
        _fail(f"the LM can't be used: {' '.join(str(error).split())[:400]}", 2)


def _is_lm_error(error: Exception) -> bool:
    if "dspy" not in sys.modules:
        return False
    from dspy.utils.exceptions import LMError

    return isinstance(error, LMError)


def _fail(message: str, code: int) -> None:
    typer.echo(f"error: {message}", err=True)
    raise SystemExit(code)
