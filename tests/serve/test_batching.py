"""The queue in front of the threads: immediate when idle, batched under load, fair, and with a deadline."""

import asyncio
import threading
import time

import pytest

from longtail.serve.batching import Batcher, WorkerThread
from longtail.serve.problems import ProblemDetails


class Slow:
    """A prediction that waits until it is released, and records its arguments."""

    def __init__(self, seconds=0.0):
        self.seconds = seconds
        self.batches = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, rows):
        self.batches.append(list(rows))
        self.gate.wait(10)
        time.sleep(self.seconds)
        if "bad" in rows:
            raise ValueError("bad row")
        return [f"<{row}>".encode() for row in rows]


def run(work, **settings):
    async def main():
        batcher = Batcher(**{"threads": 1, "batch_rows": 4, "queued_rows": 100, **settings})
        try:
            return await work(batcher)
        finally:
            batcher.close()

    return asyncio.run(main())


def test_a_lone_request_waits_for_nothing():
    async def work(batcher):
        return await batcher.predict("key", ["a", "b"], Slow(), 5)

    assert run(work) == [b"<a>", b"<b>"]


def test_rows_gather_while_the_thread_is_busy():
    slow = Slow()

    async def work(batcher):
        slow.gate.clear()
        asked = [asyncio.create_task(batcher.predict("key", [str(row)], slow, 5)) for row in range(7)]
        await asyncio.sleep(0.05)
        slow.gate.set()
        return await asyncio.gather(*asked)

    assert run(work) == [[f"<{row}>".encode()] for row in range(7)]
    assert slow.batches == [["0"], ["1", "2", "3", "4"], ["5", "6"]]


def test_only_like_requests_go_together():
    slow = Slow()

    async def work(batcher):
        slow.gate.clear()
        keys = "xababb"
        asked = [asyncio.create_task(batcher.predict(key, [f"{key}{at}"], slow, 5)) for at, key in enumerate(keys)]
        await asyncio.sleep(0.05)
        slow.gate.set()
        return await asyncio.gather(*asked)

    run(work)
    assert slow.batches == [["x0"], ["a1", "a3"], ["b2", "b4", "b5"]]


def test_a_large_request_takes_turns():
    slow = Slow()

    async def work(batcher):
        slow.gate.clear()
        large = asyncio.create_task(batcher.predict("key", [f"L{row}" for row in range(20)], slow, 5))
        await asyncio.sleep(0)
        small = asyncio.create_task(batcher.predict("key", ["small"], slow, 5))
        await asyncio.sleep(0.05)
        slow.gate.set()
        return await asyncio.gather(large, small)

    large, small = run(work)
    assert large == [f"<L{row}>".encode() for row in range(20)]
    assert small == [b"<small>"]
    assert any("small" in batch for batch in slow.batches[1:3])


def test_a_full_queue_refuses_at_once():
    slow = Slow()

    async def work(batcher):
        slow.gate.clear()
        asked = [asyncio.create_task(batcher.predict("key", ["a"] * 5, slow, 5)) for _ in range(2)]
        await asyncio.sleep(0.02)
        with pytest.raises(ProblemDetails) as refused:
            batcher.predict("key", ["b"] * 5, slow, 5).send(None)  # without waiting for anything
        slow.gate.set()
        await asyncio.gather(*asked)
        assert batcher.queued == 0
        return refused.value

    problem = run(work, queued_rows=10)
    assert (problem.status, problem.headers) == (429, {"Retry-After": "1"})


def test_what_is_late_is_given_up_and_not_worked_on():
    slow = Slow()

    async def work(batcher):
        slow.gate.clear()
        first = asyncio.create_task(batcher.predict("key", ["first"], slow, 5))
        await asyncio.sleep(0.02)
        with pytest.raises(ProblemDetails, match="took too long") as late:
            await batcher.predict("key", ["late"], slow, 0.05)
        assert late.value.status == 504
        slow.gate.set()
        await first
        assert await batcher.predict("key", ["after"], slow, 5) == [b"<after>"]
        assert batcher.queued == 0

    run(work)
    assert ["late"] not in slow.batches


def test_a_request_that_fails_fails_alone():
    slow = Slow()

    async def work(batcher):
        slow.gate.clear()
        asked = [asyncio.create_task(batcher.predict("key", [row], slow, 5)) for row in ("x", "good", "bad", "fine")]
        await asyncio.sleep(0.05)
        slow.gate.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    x, good, bad, fine = run(work)
    assert (x, good, fine) == ([b"<x>"], [b"<good>"], [b"<fine>"])
    assert isinstance(bad, ValueError)


def test_a_worker_thread_is_bounded_in_number_and_time():
    gate = threading.Event()

    async def main():
        lane = WorkerThread(waiting=2, deadline=0.2)
        asked = [asyncio.create_task(lane.run(gate.wait, 5)) for _ in range(2)]
        await asyncio.sleep(0.02)
        with pytest.raises(ProblemDetails) as full:
            await lane.run(int)
        assert full.value.status == 429
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [one.status for one in found] == [504, 504]
        gate.set()
        await asyncio.sleep(0.05)
        assert await lane.run(int) == 0
        lane.close()

    asyncio.run(main())
