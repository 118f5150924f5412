"""The command line: one file a command; this one only wires them. Nothing heavy is imported before a command runs."""

from __future__ import annotations

from collections.abc import Callable

import typer

from cirag_dspy.cli.ablate import ablate
from cirag_dspy.cli.align import align
from cirag_dspy.cli.ask import ask
from cirag_dspy.cli.command import Command, any_text, guarded
from cirag_dspy.cli.compile import compile_
from cirag_dspy.cli.evaluate import evaluate
from cirag_dspy.cli.export import export
from cirag_dspy.cli.finetune import finetune
from cirag_dspy.cli.index import index
from cirag_dspy.cli.sources import sources
from cirag_dspy.cli.traces import traces

HELP = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="cirag-dspy",
    help="Answer multi-hop questions over your own corpus, cheaply and with citations.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings=HELP,
)


def main() -> None:
    """Run the command line."""
    any_text()
    app(prog_name="cirag-dspy")


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"cirag-dspy {version('cirag-dspy')}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", is_eager=True, callback=_print_version, help="Print the version."),
) -> None: ...


_COMMANDS: dict[str, Callable[..., None]] = {
    "index": index,
    "sources": sources,
    "ask": ask,
    "eval": evaluate,
    "ablate": ablate,
    "compile": compile_,
    "traces": traces,
    "export": export,
    "finetune": finetune,
    "align": align,
}
for _name, _command in _COMMANDS.items():
    app.command(_name, cls=Command, context_settings=HELP)(guarded(_command))
