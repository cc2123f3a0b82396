"""What only a separate process can show: signals, pipes and the console script."""

import os
import signal
import subprocess
import sys
import time

import pytest

from longtail import Model, Popularity

START = "from longtail.cli import main; main()"
SLOW = """
import time
from longtail.runtime.pool import run_blocks
from longtail.learners import Popularity

def slow(self, X, Y):
    def work(block, stop):
        open("started", "w").close()
        while not stop[0]:
            time.sleep(0.05)

    list(run_blocks(work, range(10), n_jobs=2, description="training", unit="blocks of labels"))

Popularity._fit = slow
"""


@pytest.fixture
def train_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.txt").write_text("2 1 2\n0 0:1\n1 0:2\n")
    return tmp_path


def start(code, *arguments, **options):
    command = [sys.executable, "-c", code, *arguments]
    environment = {**os.environ, "LONGTAIL_DEBUG": "0"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **options
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_leaves_nothing(train_file, number, code):
    process = start(SLOW + START, "train", "popularity", "train.txt", "--out", "model")
    deadline = time.monotonic() + 60
    while not (train_file / "started").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    before = time.monotonic()
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - before < 20
    assert process.returncode == code
    assert out == ""
    assert "Traceback" not in err
    if number == signal.SIGINT:
        assert err.splitlines()[-1].startswith("Stopped while training: 0 of 10 blocks of labels were done.")
        assert err.endswith("No model was written.\n")
    assert {path.name for path in train_file.iterdir()} == {"train.txt", "started"}


def test_a_closed_pipe_is_silent(train_file):
    Model(Popularity().fit([[1], [2]], [[1, 0], [0, 1]])).save("model")
    with open("many.txt", "w") as file:
        file.write("100000 1 2\n" + "0 0:1\n" * 100_000)
    predict = start(START, "predict", "model", "many.txt")
    assert predict.stdout.readline() == "0:0.5 1:0.5\n"
    predict.stdout.close()
    err = predict.stderr.read()
    assert predict.wait() == 0
    assert "rror" not in err
    assert "Traceback" not in err


def test_the_package_is_the_program():
    """`python -m longtail` and the console script say the same, under the same name."""
    commands = [sys.executable, "-m", "longtail"], [sys.executable, "-c", START]
    shown = [subprocess.run([*command, "update", "--help"], capture_output=True, text=True) for command in commands]
    assert [done.returncode for done in shown] == [0, 0]
    assert "Usage: longtail update" in shown[0].stdout
    assert shown[0].stdout == shown[1].stdout


@pytest.mark.parametrize("arguments", [("--help",), ("data", "--help")])
def test_help_that_nobody_reads_is_no_error(arguments):
    process = start(START, *arguments)
    process.stdout.close()
    assert process.wait(timeout=30) == 0
    assert "Traceback" not in process.stderr.read()
