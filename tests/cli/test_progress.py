"""Lines about a long job in a log, by a clock of the test's own."""

from __future__ import annotations

from typer.testing import CliRunner  # noqa: F401 - typer is loaded before stderr is replaced

from cirag_dspy.cli import progress as module
from cirag_dspy.cli.common import progress
from cirag_dspy.cli.progress import Lines


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def lines(total, unit="passage"):
    clock, written = Clock(), []
    return clock, written, Lines(total, unit, clock=clock, write=written.append)


def test_the_first_line_after_half_a_minute_then_one_each():
    clock, written, told = lines(800)
    for _ in range(29):
        clock.now += 1
        told.move()
    assert written == []
    clock.now += 1
    told.move()
    assert written == ["passages: 30 of 800 in 0:30, 1.0 a second, about 12:50 left"]
    for _ in range(29):
        clock.now += 1
        told.move()
    assert len(written) == 1
    clock.now += 1
    told.tick()  # nothing moved, and a line comes all the same
    assert written[1] == "passages: 59 of 800 in 1:00, 59.0 a minute, about 12:34 left"
    told.move(800)
    told.close()
    assert written[2] == "passages: 800 of 800 in 1:00, 13.3 a second"


def test_a_short_job_says_nothing():
    clock, written, told = lines(3)
    for _ in range(3):
        clock.now += 5
        told.move()
    told.close()
    assert written == []


def test_totals_that_come_later_or_never():
    clock, written, told = lines(None, "step")
    clock.now += 3600
    told.move(7)
    clock.now += 5
    told.close()
    assert written == ["steps: 7 in 1:00:00, 0.1 a minute", "steps: 7 in 1:00:05, 0.1 a minute"]
    clock, written, told = lines(None, "step")
    clock.now += 60
    told.move(30, 60)
    assert written == ["steps: 30 of 60 in 1:00, 30.0 a minute, about 1:00 left"]


def test_nothing_done_yet():
    clock, written, told = lines(0)
    clock.now += 30
    told.tick()
    assert written == ["passages: 0 in 0:30, 0.0 a minute"]


def test_where_stderr_is_no_terminal(monkeypatch, capsys):
    clock = Clock()
    monkeypatch.setattr(module.time, "monotonic", clock)
    monkeypatch.setattr(module, "Lines", lambda total, unit: Lines(total, unit, clock=clock))
    for quiet in (False, True):
        with progress(2, "question", quiet) as move:
            clock.now += 31
            move()
            move()
        told = capsys.readouterr()
        assert told.out == ""
        expected = [
            "questions: 1 of 2 in 0:31, 1.9 a minute, about 0:31 left",
            "questions: 2 of 2 in 0:31, 3.9 a minute",
        ]
        assert told.err.splitlines() == ([] if quiet else expected)
