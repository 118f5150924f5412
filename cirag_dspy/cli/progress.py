"""How far a long job is, on stderr: a bar on a terminal, a line every half minute in a log."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERVAL = 30.0  # seconds from one line to the next


class Lines:
    """Lines about a job for where there is no terminal: the first after half a minute, a last one if there was any.

    Args:
        total: Items in all, if known.
        unit: What an item is called.
        clock: Seconds; any starting point.
        write: Called with each line.
    """

    def __init__(
        self,
        total: int | None,
        unit: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[str], None] | None = None,
    ) -> None:
        self.total, self.done, self.unit = total, 0, unit
        self._clock, self._write = clock, write or _to_stderr
        self._started = self._written = clock()
        self._any = False

    def move(self, done: int | None = None, known: int | None = None) -> None:
        """Go on by one item, or to a number of them (of a total)."""
        self.total = known or self.total
        self.done = self.done + 1 if done is None else done
        self.tick()

    def tick(self) -> None:
        """Write a line if it is time."""
        if self._clock() - self._written >= INTERVAL:
            self._line()

    def close(self) -> None:
        """Write the last line, if there was any before."""
        if self._any:
            self._line()

    def _line(self) -> None:
        now = self._clock()
        self._written, self._any = now, True
        seconds = now - self._started
        of = f" of {self.total}" if self.total else ""
        rate = self.done / seconds if seconds else 0.0
        pace = f"{rate:.1f} a second" if rate >= 1 else f"{rate * 60:.1f} a minute"
        left = ""
        if self.total and 0 < self.done < self.total:
            left = f", about {_span((self.total - self.done) / rate)} left"
        self._write(f"{self.unit}s: {self.done}{of} in {_span(seconds)}, {pace}{left}")


@contextmanager
def progress(total: int | None, unit: str, quiet: bool) -> Iterator[Callable[..., None]]:
    """Show how far a job is: a bar where stderr is a terminal, else a line every half minute; nothing if quiet.

    Yields a function that moves it on by one, or, given the number of items done (and the total), to there.
    """
    if quiet:
        yield lambda done=None, known=None: None
    elif sys.stderr.isatty():
        with _bar(total, unit) as move:
            yield move
    else:
        lines, over = Lines(total, unit), threading.Event()
        ticking = threading.Thread(target=_tick, args=(lines, over), name="cirag-progress", daemon=True)
        ticking.start()  # a line comes, too, while nothing moves
        try:
            yield lines.move
        finally:
            over.set()
            lines.close()


@contextmanager
def _bar(total: int | None, unit: str) -> Iterator[Callable[..., None]]:
    from tqdm import tqdm

    with tqdm(total=total, unit=unit, file=sys.stderr, dynamic_ncols=True) as bar:

        def move(done: int | None = None, known: int | None = None) -> None:
            bar.total = known or bar.total
            bar.update(1 if done is None else done - bar.n)

        yield move


def _tick(lines: Lines, over: threading.Event) -> None:
    while not over.wait(INTERVAL):
        lines.tick()


def _span(seconds: float) -> str:
    """Minutes and seconds, with hours where there are any: 1:05, 1:00:05."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _to_stderr(line: str) -> None:
    import typer

    typer.echo(line, err=True)
