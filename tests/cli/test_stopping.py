"""SIGTERM: finished work is kept, the exit code is 143, and --resume ends with the same model."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

import numpy as np
import pytest

from longtail import datasets
from longtail.data import generate, save
from longtail.runtime.signals import held_signals

START = "from longtail.cli import main; main()"
CASES = {
    "dismec": ("rows.txt", "training labels"),
    "bonsai": ("rows.txt", "training level"),
    "fastxml": ("rows.txt", "growing trees"),
    "glas": ("rows.txt", "training embeddings"),
    "xml-cnn": ("texts.jsonl", "training"),
}
SETTINGS = {
    "bonsai": ["n_trees=1"],
    "fastxml": ["n_trees=60"],
    "glas": ["epochs=3", "embedding_dim=32", "hidden_layer_sizes=[64]", "batch_size=64"],
    "xml-cnn": ["epochs=3", "evals_per_epoch=1", "batch_size=16", "encoder.n_filters=8", "encoder.embedding_dim=16"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("stopping")
    save(generate(6000, 1500, 3000, features_per_row=40.0, random_state=0), place / "rows.txt")
    save(datasets.load("debian-tags", "train").take(np.arange(1200)), place / "texts.jsonl")
    return place


def command(recipe, folder, out, *more):
    settings = [part for setting in SETTINGS.get(recipe, ()) for part in ("--set", setting)]
    data = folder / CASES[recipe][0]
    return [
        *(sys.executable, "-c", START, "train", recipe, str(data), "--out", str(out), "--threads", "1"),
        *settings,
        *more,
    ]


def digests(model):
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in model.iterdir()
        if file.name != "model.json"
    }


@pytest.mark.parametrize(
    "recipe",
    [pytest.param(recipe, marks=() if recipe in ("dismec", "xml-cnn") else pytest.mark.slow) for recipe in CASES],
)
def test_a_termination_keeps_what_is_done(recipe, folder):
    if recipe in ("glas", "xml-cnn"):
        pytest.importorskip("torch")
    environment = {**os.environ, "LONGTAIL_DEBUG": "0"}
    whole, out = folder / f"{recipe}-whole", folder / recipe
    subprocess.run(command(recipe, folder, whole), check=True, capture_output=True, env=environment)
    seconds = json.loads((whole / "model.json").read_text())["model"]["training"]["dict"]["seconds"]
    unfinished = folder / f"{recipe}.unfinished"
    kept = unfinished / "0.blocks"
    for share in (0.1, 0.03, 0.01, 0.0):  # of the time of the training: sooner where the end came first
        process = subprocess.Popen(
            command(recipe, folder, out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        while process.poll() is None and not (kept.exists() and kept.stat().st_size > 100):
            time.sleep(0.002)
        time.sleep(share * seconds)
        at = time.time()
        process.send_signal(signal.SIGTERM)
        sent = time.monotonic()
        said = process.communicate(timeout=60)[1]
        assert time.monotonic() - sent < 20, "within seconds: one or two, more on a machine that is busy"
        if process.returncode != 0 and "Stopped while training. " not in said:  # nor was it being put together
            break
        for left in (out, unfinished):
            shutil.rmtree(left, ignore_errors=True)
    assert process.returncode == 143, said
    assert "Traceback" not in said
    last = said.splitlines()[-1]
    assert last.startswith(f"Stopped while {CASES[recipe][1]}")
    assert "were done. No model was written." in last
    assert not out.exists()
    assert last.endswith("run the same command with --resume to continue."), last
    if recipe in ("glas", "xml-cnn"):
        assert kept.stat().st_mtime > at - 0.01, "the state was kept when the signal came, not only after the last pass"
    subprocess.run(command(recipe, folder, out, "--resume"), check=True, capture_output=True, env=environment)
    assert digests(out) == digests(whole)
    assert not unfinished.exists()


def test_what_a_handler_sets_stays_when_a_signal_comes_twice():
    """As the program's own does, which ignores SIGTERM from the first one on: tidying up is not disturbed."""
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda number, frame: signal.signal(signal.SIGTERM, signal.SIG_IGN))
    try:
        with held_signals():
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_held_signal_is_delivered_when_asked():
    with pytest.raises(KeyboardInterrupt), held_signals() as signals:  # noqa: PT012
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            if signals.came:
                break
        assert signals.came
        signals.deliver()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_held_signal_is_delivered_at_the_end_and_at_once_the_second_time():
    ends = []
    with pytest.raises(KeyboardInterrupt), held_signals():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        ends.append("end of the block")
    assert ends == ["end of the block"]
    with pytest.raises(KeyboardInterrupt), held_signals():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the second one is not held back")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("ended", ["an error", "the last step"])
def test_a_held_signal_is_never_lost(ended):
    def steps():
        with held_signals():
            yield 1
            yield 2

    def run():
        if ended == "an error":
            with held_signals():
                signal.raise_signal(signal.SIGINT)
                raise ValueError
        with closing(steps()) as taken:
            for _ in taken:
                signal.raise_signal(signal.SIGINT)
                break

    with pytest.raises(KeyboardInterrupt):
        run()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_a_handler_sets_stays():
    """A second signal is to be ignored, for instance, while the first is obeyed."""

    def once(number, frame):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, once)
    try:
        with pytest.raises(KeyboardInterrupt), held_signals() as signals:  # noqa: PT012
            signal.raise_signal(signal.SIGINT)
            signals.deliver()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_is_held_back_for_seconds_only(monkeypatch):
    monkeypatch.setattr("longtail.runtime.signals._LONGEST", 0.1)
    with pytest.raises(KeyboardInterrupt), held_signals():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        for _ in range(400):
            time.sleep(0.01)
        pytest.fail("it was held back for too long")


def test_signals_are_left_alone_where_nobody_handles_them():
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with held_signals():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
    found = []

    def elsewhere():
        with held_signals() as signals:
            found.append(signals.came)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [False]
