"""The examples: each script and the notebook run, on bundled data that are cut small."""

from __future__ import annotations

import json
import os
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


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_run(path, tmp_path):
    if path.stem == "serve_and_ask":
        pytest.importorskip("fastapi")
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, env=os.environ | {"LONGTAIL_EXAMPLE_ROWS": "1500"},
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, tmp_path, monkeypatch):
    """Cells are plain Python, so they run without a kernel."""
    import matplotlib as mpl

    mpl.use("agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LONGTAIL_EXAMPLE_ROWS", "1500")
    names: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), names)
