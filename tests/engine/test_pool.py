import os
import signal
import threading
import time

import pytest

from longtail.engine.pool import run_blocks, thread_count
from longtail.errors import Interrupted, ParameterError


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_the_order_of_the_blocks(threads):
    def work(block, stop):
        time.sleep(0.001 * (7 - block % 7))
        return block * 10

    assert list(run_blocks(work, range(30), threads=threads)) == [block * 10 for block in range(30)]


def test_few_results_wait_for_a_slow_reader():
    started = []

    def work(block, stop):
        started.append(block)
        return block

    results = run_blocks(work, range(100), threads=2)
    next(results)
    time.sleep(0.1)
    assert len(started) <= 6
    results.close()


def test_an_error_in_a_block_reaches_the_caller():
    def work(block, stop):
        if block == 3:
            raise ValueError("block three")
        return block

    with pytest.raises(ValueError, match="block three"):
        list(run_blocks(work, range(10), threads=2))


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_stops_the_work_and_says_what_was_done(threads):
    def work(block, stop):
        if block < 2:
            return block
        deadline = time.monotonic() + 30
        while not stop[0] and time.monotonic() < deadline:
            time.sleep(0.01)
        return block

    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    started = time.monotonic()
    with pytest.raises(Interrupted, match="Stopped while counting: 20 of 80 sheep were done"):
        list(run_blocks(work, range(8), threads=threads, description="counting", unit="sheep", size=lambda block: 10))
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2"])
def test_thread_counts_that_make_no_sense(threads):
    with pytest.raises(ParameterError, match="threads must be"):
        thread_count(threads)
    assert thread_count(None) >= 1
