"""The one place where work is spread, over threads or a cluster: blocks in, results out in the order of the blocks."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np

from longtail.engine.portable import Portable, current_engine, inheriting
from longtail.engine.progress import progress_bar
from longtail.engine.signals import held_signals
from longtail.engine.stopping import StopFlag as StopFlag
from longtail.engine.stopping import is_stopping, stop_flag
from longtail.errors import Interrupted, ParameterError

Block = TypeVar("Block")
Result = TypeVar("Result")

_most: int | None = None  # threads of this process


def limit_threads(most: int | None) -> None:
    """Let this process use so many threads at most, whatever it is asked for: a worker has the cores it was given."""
    global _most
    _most = most


def thread_count(threads: int | None) -> int:
    """Number of threads to use: the given one, or every core this process may run on.

    Examples
    --------
    >>> thread_count(3)
    3
    """
    if threads is None:
        if _most is not None:
            return _most
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(threads, bool) or not isinstance(threads, int | np.integer) or threads < 1:
        raise ParameterError("threads", threads, "must be a whole number of at least 1, or None for all cores")
    return min(int(threads), _most or int(threads))


def run_blocks(
    work: Callable[[Block, StopFlag], Result],
    blocks: Sequence[Block],
    *,
    threads: int | None = None,
    description: str = "working",
    unit: str = "blocks",
    size: Callable[[Block], int] | None = None,
    done: int = 0,
) -> Generator[Result]:
    """Run ``work(block, stop)`` for every block and yield the results in the order of the blocks.

    A result must depend on its block alone, so that the thread count never changes it. ``stop`` is an array of one
    byte that turns 1 when the user presses Ctrl-C, or when another thread asks for a stop (see `Stopping`): long
    kernels look at it and return early.

    Parameters
    ----------
    work : callable
        Called as ``work(block, stop)``; releases the interpreter lock where it takes long. A `Portable` goes to the
        engine that is current, if there is one.
    blocks : sequence
        What to work on; at most two blocks a thread are in flight, so results don't pile up.
    threads : int, optional
        Number of threads, all cores by default.
    description, unit : str
        For the progress bar.
    size : callable, optional
        Steps of the progress bar that a block is worth, 1 by default.
    done : int
        Steps that an earlier run had done, for the progress bar and the sentence about a stop.

    Raises
    ------
    Interrupted
        After Ctrl-C, with the number of blocks that were finished.

    Examples
    --------
    >>> list(run_blocks(lambda block, stop: block * block, [1, 2, 3], threads=2))
    [1, 4, 9]
    """
    count, engine = thread_count(threads), current_engine() if isinstance(work, Portable) else None
    steps = [size(block) if size else 1 for block in blocks]
    total = done + sum(steps)
    with progress_bar(description, total, unit, done) as advance:

        def finished(index: int) -> None:
            nonlocal done
            done += steps[index]
            advance(steps[index])

        if engine is not None and isinstance(work, Portable):
            results = engine.run(work, blocks, finished)
        else:
            results = _on_threads(work, blocks, count, finished)
        try:
            yield from results
        except KeyboardInterrupt:
            raise _interrupted(description, done, total, unit) from None
        finally:
            results.close()


def _on_threads(
    work: Callable[[Block, StopFlag], Result], blocks: Sequence[Block], count: int, finished: Callable[[int], None]
) -> Generator[Result]:
    with stop_flag() as stop:
        yield from _in_threads(inheriting(work), blocks, count, finished, stop)


def _in_threads(
    work: Callable[[Block, StopFlag], Result],
    blocks: Sequence[Block],
    count: int,
    finished: Callable[[int], None],
    stop: StopFlag,
) -> Generator[Result]:
    engine = current_engine()
    pool = ThreadPoolExecutor(count, thread_name_prefix="longtail")
    # A queue: concurrent.futures.wait can leave its locks held when Ctrl-C comes at the wrong moment.
    finished_blocks: SimpleQueue[tuple[int, Future[Result]]] = SimpleQueue()
    done: dict[int, Result] = {}
    submitted = running = next_out = 0
    try:
        while next_out < len(blocks):
            with held_signals():  # a stop while a thread is being started would leave it waited for, for ever
                while submitted < len(blocks) and running + len(done) < 2 * count:
                    future = pool.submit(work, blocks[submitted], stop)
                    future.add_done_callback(partial(_announce, finished_blocks, submitted))
                    submitted += 1
                    running += 1
            index, future = finished_blocks.get()
            running -= 1
            done[index] = future.result()
            if is_stopping():  # a kernel may have returned early
                raise KeyboardInterrupt
            finished(index)
            while next_out in done:
                result = done.pop(next_out)
                next_out += 1
                yield result
    except KeyboardInterrupt:
        if engine is not None:
            engine.interrupt()  # what the threads wait for
        raise
    finally:
        stop[0] = 1
        pool.shutdown(wait=True, cancel_futures=True)


def in_chunks(
    work: Callable[[int, int], None], n: int, at_once: int, threads: int | None, description: str = "working"
) -> None:
    """Call ``work(first, last)`` for n rows, at most `at_once` of them at a time; a few rows take no thread.

    How rows are cut depends on their number alone, never on the threads.

    Examples
    --------
    >>> parts = []
    >>> in_chunks(lambda first, last: parts.append((first, last)), 100, 64, threads=1)
    >>> parts
    [(0, 64), (64, 100)]
    """
    if n == 0:
        return
    at_once = min(at_once, max(64, -(-n // 4)))
    if n <= at_once:
        work(0, n)
        return

    def chunk(first: int, stop: StopFlag) -> None:
        work(first, min(first + at_once, n))

    for _ in run_blocks(chunk, range(0, n, at_once), threads=threads, description=description, unit="chunks"):
        pass


def _announce(finished_blocks: SimpleQueue[Any], index: int, future: Future[Any]) -> None:
    finished_blocks.put((index, future))


def _interrupted(description: str, finished: int, total: int, unit: str) -> Interrupted:
    return Interrupted(f"Stopped while {description}: {finished:,} of {total:,} {unit} were done.")


class Crew:
    """Threads for many short rounds of work, which stay until they are let go.

    Parameters
    ----------
    threads : int, optional

    Examples
    --------
    >>> crew = Crew(2)
    >>> crew.each(lambda first, last: last - first, 10, 4)
    [4, 4, 2]
    >>> crew.close()
    """

    def __init__(self, threads: int | None = None) -> None:
        count = thread_count(threads)
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="longtail") if count > 1 else None

    def each(self, work: Callable[[int, int], Result], n: int, at_once: int) -> list[Result]:
        """Call ``work(first, last)`` for n things, `at_once` at a time, and give the results in order."""
        return self.all([partial(work, first, min(first + at_once, n)) for first in range(0, n, at_once)])

    def all(self, tasks: Sequence[Callable[[], Result]]) -> list[Result]:
        """Do some tasks and give their results in order."""
        if is_stopping():
            raise KeyboardInterrupt
        if self._pool is None or len(tasks) < 2:
            return [task() for task in tasks]
        futures = [self._pool.submit(task) for task in tasks]
        return [future.result() for future in futures]

    def close(self) -> None:
        """Let the threads go, after what they are at."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
