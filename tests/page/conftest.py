"""Models, a server and a browser for the tests of the page: started once for all of them."""

import numpy as np
import pytest

from longtail import LabelTree, Model, OneVsRest, Popularity, TextLearner, Tfidf, datasets

from .browsing import Server, Visit, start_browser

ROWS = 1500


@pytest.fixture(scope="package")
def models(tmp_path_factory):
    """One-vs-rest, calibrated; a tree, not calibrated; no explanations; features; names that are HTML."""
    from .seeing import EVIL

    tags = datasets.load("debian-tags", "train")
    texts, Y, names = tags.texts[:ROWS], tags.Y[:ROWS], tags.label_names
    place = tmp_path_factory.mktemp("models")

    def text_model(learner, **features):
        return Model(TextLearner(features=Tfidf(**features), learner=learner).fit(texts, Y), label_names=names)

    made = {"tags": text_model(OneVsRest(), ngram_range=(1, 2)), "tree": text_model(LabelTree())}
    made["popular"] = text_model(Popularity())
    made["tags"].recipe = "dismec"
    made["tags"].calibrate(tags.take(np.arange(ROWS, 2 * ROWS)))
    made["features"] = Model(OneVsRest().fit(Tfidf().fit_transform(texts), Y), label_names=names)
    made["evil"] = Model(made["tree"].learner, label_names=[f"{EVIL}{name}" for name in names])
    for name, model in made.items():
        model.save(place / name)
    return {name: place / name for name in made}


@pytest.fixture(scope="package")
def server(models):
    with Server(models, text_characters=5000) as running:
        yield running


@pytest.fixture(scope="package")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = start_browser(started)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, server):
    with Visit(browser, server) as opened:
        yield opened
