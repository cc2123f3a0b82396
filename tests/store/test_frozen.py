"""Models saved with an earlier format version must always load and predict the same."""

import json
from pathlib import Path

import numpy as np
import pytest

from longtail import Model, OneVsRest, TextLearner
from longtail.store import register
from longtail.store.manifest import FORMAT_VERSION
from longtail.store.upgrades import _RENAMED, upgraded
from longtail.weighting import PWcb

FIXTURES = Path(__file__).parent / "fixtures"
FROZEN = sorted(FIXTURES.glob("model-v*/*.expected.json"))


@pytest.mark.parametrize("version", range(1, FORMAT_VERSION + 1))
def test_there_are_frozen_models(version):
    frozen = {path.name.split(".")[0] for path in FROZEN if path.parent.name == f"model-v{version}"}
    assert frozen >= {"features", "texts"}


@pytest.mark.parametrize("name", ["features", "texts"])
def test_an_old_model_saved_again_is_the_same(name, tmp_path):
    old = Model.load(FIXTURES / "model-v1" / name)
    old.save(tmp_path / "new")
    expected = json.loads((FIXTURES / "model-v1" / f"{name}.expected.json").read_text())
    top = Model.load(tmp_path / "new", verify=True).predict_topk(expected["rows"], 4)
    np.testing.assert_array_equal(top.labels, expected["labels"])


@pytest.mark.parametrize("expected_file", FROZEN, ids=lambda path: f"{path.parent.name}/{path.name.split('.')[0]}")
def test_predicts_as_it_did(expected_file):
    model = Model.load(str(expected_file).removesuffix(".expected.json"), verify=True)
    expected = json.loads(expected_file.read_text())
    top = model.predict_topk(expected["rows"], 4)
    np.testing.assert_array_equal(top.labels, expected["labels"])
    np.testing.assert_allclose(np.where(top.labels < 0, 0, top.scores), expected["scores"], rtol=1e-4, atol=1e-5)


def test_version_2_has_a_model_of_every_learner_whose_parameters_were_renamed():
    held = "".join((path.parent / path.name.split(".")[0] / "model.json").read_text() for path in FROZEN)
    assert {name for name in _RENAMED if f'"object": "{name}"' not in held} <= {"TextEmbedding"}


@pytest.mark.parametrize("name", ["attention", "cnn", "embedding", "word-bag"])
def test_the_history_of_version_2_has_the_present_names(name):
    history = Model.load(FIXTURES / "model-v2" / name).learner.learner_.history_
    assert "validation" in history
    assert "held_out" not in history


def test_parameters_of_a_registered_class_are_renamed_as_those_of_its_base_class():
    @register
    class OldSubclass(OneVsRest):
        pass

    params = {"regularisation": 0.5, "threads": 2, "tolerance": 0.1}
    assert upgraded({"object": "OldSubclass", "params": params}, 2)["params"] == {"C": 0.5, "tol": 0.1}


def test_version_1_keeps_everything():
    model = Model.load(FIXTURES / "model-v1" / "texts")
    assert isinstance(model.learner, TextLearner)
    assert isinstance(model.learner.learner, OneVsRest)
    assert isinstance(model.learner.learner.weighting, PWcb)
    assert model.learner.features_.ngram_range == (1, 2)
    assert model.label_names is not None
    assert model.label_names[4:6] == ["Ölmalerei", "two words"]
    assert (model.recipe, model.training, model.n_rows) == ("pw-cb-dismec", {"seconds": 0.5, "data": "fixture"}, 150)
    assert model.learner.learner_.weights_.panels_.size
    assert model.learner.learner_.weights_.entry_values_.size
    assert repr(model.propensity) == "JainPropensity(a=0.6, b=2.6)"
    assert Model.load(FIXTURES / "model-v1" / "features").label_names is None
