import time

import numpy as np
import pytest

from longtail.config import config_context, parse_memory
from longtail.errors import ParameterError
from longtail.runtime.memory import (
    MemoryWatch,
    affordable_threads,
    check_memory,
    memory_in_use,
    peak_memory,
    resident_memory,
    watched_command,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), (1000, 1000), ("2kB", 2000), ("1.5 MB", 1_500_000), ("3g", 3 * 10**9), ("0.5TB", 5 * 10**11)],
)
def test_amounts(text, size):
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "much", "-5MB", "5 XB", 0, True, "0GB", "1e9"])
def test_nonsense_is_refused(text):
    with pytest.raises(ParameterError, match="memory_limit"):
        parse_memory(text)


def test_a_watch_sees_what_was_held_in_between():
    before = resident_memory()
    with MemoryWatch() as watch:
        held = np.ones(200_000_000, np.uint8)  # much more than a system may take back of other pages meanwhile
        deadline = time.monotonic() + 10
        while watch.peak <= before + 30_000_000 and time.monotonic() < deadline:  # a busy machine looks less often
            time.sleep(0.005)
        del held
    assert watch.peak > before + 30_000_000
    assert peak_memory() >= watch.peak * 0.9


def test_freed_memory_does_not_count_as_in_use():
    blocks = [np.ones(25_000, np.float32) for _ in range(1000)]
    last = blocks.pop()  # keeps the heap from shrinking by itself
    del blocks
    before = resident_memory()
    assert memory_in_use() < before - 50_000_000
    assert last.all()


@pytest.mark.parametrize(
    "begin", [lambda: affordable_threads(1000, "a block"), lambda: check_memory(1000, "it", "rows")]
)
def test_a_limit_exceeded_before_training_is_refused_once(begin):
    with watched_command() as watch:
        watch.peak = 10**12
        refusal = r"before training.* took 1,000 GB; raise it to at least 1100020MB"
        with config_context(memory_limit="900GB"):
            with pytest.raises(ParameterError, match=refusal):
                begin()
            begin()  # what a level of a tree leaves behind is no reason to throw the next away
        with (
            config_context(memory_limit="1MB"),
            pytest.raises(ParameterError, match=r"leaves no room.* at least 1100020MB"),
        ):
            begin()
    with config_context(memory_limit="900GB"):
        begin()
