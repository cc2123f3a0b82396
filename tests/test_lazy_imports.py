"""Training a linear model loads no other learners, checks parameters once and says when it compiles."""

import json
import os
import subprocess
import sys

import pytest

import longtail
from longtail import learners, rerank

TRAIN = """
import sys
from collections import Counter

from longtail.cli.program import program
from longtail.learners import Learner
from longtail.validation import Validated

checked, kept = Counter(), []
check = Validated._check_parameters

def counted(self):
    kept.append(self)
    checked[id(self)] += isinstance(self, Learner)
    check(self)

Validated._check_parameters = counted
sys.argv[1:] = ["train", "dismec", sys.argv[1], "--out", "model"]
try:
    program()
finally:
    print("\\nLOADED", max(checked.values()), *sys.modules)
"""
OTHER_ROOMS = (
    *(f"longtail.learners.{room}" for room in ("label_trees", "instance_trees", "embedding", "neural")),
    "longtail.rerank.",
)
OTHER_LIBRARIES = {"matplotlib", "torch", "transformers", "tokenizers", "jinja2", "fastapi", "ray", "optuna", "faiss"}


@pytest.fixture(params=["features", "texts"])
def trained(request, tmp_path):
    rows = {
        "features": ("train.txt", "4 3 2\n0 0:1 1:0.5\n1 2:1\n0,1 0:1 2:1\n0 0:1\n"),
        "texts": ("train.jsonl", "".join(f"{json.dumps({'text': t, 'labels': [t]})}\n" for t in ("red", "blue") * 4)),
    }
    name, content = rows[request.param]
    (tmp_path / name).write_text(content)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, name], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model").is_dir()
    most, *modules = done.stdout.rpartition("LOADED")[2].split()
    return int(most), modules


def test_dismec_loads_no_other_learners_and_checks_parameters_once(trained):
    most, modules = trained
    assert most == 1
    assert "longtail.learners.linear.one_vs_rest" in modules
    assert not [name for name in modules if name.startswith(OTHER_ROOMS)]
    assert not {name.partition(".")[0] for name in modules} & OTHER_LIBRARIES


@pytest.mark.parametrize("package", [longtail, learners, rerank], ids=lambda package: package.__name__)
def test_lazy_packages_have_what_they_promise(package):
    assert set(dir(package)) == set(package.__all__)
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nothing'"):
        package.nothing  # noqa: B018
