"""Training a linear model loads no other learners, checks parameters once and says when it compiles."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from types import ModuleType

import pytest

import longtail
from longtail import data, features, learners, metrics, propensity, rerank

TRAIN = """
import json
import sys
from collections import Counter

from longtail.cli.program import program
from longtail.propensity import Propensity
from longtail.validation import Validated

checked = Counter()
check = Validated._check_parameters

def counted(self):
    checked[type(self).__name__] += not isinstance(self, Propensity)  # its public methods check too
    check(self)

Validated._check_parameters = counted
sys.argv[1:] = ["train", *sys.argv[1:], "--out", "model"]
try:
    program()
finally:
    print("\\nLOADED", json.dumps(checked), *sys.modules)
"""
OTHER_ROOMS = (
    *(f"longtail.learners.{package}" for package in ("label_trees", "instance_trees", "embedding", "neural")),
    "longtail.rerank.",
    *(f"longtail.metrics.{name}" for name in ("comparison", "estimators", "intervals", "resampling")),
    *(f"longtail.propensity.{name}" for name in ("fitting", "hierarchy", "sample", "substitutes")),
    *(f"longtail.data.{name}" for name in ("masking", "splits", "synthetic")),
)
PACKAGES = (longtail, data, features, learners, metrics, propensity, rerank)
OTHER_LIBRARIES = {"matplotlib", "torch", "transformers", "tokenizers", "jinja2", "fastapi", "ray", "optuna", "faiss"}


ROWS = {
    "train.txt": "4 3 2\n0 0:1 1:0.5\n1 2:1\n0,1 0:1 2:1\n0 0:1\n",
    "train.jsonl": "".join(f"{json.dumps({'text': text, 'labels': [text]})}\n" for text in ("red", "blue") * 4),
}


def trained(directory, recipe, name, *options):
    """Train in another process; return how often the parameters of each class were checked, and the loaded modules."""
    (directory / name).write_text(ROWS[name])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, recipe, name, *options], cwd=directory, env=environment,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (directory / "model").is_dir()
    checked, _, modules = done.stdout.rpartition("LOADED ")[2].partition("} ")
    counts = {name: count for name, count in json.loads(checked + "}").items() if count}
    return counts, modules.split()


@pytest.mark.parametrize("name", ROWS)
def test_dismec_loads_no_other_learners_and_checks_parameters_once(name, tmp_path):
    checked, modules = trained(tmp_path, "dismec", name)
    assert checked == {"OneVsRest": 1, "NoWeighting": 1, "Tfidf": 1}
    assert "longtail.learners.linear.one_vs_rest" in modules
    assert not [name for name in modules if name.startswith(OTHER_ROOMS)]
    assert not {name.partition(".")[0] for name in modules} & OTHER_LIBRARIES


def test_wrapped_recipes_check_the_parameters_of_every_part_once(tmp_path):
    checked, _ = trained(tmp_path, "ranknet+bonsai", "train.jsonl", "--set", "weighting=pw")
    assert checked == {"RankNet": 1, "LabelTree": 1, "PW": 1, "Tfidf": 1}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_lazy_packages_have_what_they_promise(package):
    assert set(dir(package)) == set(package.__all__)
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nothing'"):
        package.nothing  # noqa: B018


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_no_lazy_name_is_that_of_another_module(package):
    """Importing a module sets the package's attribute of its name, whatever the package exports under that name."""
    for name in package.__all__:
        found = getattr(package, name)
        assert find_spec(f"{package.__name__}.{name}") is None or isinstance(found, ModuleType), name
