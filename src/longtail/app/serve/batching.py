"""Rows of several requests predicted together: at once when there is nothing else to do, in batches under load.

A request never waits for others to come: a free thread takes what there is. While all threads are busy, rows gather,
and the next free thread takes as many that ask for the same thing as a batch may hold. So batches grow with the load
and a lone request waits for nothing. Large requests are cut, and take turns with others.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from longtail.app.serve.problems import Problem, busy

Predict = Callable[[Sequence[Any]], list[bytes]]


class _Job:
    """Rows of one request, and what was found for them so far."""

    __slots__ = ("done", "found", "future", "predict", "rows", "taken")

    def __init__(self, rows: Sequence[Any], predict: Predict, future: asyncio.Future[list[bytes]]) -> None:
        self.rows = rows
        self.predict = predict
        self.future = future
        self.taken = 0
        self.done = 0
        self.found: list[bytes] = [b""] * len(rows)


_Slice = tuple[_Job, int, int]


class Batcher:
    """A bounded queue of rows in front of a few threads.

    Parameters
    ----------
    threads : int
    batch_rows : int
        Rows a batch at most.
    queued_rows : int
        Rows that may wait.
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
        self._waiting: OrderedDict[Hashable, deque[_Job]] = OrderedDict()
        self.queued = 0

    async def predict(self, key: Hashable, rows: Sequence[Any], predict: Predict, deadline: float) -> list[bytes]:
        """Predict rows, together with others of the same key; one answer a row.

        Parameters
        ----------
        key : hashable
            Requests with the same key have interchangeable functions.
        rows : sequence
        predict : function
            From some rows to an answer for each; called in a thread.
        deadline : float
            Seconds.

        Raises
        ------
        Problem
            "busy" when the queue is full, "deadline" when it takes too long.
        """
        if self.queued and self.queued + len(rows) > self._most:
            raise busy(f"{self.queued:,} rows wait for a prediction; {self._most:,} are the most: try again later.")
        loop = asyncio.get_running_loop()
        job = _Job(rows, predict, loop.create_future())
        self._waiting.setdefault(key, deque()).append(job)
        self.queued += len(rows)
        self._dispatch(loop)
        late = loop.call_later(max(deadline, 0.0), self._give_up, job)
        try:
            return await job.future
        finally:
            late.cancel()

    def close(self) -> None:
        """Take nothing more and wait for nothing; what runs in a thread ends on its own."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _give_up(self, job: _Job) -> None:
        if not job.future.done():
            job.future.set_exception(Problem("deadline", "The prediction took too long: send fewer rows, or later."))

    def _dispatch(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._free and self._waiting:
            key, batch = self._take()
            if batch:
                self._free -= 1
                self._pool.submit(self._run, loop, key, batch)

    def _take(self) -> tuple[Hashable, list[_Slice]]:
        """Rows of the key that has waited longest, a slice of each of its requests as they came."""
        key, jobs = self._waiting.popitem(last=False)
        batch: list[_Slice] = []
        room = self._batch_rows
        unfinished: list[_Job] = []
        while jobs and room:
            job = jobs.popleft()
            left = len(job.rows) - job.taken
            if job.future.done():  # given up
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
        """In a thread: predict a batch; where it fails, each request alone, so that it fails alone."""
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


def _alone(job: _Job, first: int, last: int) -> list[bytes] | BaseException:
    try:
        return job.predict(job.rows[first:last])
    except BaseException as error:
        return error


class Lane:
    """One thread for questions that take longer, so that they never stand in the way of predictions.

    Parameters
    ----------
    waiting : int
        Questions that may wait.
    deadline : float
        Seconds.
    name : str
        Of the thread.
    """

    def __init__(self, *, waiting: int, deadline: float, name: str = "questions") -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._most = waiting
        self._deadline = deadline
        self._waiting = 0

    async def run(self, question: Callable[..., Any], *arguments: Any, end: float | None = None) -> Any:
        """Answer a question in the thread, by `end` of the monotonic clock where it is given.

        Raises
        ------
        Problem
            "busy" when too many wait, "deadline" when it takes too long.
        """
        if self._waiting >= self._most:
            raise busy(f"{self._waiting:,} questions wait for an answer, the most: try again later.")
        loop = asyncio.get_running_loop()
        self._waiting += 1
        future = self._pool.submit(question, *arguments)
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._finish))
        seconds = self._deadline if end is None else max(0.0, end - time.monotonic())
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise Problem("deadline", "The answer took too long: ask for less, or later.") from None

    def close(self) -> None:
        """Take nothing more and wait for nothing; what runs in the thread ends on its own."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _finish(self) -> None:
        self._waiting -= 1
