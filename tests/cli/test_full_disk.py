"""A disk that is full ends a command with one line, whatever library met it, and what was there before stays."""

import errno
import json
import os
import sqlite3

import pytest

from cirag_dspy.cli import command
from cirag_dspy.errors import CiragError
from cirag_dspy.files import write_json, write_lines, write_text


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "/x/runs/rows.jsonl"),
            "/x/runs/rows.jsonl could not be written",
        ),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "a file could not be written: Disk quota exceeded"),
        (sqlite3.OperationalError("database or disk is full"), "could not be written: disk is full"),
        (RuntimeError("[enforce fail] PytorchStreamWriter failed writing file data/0"), "could not be written whole"),
        (RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"), "No space left"),
    ],
)
def test_one_line_and_exit_2(error, says, capsys):
    def full():
        raise error

    with pytest.raises(SystemExit) as ended:
        command.guarded(full)()
    told = capsys.readouterr().err
    assert ended.value.code == 2 and says in told and "make room" in told and told.count("\n") == 1


@pytest.mark.parametrize(
    "write",
    [
        lambda path: write_text(path, "new"),
        lambda path: write_json(path, {"new": 1}),
        lambda path: write_lines(path, [{"new": 1}]),
    ],
)
def test_what_was_there_stays_and_nothing_is_left_over(tmp_path, monkeypatch, write):
    path = tmp_path / "kept.json"
    path.write_text(json.dumps({"old": 1}))
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)

    def full(self, *args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises((OSError, CiragError)):
        write(path)
    monkeypatch.undo()
    assert json.loads(path.read_text()) == {"old": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["kept.json"]
