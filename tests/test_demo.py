import pytest

from longtail import datasets, demo
from longtail.errors import InputError, Interrupted


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (Interrupted("Stopped while training: 1 of 2."), 130, "Stopped while training: 1 of 2.\n"),
        (KeyboardInterrupt(), 130, "Stopped.\n"),
        (InputError("is broken.", path="a.txt"), 2, "error: a.txt: is broken.\n"),
    ],
)
def test_says_why_it_ended(error, code, message, monkeypatch, capsys, tmp_path):
    def fail(*args):
        raise error

    monkeypatch.setattr(datasets, "load", fail)
    assert demo.main(["--out", str(tmp_path / "demo")]) == code
    assert capsys.readouterr().err == message
