"""A stop that one thread asks of others: blocks, thread pools and steps."""

import threading
import time

import pytest

from longtail.config import config_context
from longtail.errors import Interrupted
from longtail.runtime.pool import ThreadPool, run_blocks
from longtail.runtime.signals import Stopping, held_signals, is_stopping, stop_flag, stoppable_by
from longtail.runtime.task import inheriting


def blocks(begun):
    def nested(block, stop):
        return list(run_blocks(wait, range(2), n_jobs=2, description="waiting"))

    def wait(block, stop):
        begun.set()
        deadline = time.monotonic() + 60
        while not stop[0] and time.monotonic() < deadline:
            time.sleep(0.005)
        return "too early"

    return list(run_blocks(nested, range(2), n_jobs=2, description="waiting"))


def rounds(begun):
    with config_context(n_jobs=2):
        pool = ThreadPool()
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            pool.each(lambda first, last: time.sleep(0.001), 4, 2)
            begun.set()
    finally:
        pool.close()


def steps(begun):
    deadline = time.monotonic() + 60
    with held_signals() as signals:
        while time.monotonic() < deadline:
            begun.set()
            time.sleep(0.001)
            if signals.came:
                signals.deliver()


@pytest.mark.parametrize("work", [blocks, rounds, steps])
def test_a_stop_reaches_what_another_thread_does(work):
    stopping, begun, raised = Stopping(), threading.Event(), []

    def run():
        try:
            work(begun)
        except KeyboardInterrupt as error:
            raised.append(error)

    with stoppable_by(stopping):
        thread = threading.Thread(target=inheriting(run))
    thread.start()
    assert begun.wait(30)
    assert not raised
    stopping.ask()
    thread.join(20)
    assert len(raised) == 1
    if work is blocks:
        assert isinstance(raised[0], Interrupted)
        assert str(raised[0]) == "Stopped while waiting: 0 of 2 blocks were done."
    assert not is_stopping()
    assert list(run_blocks(lambda block, stop: block, range(3))) == [0, 1, 2], "blocks outside still run"


def test_what_begins_after_the_stop_sees_it():
    stopping = Stopping()
    stopping.ask()
    with stoppable_by(stopping), stop_flag() as stop:
        assert stop[0] == 1
    with stop_flag() as stop:
        assert stop[0] == 0
