"""Parallel work on threads or a cluster: blocks in, results out in the order of the blocks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from longtail.config import thread_count
from longtail.errors import Interrupted
from longtail.runtime.progress import progress_bar
from longtail.runtime.signals import StopFlag as StopFlag
from longtail.runtime.signals import held_signals, is_stopping, stop_flag
from longtail.runtime.task import RemoteTask, current_engine, inheriting

Block = TypeVar("Block")
Result = TypeVar("Result")
Memory = TypeVar("Memory")


def run_blocks(
    work: Callable[[Block, StopFlag], Result],
    blocks: Sequence[Block],
    *,
    n_jobs: int | None = None,
    description: str = "working",
    unit: str = "blocks",
    size: Callable[[Block], int] | None = None,
    done: int = 0,
) -> Generator[Result]:
    """Run ``work(block, stop)`` for every block and yield the results in the order of the blocks.

    A result must depend on its block alone, so that the number of threads never changes it. ``stop`` is an array of one
    byte that turns 1 when the user presses Ctrl-C, or when another thread asks for a stop (see `Stopping`): long
    kernels check it and return early.

    Parameters
    ----------
    work : callable
        Called as ``work(block, stop)``; long work should release the interpreter lock. A `RemoteTask` goes to the
        current engine, if there is one.
    blocks : sequence
        At most two blocks per thread are in flight, so that results don't pile up.
    n_jobs : int, optional
        Threads, where the memory limit allows fewer than the settings; None as `longtail.config_context` says.
    description, unit : str
        For the progress bar.
    size : callable, optional
        Steps of the progress bar per block, 1 by default.
    done : int
        Steps done by an earlier run, for the progress bar and the message of `Interrupted`.

    Raises
    ------
    Interrupted
        After Ctrl-C, with the number of finished steps.

    Examples
    --------
    >>> list(run_blocks(lambda block, stop: block * block, [1, 2, 3]))
    [1, 4, 9]
    """
    count, engine = thread_count(n_jobs), current_engine() if isinstance(work, RemoteTask) else None
    steps = [size(block) if size else 1 for block in blocks]
    total = done + sum(steps)
    with progress_bar(description, total, unit, done) as advance:

        def finished(index: int) -> None:
            nonlocal done
            done += steps[index]
            advance(steps[index])

        if engine is not None and isinstance(work, RemoteTask):
            results = engine.run(work, blocks, finished)
        else:
            results = _on_threads(work, blocks, count, finished)
        try:
            yield from results
        except KeyboardInterrupt:
            raise Interrupted(f"Stopped while {description}: {done:,} of {total:,} {unit} were done.") from None
        finally:
            results.close()


def _on_threads(
    work: Callable[[Block, StopFlag], Result], blocks: Sequence[Block], count: int, finished: Callable[[int], None]
) -> Generator[Result]:
    engine, work = current_engine(), inheriting(work)
    pool = ThreadPoolExecutor(count, thread_name_prefix="longtail")
    # A queue, because concurrent.futures.wait can leave its locks held when Ctrl-C comes at the wrong moment.
    finished_blocks: SimpleQueue[tuple[int, Future[Result]]] = SimpleQueue()
    done: dict[int, Result] = {}
    submitted = running = next_out = 0

    def announce(index: int, future: Future[Result]) -> None:
        finished_blocks.put((index, future))

    with stop_flag() as stop:
        try:
            while next_out < len(blocks):
                with held_signals():  # a stop during the start of a thread would block the shutdown for ever
                    while submitted < len(blocks) and running + len(done) < 2 * count:
                        future = pool.submit(work, blocks[submitted], stop)
                        future.add_done_callback(partial(announce, submitted))
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
                engine.interrupt()  # the threads may be waiting for it
            raise
        finally:
            stop[0] = 1
            pool.shutdown(wait=True, cancel_futures=True)


def blocks_of(n: int, size: int) -> list[range]:
    """Split n items into blocks of `size`, the last of which may be smaller.

    Examples
    --------
    >>> blocks_of(5, 2)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    return [range(n)[first : first + size] for first in range(0, n, size)]


def in_chunks(work: Callable[[int, int], None], n: int, chunk_size: int, description: str = "working") -> None:
    """Call ``work(first, last)`` for chunks of n rows, at most `chunk_size` rows each; few rows need no thread.

    The chunks depend on the number of rows alone, never on the number of threads.

    Examples
    --------
    >>> parts = []
    >>> in_chunks(lambda first, last: parts.append((first, last)), 70, 64)
    >>> parts
    [(0, 64), (64, 70)]
    """
    if n == 0:
        return
    chunk_size = min(chunk_size, max(64, -(-n // 4)))
    if n <= chunk_size:
        work(0, n)
        return

    def chunk(first: int, stop: StopFlag) -> None:
        work(first, min(first + chunk_size, n))

    for _ in run_blocks(chunk, range(0, n, chunk_size), description=description, unit="chunks"):
        pass


class ThreadPool:
    """Threads that are kept for many short rounds of work, as many as the settings say.

    Examples
    --------
    >>> pool = ThreadPool()
    >>> pool.each(lambda first, last: last - first, 10, 4)
    [4, 4, 2]
    >>> pool.close()
    """

    def __init__(self) -> None:
        count = thread_count()
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="longtail") if count > 1 else None

    def each(self, work: Callable[[int, int], Result], n: int, chunk_size: int) -> list[Result]:
        """Call ``work(first, last)`` for chunks of `chunk_size` of n items, and return the results in order."""
        return self.all([partial(work, first, min(first + chunk_size, n)) for first in range(0, n, chunk_size)])

    def all(self, tasks: Sequence[Callable[[], Result]]) -> list[Result]:
        """Run some tasks and return their results in order."""
        if is_stopping():
            raise KeyboardInterrupt
        if self._pool is None or len(tasks) < 2:
            return [task() for task in tasks]
        futures = [self._pool.submit(task) for task in tasks]
        return [future.result() for future in futures]

    def close(self) -> None:
        """Shut down the threads once they have finished their tasks."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


class SpareMemory(Generic[Memory]):
    """Working memory that blocks pass on to each other; a copy sent to another process starts empty.

    Examples
    --------
    >>> spare = SpareMemory()
    >>> with spare.borrowed(list) as memory:
    ...     memory.append(1)
    >>> with spare.borrowed(list) as memory:
    ...     memory
    [1]
    """

    def __init__(self) -> None:
        self._spare: SimpleQueue[Memory] = SimpleQueue()

    @contextmanager
    def borrowed(self, allocate: Callable[[], Memory]) -> Iterator[Memory]:
        """Lend memory to a block, new if none is spare; after an error it is not used again."""
        try:
            memory = self._spare.get_nowait()
        except Empty:
            memory = allocate()
        yield memory
        self._spare.put(memory)

    def clear(self) -> None:
        """Free the memory."""
        self._spare = SimpleQueue()

    def __reduce__(self) -> tuple[Any, ...]:
        return SpareMemory, ()
