"""Work in threads that see the caller's DSPy settings, results as they come, errors and Ctrl-C at once."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TypeVar

import dspy

T = TypeVar("T")
R = TypeVar("R")


def each_in_threads(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[tuple[T, R]]:
    """Yield (item, result) as they finish, ``threads`` at a time; items are drawn only as threads come free.

    ``dspy.Parallel`` is not used: it prints to stdout, gives each thread its own usage tracker, and runs slow items
    twice. After an exception no item is begun any more, those in flight are still delivered, and then it is raised.
    Ctrl-C is raised at once; the interpreter waits for the items in flight when it exits.
    """
    source = iter(items)
    if threads <= 1:
        for item in source:
            yield item, function(item)
        return
    pool = ThreadPoolExecutor(max_workers=threads)
    running: dict[Future[R], T] = {}
    failed: Future[R] | None = None

    def work(item: T) -> R:
        if dspy.settings.send_stream is None:
            return function(item)
        with dspy.context(send_stream=None):  # only the thread that DSPy started can write to a caller's stream
            return function(item)

    def top_up() -> None:
        for item in islice(source, threads - len(running)):
            running[pool.submit(contextvars.copy_context().run, work, item)] = item

    try:
        top_up()
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                item = running.pop(future)
                if future.exception() is None:
                    yield item, future.result()
                else:
                    failed = failed or future
            if failed is None:
                top_up()
        if failed is not None:
            failed.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
