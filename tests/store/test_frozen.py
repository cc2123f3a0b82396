"""Models saved with an earlier format version must always load and predict the same."""

import json
from pathlib import Path

import numpy as np
import pytest

from longtail import InstanceForest, Model, OneVsRest, TailDial, TextLearner
from longtail.learners import NeuralClassifier
from longtail.store import register
from longtail.store.manifest import FORMAT_VERSION
from longtail.store.upgrades import _RENAMED, upgraded
from longtail.weighting import PWcb
from tests.golden import rankings

FIXTURES = Path(__file__).parent / "fixtures"
PROCESSOR = "znver5"  # where the scores of the fixtures were computed
FROZEN = sorted(FIXTURES.glob("model-v*/*.expected.json"))


@pytest.mark.parametrize("version", range(1, FORMAT_VERSION + 1))
def test_there_are_frozen_models(version):
    frozen = {path.name.split(".")[0] for path in FROZEN if path.parent.name == f"model-v{version}"}
    assert frozen >= {"features", "texts"}


every_model = pytest.mark.parametrize(
    "expected_file", FROZEN, ids=lambda path: f"{path.parent.name}/{path.name.split('.')[0]}"
)


@every_model
def test_an_old_model_saved_again_is_the_same(expected_file, tmp_path):
    old = Model.load(str(expected_file).removesuffix(".expected.json"))
    old.save(tmp_path / "new")
    rows = json.loads(expected_file.read_text())["rows"]
    before, after = (model.predict_topk(rows, 4) for model in (old, Model.load(tmp_path / "new", verify=True)))
    np.testing.assert_array_equal(before.labels, after.labels)
    np.testing.assert_array_equal(before.scores, after.scores)


@every_model
def test_predicts_as_it_did(expected_file):
    """Bit for bit on processors like the one where the scores were written; elsewhere up to rounding of sums."""
    model = Model.load(str(expected_file).removesuffix(".expected.json"), verify=True)
    expected = json.loads(expected_file.read_text())
    top = model.predict_topk(expected["rows"], 4)
    np.testing.assert_array_equal(top.labels, expected["labels"])
    scores = np.where(top.labels < 0, 0, top.scores)
    if rankings.is_exact(PROCESSOR, with_torch=rankings.uses_torch(model.learner)):
        np.testing.assert_array_equal(scores, expected["scores"])
    else:
        np.testing.assert_allclose(scores, expected["scores"], rtol=1e-4, atol=1e-5)


def test_version_2_has_a_model_of_every_learner_whose_parameters_were_renamed():
    held = "".join((path.parent / path.name.split(".")[0] / "model.json").read_text() for path in FROZEN)
    assert {name for name in _RENAMED if f'"object": "{name}"' not in held} <= {"TextEmbedding"}


@pytest.mark.parametrize("name", ["attention", "cnn", "embedding", "word-bag"])
def test_the_history_of_version_2_has_the_present_names(name):
    history = Model.load(FIXTURES / "model-v2" / name).learner.learner_.history_
    assert "validation" in history
    assert "held_out" not in history


@pytest.mark.parametrize("name", ["attention", "cnn", "word-bag"])
def test_the_losses_of_version_2_have_the_present_names(name):
    learner = Model.load(FIXTURES / "model-v2" / name).learner
    assert isinstance(learner, TextLearner)
    for network in (learner.learner, learner.learner_):
        assert isinstance(network, NeuralClassifier)
        assert (network.loss, network.cache_frozen) == ("logistic", True)


def test_the_forest_and_the_dial_of_version_2_have_the_present_names():
    forest = Model.load(FIXTURES / "model-v2" / "instance-forest").learner.find(InstanceForest)
    assert forest.criterion == "ndcg"
    dial = Model.load(FIXTURES / "model-v2" / "tail-dial").learner.find(TailDial)
    assert (dial.first_tail, dial.first_tail_) == (None, 0.5)


def test_a_forest_with_gains_that_were_not_normalised_has_the_criterion_dcg():
    assert upgraded({"object": "InstanceForest", "params": {"ideal": False}}, 2)["params"] == {"criterion": "dcg"}


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
