"""Progress without a terminal: a line from time to time, with the remaining time."""

from __future__ import annotations

import pytest

from longtail.runtime import progress
from longtail.runtime.progress import progress_bar, show_progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_line_a_minute(capsys, clock):
    with show_progress(), progress_bar("training", 1000, "rows") as advance:
        for _ in range(6):
            clock[0] += 20
            advance(50, "loss 0.5")
    assert capsys.readouterr().err.splitlines() == [
        "training: 150 of 1,000 rows, 6 min left, loss 0.5",
        "training: 300 of 1,000 rows, 5 min left, loss 0.5",
    ]


def test_what_was_done_before_says_nothing_about_the_speed(capsys, clock):
    with show_progress(), progress_bar("training", 1000, "rows", 900) as advance:
        clock[0] += 60
        advance(50)
    assert capsys.readouterr().err == "training: 950 of 1,000 rows, 60 s left\n"


def test_nothing_unless_asked_for(capsys, clock):
    with progress_bar("training", 10, "rows") as advance:
        clock[0] += 100
        advance(10)
    assert capsys.readouterr().err == ""
