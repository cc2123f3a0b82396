"""The examples: each script and the notebook run, on bundled data that are cut small."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT

EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def test_there_are_some():
    assert len(SCRIPTS) >= 4
    assert NOTEBOOKS


# A pattern of what each script prints, with one number, and that number for the first 1,500 rows
NUMBERS = {
    "compare_two_models": (r"^dismec P@1: ([\d.]+) \(95 % interval", 46.78),
    "favour_rare_labels": (r"^pw-cb-dismec .* PSP@5 ([\d.]+) C@5", 39.63),
    "scikit_learn_pipeline": (r"'onevsrest__weighting': 'pw-cb'} ([\d.]+)$", 45.46),
    "serve_and_ask": (r"^\+([\d.]+)  interface::x11  \(258 training rows; window, manager\)$", 0.798),
    "train_and_evaluate": (r"^PSP  .* ([\d.]+)$", 39.63),
    "your_own_jsonl": (r"^ships ([\d.]+) \[\('captain', ", 0.699),
}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_print_what_they_should(path, tmp_path):
    if path.stem == "serve_and_ask":
        pytest.importorskip("fastapi")
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, env=os.environ | {"LONGTAIL_EXAMPLE_ROWS": "1500"},
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pattern, number = NUMBERS[path.stem]
    found = re.search(pattern, done.stdout, re.MULTILINE)
    assert found, done.stdout
    assert float(found[1]) == pytest.approx(number, rel=0.01)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_shows_that_a_weighting_finds_more_rare_labels(path, tmp_path, monkeypatch):
    """Cells are plain Python, so they run without a kernel."""
    import matplotlib as mpl

    mpl.use("agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LONGTAIL_EXAMPLE_ROWS", "1500")
    names: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), names)
    scores = {
        name: names["evaluate"](top, names["test"].Y, inverse_propensity=names["inverse"])
        for name, top in names["rankings"].items()
    }
    assert scores["dismec"]["P@1"] == pytest.approx(46.78, rel=0.01)
    assert scores["pw-cb-dismec"]["PSP@5"] == pytest.approx(39.63, rel=0.01)
    assert [len(line.get_xdata()) for line in names["axes"].lines] == [6, 6]
