"""Trainings that are killed at random moments and resumed lose nothing: a few kills of the benchmark of a hundred."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "kill_at_random.py"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.skipif(not SCRIPT.exists(), reason="the benchmarks are not here")
@pytest.mark.parametrize(
    ("cases", "kills"), [("one-vs-rest,label tree", 3), ("TAug", 2), ("saving,converting", 4)], ids=str
)
def test_nothing_is_lost(cases, kills):
    command = [sys.executable, str(SCRIPT), "--kills", str(kills), "--dry", "--only", cases, "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count(f"'kills': {kills}") == cases.count(",") + 1
