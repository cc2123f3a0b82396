"""Models that the tests of the server ask, and servers with them."""

import numpy as np
import pytest

from longtail import InstanceForest, LabelTree, Model, OneVsRest, Popularity, TextLearner, Tfidf, datasets

from .running import Running

ROWS = 1200


@pytest.fixture(scope="session")
def tags():
    return datasets.load("debian-tags", "train")


@pytest.fixture(scope="session")
def models(tags, tmp_path_factory):
    """Models in directories: one-vs-rest over texts, calibrated; trees; a forest; features without names; no parts."""
    texts, Y = tags.texts[:ROWS], tags.Y[:ROWS]
    place = tmp_path_factory.mktemp("models")

    def text_model(learner, **features):
        return Model(
            TextLearner(features=Tfidf(**features), learner=learner).fit(texts, Y), label_names=tags.label_names
        )

    ovr = text_model(OneVsRest(), ngram_range=(1, 2))
    ovr.recipe, ovr.training = "dismec", {"rows": ROWS, "data": "debian-tags:train"}
    ovr.calibrate(tags.take(np.arange(ROWS, 2 * ROWS)))
    made = {
        "tags": ovr,
        "tree": text_model(LabelTree()),
        "forest": text_model(InstanceForest(n_trees=3)),
        "popular": text_model(Popularity()),
    }
    X = Tfidf().fit_transform(texts)
    made["features"] = Model(OneVsRest().fit(X, Y))
    for name, model in made.items():
        model.save(place / name)
    return {name: place / name for name in made}


@pytest.fixture(scope="session")
def server(models):
    with Running(models) as running:
        yield running
