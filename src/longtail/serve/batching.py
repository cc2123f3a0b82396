"""Dynamic batching: rows of several requests are predicted together under load.

A request never waits for others: a free thread starts with what is queued. While all threads are busy, rows queue up,
and the next free thread takes a batch of rows with the same parameters. So batches grow with the load, and a single
request isn't delayed. Large requests are split over several batches, in turns with other requests.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from longtail.serve.problems import ProblemDetails, busy

Predict = Callable[[Sequence[Any]], list[bytes]]


@dataclass(eq=False, slots=True)
class _Prediction:
    """Rows of one request, and their results so far."""

    rows: Sequence[Any]
    predict: Predict
    future: asyncio.Future[list[bytes]]
    found: list[bytes]
    taken: int = 0
    done: int = 0


_Slice = tuple[_Prediction, int, int]


class Batcher:
    """A bounded queue of rows, predicted in batches by a thread pool.

    Parameters
    ----------
    threads : int
    batch_rows : int
        Maximum rows per batch.
    queued_rows : int
        Maximum rows in the queue.
    observe : function, optional
        Called with the key of a batch, its rows and its seconds.
    """

    def __init__(
        self,
        *,
        threads: int,
        batch_rows: int,
        queued_rows: int,
        observe: Callable[[Hashable, int, float], None] | None = None,
    ) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="predict")
        self._free = threads
        self._batch_rows = batch_rows
        self._most = queued_rows
        self._observe = observe
        self._waiting: OrderedDict[Hashable, deque[_Prediction]] = OrderedDict()
        self.queued = 0

    async def predict(self, key: Hashable, rows: Sequence[Any], predict: Predict, deadline: float) -> list[bytes]:
        """Predict rows, in batches with others of the same key; return one result per row.

        Requests with the same key can be predicted together. `predict` returns a result for each of some rows and is
        called in a thread; `deadline` is in seconds.

        Raises
        ------
        ProblemDetails
            "busy" if the queue is full, "deadline" if the prediction takes too long.
        """
        if self.queued and self.queued + len(rows) > self._most:
            raise busy(f"{self.queued:,} rows are queued, of at most {self._most:,}: try again later.")
        loop = asyncio.get_running_loop()
        job = _Prediction(rows, predict, loop.create_future(), [b""] * len(rows))
        self._waiting.setdefault(key, deque()).append(job)
        self.queued += len(rows)
        self._dispatch(loop)
        late = loop.call_later(max(deadline, 0.0), self._give_up, job)
        try:
            return await job.future
        finally:
            late.cancel()

    def close(self) -> None:
        """Shut down without waiting for running predictions."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _give_up(self, job: _Prediction) -> None:
        if not job.future.done():
            job.future.set_exception(
                ProblemDetails("deadline", "The prediction took too long: send fewer rows, or try again later.")
            )

    def _dispatch(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._free and self._waiting:
            key, batch = self._take()
            if batch:
                self._free -= 1
                self._pool.submit(self._run, loop, key, batch)

    def _take(self) -> tuple[Hashable, list[_Slice]]:
        """Return a batch of the key that has waited longest: a slice of each of its requests, in order."""
        key, jobs = self._waiting.popitem(last=False)
        batch: list[_Slice] = []
        room = self._batch_rows
        unfinished: list[_Prediction] = []
        while jobs and room:
            job = jobs.popleft()
            left = len(job.rows) - job.taken
            if job.future.done():  # past its deadline
                self.queued -= left
                continue
            size = min(left, room)
            batch.append((job, job.taken, job.taken + size))
            job.taken += size
            room -= size
            self.queued -= size
            if size < left:
                unfinished.append(job)
        jobs.extend(unfinished)
        if jobs:
            self._waiting[key] = jobs
        return key, batch

    def _run(self, loop: asyncio.AbstractEventLoop, key: Hashable, batch: list[_Slice]) -> None:
        """Predict a batch, in a thread; if that fails, each request separately, so that only a faulty one fails."""
        begin = time.perf_counter()
        outcomes: list[list[bytes] | BaseException]
        try:
            rows = [row for job, first, last in batch for row in job.rows[first:last]]
            found = batch[0][0].predict(rows)
            outcomes, at = [], 0
            for _, first, last in batch:
                outcomes.append(found[at : at + last - first])
                at += last - first
        except BaseException as error:
            outcomes = [error] if len(batch) == 1 else [_alone(*one) for one in batch]
        seconds = time.perf_counter() - begin
        loop.call_soon_threadsafe(self._finish, loop, key, batch, outcomes, seconds)

    def _finish(
        self,
        loop: asyncio.AbstractEventLoop,
        key: Hashable,
        batch: list[_Slice],
        outcomes: list[list[bytes] | BaseException],
        seconds: float,
    ) -> None:
        self._free += 1
        self._dispatch(loop)
        for (job, first, last), outcome in zip(batch, outcomes, strict=True):
            if job.future.done():
                continue
            if isinstance(outcome, BaseException):
                job.future.set_exception(outcome)
                continue
            job.found[first:last] = outcome
            job.done += last - first
            if job.done == len(job.rows):
                job.future.set_result(job.found)
        if self._observe is not None:
            self._observe(key, sum(last - first for _, first, last in batch), seconds)


def _alone(job: _Prediction, first: int, last: int) -> list[bytes] | BaseException:
    try:
        return job.predict(job.rows[first:last])
    except BaseException as error:
        return error


class WorkerThread:
    """A thread for slower requests, such as explanations, so that they never delay predictions.

    At most `waiting` requests are queued, each for `deadline` seconds.
    """

    def __init__(self, *, waiting: int, deadline: float, name: str = "questions") -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._most = waiting
        self._deadline = deadline
        self._waiting = 0

    async def run(self, question: Callable[..., Any], *arguments: Any, end: float | None = None) -> Any:
        """Call a function in the thread, with a deadline of `end` on the monotonic clock if it is given.

        Raises
        ------
        ProblemDetails
            "busy" if too many are queued, "deadline" if it takes too long.
        """
        if self._waiting >= self._most:
            raise busy(f"{self._waiting:,} explanations and label requests are queued, the maximum: try again later.")
        loop = asyncio.get_running_loop()
        self._waiting += 1
        future = self._pool.submit(question, *arguments)
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._finish))
        seconds = self._deadline if end is None else max(0.0, end - time.monotonic())
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise ProblemDetails("deadline", "The response took too long: request less, or try again later.") from None

    def close(self) -> None:
        """Shut down without waiting for the running call."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _finish(self) -> None:
        self._waiting -= 1
