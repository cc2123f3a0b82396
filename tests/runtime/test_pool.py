import os
import signal
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.config import config_context, thread_count
from longtail.errors import Interrupted, ParameterError
from longtail.runtime.pool import in_chunks, run_blocks


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_the_order_of_the_blocks(threads):
    def work(block, stop):
        time.sleep(0.001 * (7 - block % 7))
        return block * 10

    assert list(run_blocks(work, range(30), n_jobs=threads)) == [block * 10 for block in range(30)]


def test_few_results_wait_for_a_slow_reader():
    started = []

    def work(block, stop):
        started.append(block)
        return block

    results = run_blocks(work, range(100), n_jobs=2)
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
        list(run_blocks(work, range(10), n_jobs=2))


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_stops_the_work_and_says_what_was_done(threads):
    def work(block, stop):
        if block < 2:
            return block
        if block == 2:  # the first two may not have been counted yet
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        deadline = time.monotonic() + 60
        while not stop[0] and time.monotonic() < deadline:
            time.sleep(0.01)
        return block

    started = time.monotonic()
    with pytest.raises(Interrupted, match="Stopped while counting: 20 of 80 sheep were done"):
        list(run_blocks(work, range(8), n_jobs=threads, description="counting", unit="sheep", size=lambda block: 10))
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("threads", [0, 1.5, True, "2"])
def test_thread_counts_that_make_no_sense(threads):
    with pytest.raises(ParameterError, match="n_jobs must be"):
        thread_count(threads)
    assert thread_count(None) == thread_count(-1) >= 1


def chunks_of(n, chunk_size, threads):
    parts = []
    with config_context(n_jobs=threads):
        in_chunks(lambda first, last: parts.append((first, last)), n, chunk_size)
    return sorted(parts)


@settings(max_examples=40)
@given(n=st.integers(0, 3000), chunk_size=st.integers(1, 700))
def test_chunks_cover_every_row_once_however_many_threads(n, chunk_size):
    parts = chunks_of(n, chunk_size, 1)
    assert [row for part in parts for row in range(*part)] == list(range(n))
    assert all(0 < last - first <= chunk_size for first, last in parts)
    assert len({last - first for first, last in parts[:-1]}) <= 1
    assert parts == chunks_of(n, chunk_size, 3)


def test_a_batch_is_cut_in_four_so_that_all_threads_have_work():
    assert chunks_of(1000, 10_000, 2) == [(0, 250), (250, 500), (500, 750), (750, 1000)]
    assert chunks_of(100, 10_000, 2) == [(0, 64), (64, 100)]
    assert chunks_of(64, 10_000, 2) == [(0, 64)]


def test_a_few_rows_take_no_thread():
    def thread_of(n, chunk_size):
        seen = set()
        in_chunks(lambda first, last: seen.add(threading.get_ident()), n, chunk_size)
        return seen

    assert thread_of(64, 512) == {threading.get_ident()}
    assert threading.get_ident() not in thread_of(65, 512)
    assert thread_of(0, 512) == set()


def test_an_error_in_a_chunk_reaches_the_caller():
    def work(first, last):
        if first == 128:
            raise ValueError("row 128")

    with pytest.raises(ValueError, match="row 128"):
        in_chunks(work, 300, 64)
