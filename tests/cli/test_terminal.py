"""Any text on any terminal; `--json` stays JSON; what every tool's user types."""

from __future__ import annotations

import io
import json
import sys

import pytest
from typer.testing import CliRunner

import cirag_dspy.errors
from cirag_dspy.cli import app, common
from cirag_dspy.cli.command import any_text, guarded
from cirag_dspy.plain import plain

TEXTS = ["Łódź", "北京 is 京", "naïve – “quoted”", "😀", "half \ud83d of it", "caf\udce9.txt", "हिन्दी", "plain"]


def terminal(monkeypatch, encoding):
    """stdout and stderr as a terminal of that encoding has them."""
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding=encoding) for name in ("stdout", "stderr")}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)

    def shown(name="stdout"):
        streams[name].flush()
        return streams[name].buffer.getvalue().decode(encoding, "replace")

    return shown


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "cp437", "koi8-r", "shift_jis", "utf-8"])
@pytest.mark.parametrize("text", TEXTS)
def test_any_text_on_any_terminal(encoding, text, monkeypatch):
    shown = terminal(monkeypatch, encoding)
    any_text()
    common.print_json({"answer": text, "é": [text]})
    assert json.loads(shown()) == {"answer": plain(text), "é": [plain(text)]}
    print(text)
    common.say(text)
    assert shown().splitlines()[-1] in (text, text.encode(encoding, "replace").decode(encoding))


def test_letters_are_replaced_and_the_rest_stays(monkeypatch):
    shown = terminal(monkeypatch, "cp1252")
    any_text()
    print("Łódź")
    assert shown() == "?ód?\n"


def test_an_error_of_any_letters(monkeypatch):
    shown = terminal(monkeypatch, "ascii")

    def fails():
        raise cirag_dspy.errors.DataError("no file Łódź\nhere")

    with pytest.raises(SystemExit) as ended:
        guarded(fails)()
    assert ended.value.code == 2
    assert shown("stderr").startswith("error: no file ") and shown("stderr").endswith(" here\n")


def test_a_fault_of_ours_is_a_line_too(monkeypatch):
    def fails():
        raise KeyError("x")

    monkeypatch.delenv("CIRAG_DSPY_TRACEBACK", raising=False)
    shown = terminal(monkeypatch, "utf-8")
    with pytest.raises(SystemExit) as ended:
        guarded(fails)()
    assert ended.value.code == 1
    assert (
        shown("stderr")
        == "error: unexpected, a fault of cirag-dspy: KeyError: 'x'; CIRAG_DSPY_TRACEBACK=1 shows where\n"
    )
    monkeypatch.setenv("CIRAG_DSPY_TRACEBACK", "1")
    with pytest.raises(KeyError):
        guarded(fails)()


@pytest.mark.parametrize("arguments", [["-h"], ["ask", "-h"], ["align", "-h"], ["--help"]])
def test_short_help(arguments):
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0 and "Usage: cirag-dspy" in done.stdout


def test_version():
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == 0 and done.stdout.startswith("cirag-dspy 0.")
