"""Wrong parameters of `longtail train` are refused before any data is read."""

import pytest
from typer.testing import CliRunner

from longtail.cli.program import program
from longtail.recipes import find


@pytest.mark.parametrize(
    ("recipe", "settings", "sentence"),
    [
        ("pfastrexml", ["learner=5"], "learner must be a learner or None, got 'int'."),
        ("ranknet+bonsai", ["learner=x"], "learner must be a learner or None, got 'str'."),
        ("pw-cb-dismec", ["weighting.beta=x"], "weighting.beta must be a number of at least 0 and below 1, got 'x'."),
        ("pw-cb-dismec", ["weighting.order=x"], "weighting.order must be one of correct-then-rebalance, "),
        ("pw-cb-bonsai", ["weighting.rescale=5"], "weighting.rescale must be True or False, got 5."),
        (
            "dismec",
            ["weighting=power-frequency", "weighting.factor=0"],
            "weighting.factor must be a number above 0, got 0.",
        ),
        ("pw-dismec", ["weighting.propensity.a=-1"], "weighting.propensity.a must be a number of at least 0, got -1."),
        (
            "pfastxml",
            ["weighting.propensity=5"],
            "weighting.propensity must be a Propensity, the name of a data set, or None",
        ),
        ("glas", ["weighting=5"], "weighting must be a Weighting or one of none, pw, "),
        ("ips+bonsai", ["propensity.b=-1"], "propensity.b must be a number above 0, got -1."),
        ("dismec", ["features.min_df=0"], "features.min_df must be an integer from 1 to 2147483647, got 0."),
        ("dismec", ["features=5"], "features must be "),
        (
            "dismec",
            ["loss=a__b"],
            "loss must be a Loss or one of squared-hinge, hinge, logistic, zero-one, got 'a__b'.",
        ),
        (
            "dismec",
            ["weighting.beta=0"],
            "weighting.beta is a parameter of weighting, which is None: set weighting, too",
        ),
    ],
)
def test_wrong_parameters_are_refused_before_data_are_read(recipe, settings, sentence, tmp_path):
    options = [part for setting in settings for part in ("--set", setting)]
    missing = str(tmp_path / "missing.jsonl")
    result = CliRunner().invoke(program, ["train", recipe, missing, "--out", str(tmp_path / "m"), *options])
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith(f"error: {sentence}"), result.stderr


@pytest.mark.parametrize(
    ("recipe", "setting", "sentence"),
    [
        ("xgrank", "encoder=5", "encoder must be one of longtail's encoders, or None, got 5."),
        ("word-bag", "encoder.max_length=x", "encoder.max_length must be an integer from "),
    ],
)
def test_wrong_encoders_are_refused_before_their_tokenizer_is_made(recipe, setting, sentence, tmp_path):
    pytest.importorskip("torch")
    missing = str(tmp_path / "missing.jsonl")
    result = CliRunner().invoke(program, ["train", recipe, missing, "--out", str(tmp_path / "m"), "--set", setting])
    assert result.stderr.startswith(f"error: {sentence}"), result.stderr


def test_every_recipe_has_valid_parameters():
    for name in ("pfastrexml", "pw-cb-bonsai", "ips+taug+parabel", "longtail-tail"):
        find(name).build("Amazon-670K")._check_parameters()
