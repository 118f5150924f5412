"""Work in threads that see the caller's DSPy settings, results as they come, errors and Ctrl-C at once."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def each_in_threads(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[tuple[T, R]]:
    """Yield (item, result) as they finish, ``threads`` at a time; items are drawn only as threads come free.

    ``dspy.Parallel`` is not used: it prints to stdout, gives each thread its own usage tracker, and runs slow items
    twice. The first exception, Ctrl-C included, is raised at once: items not yet begun are dropped, and nobody waits
    for those in flight.
    """
    source = iter(items)
    if threads <= 1:
        for item in source:
            yield item, function(item)
        return
    pool = ThreadPoolExecutor(max_workers=threads)
    running: dict[Future[R], T] = {}

    def top_up() -> None:
        for item in islice(source, threads - len(running)):
            running[pool.submit(contextvars.copy_context().run, function, item)] = item

    try:
        top_up()
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield running.pop(future), future.result()
            top_up()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
