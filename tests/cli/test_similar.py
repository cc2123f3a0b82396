"""`longtail similar` and `Model.similar`: the labels that a model has put nearest to a label."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("torch", reason="the embeddings are trained with torch")

from longtail import EmbeddingClassifier, Model, Popularity, TailDial, TextLearner, Tfidf
from longtail.cli.program import program
from longtail.errors import InputError, ParameterError

SUBJECTS = ("ship", "sail", "tree", "leaf")  # ships have sails, trees have leaves
NAMES = [*SUBJECTS, "été", "sea monster"]


def run(*arguments):
    return CliRunner().invoke(program, [str(argument) for argument in arguments])


def only_error(result):
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return result.stderr


def rows():
    """Texts and labels; no row has the last label."""
    texts, Y = [], np.zeros((200, len(NAMES)), np.int8)
    for row in range(200):
        first = row % 2 * 2
        texts.append(f"a {SUBJECTS[first]} with a {SUBJECTS[first + 1]}" + (" in summer" if row % 5 == 0 else ""))
        Y[row, [first, first + 1]] = 1
        Y[row, 4] = row % 5 == 0
    return texts, Y


def embedded():
    classifier = EmbeddingClassifier(
        embedding_dim=16, batch_size=32, epochs=8, learning_rate=0.02, validation_fraction=0.05, n_jobs=1
    )
    return TextLearner(features=Tfidf(min_df=1), learner=classifier)


@pytest.fixture(scope="module")
def model():
    return Model(embedded().fit(*rows()), label_names=NAMES, recipe="glas")


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model"
    model.save(path)
    return path


class TestModel:
    def test_inner_products_of_the_embeddings(self, model):
        vectors = model.learner.learner_.label_embeddings_
        assert np.array_equal(model.label_embeddings, vectors)
        others = [name for name in NAMES[:5] if name != "tree"]
        products = {name: float(vectors[NAMES.index(name)] @ vectors[2]) for name in others}
        found = model.similar("tree")
        assert [name for name, _ in found] == sorted(products, key=products.get, reverse=True)
        assert dict(found) == pytest.approx(products, abs=1e-6)

    def test_labels_that_are_together_are_near(self, model):
        assert [model.similar(name, k=1)[0][0] for name in SUBJECTS] == ["sail", "ship", "leaf", "tree"]

    def test_by_id_and_without_names(self, model):
        assert model.similar(2, k=3) == model.similar("tree", k=3)
        bare = Model(model.learner)
        assert bare.similar(2, k=1) == [("3", model.similar("tree", k=1)[0][1])]
        assert bare.similar(np.int64(2), k=1) == bare.similar(2, k=1)
        assert bare.similar_topk(2, 3).labels.tolist() == [[NAMES.index(name) for name, _ in model.similar(2, 3)]]

    def test_inside_what_goes_around_it(self, model):
        dial = TailDial(learner=EmbeddingClassifier(embedding_dim=4, epochs=1, n_jobs=1), tail=0.5)
        dial.fit(np.eye(4), np.eye(4))
        found = Model(dial).similar(0, k=2)
        assert [float(name) for name, _ in found] == [near for near, _ in dial.learner_.similar(0, 2)]

    @pytest.mark.parametrize("label", ["tre", "2", 6, -1, True, None, 1.0])
    def test_labels_that_are_none(self, model, label):
        with pytest.raises(ParameterError, match="must be the name of a label, or an id from 0 to 5"):
            model.similar(label)

    @pytest.mark.parametrize("k", [0, -1, 2.5, True])
    def test_how_many(self, model, k):
        with pytest.raises(ParameterError, match="k must be an integer"):
            model.similar("tree", k)

    def test_labels_without_an_embedding(self, model):
        with pytest.raises(InputError, match="Label 'sea monster' has no training row, so it has no embedding"):
            model.similar("sea monster")
        with pytest.raises(InputError, match="Label 5 has no training row"):
            Model(model.learner).similar(5)
        assert "sea monster" not in dict(model.similar("tree", k=100))

    def test_models_without_embeddings(self):
        model = Model(Popularity().fit([[1.0]], [[1, 0]]))
        assert model.label_embeddings is None
        with pytest.raises(InputError, match="no label embeddings: models of the recipes glas and embedding"):
            model.similar(0)


class TestCommand:
    def test_shows_names_products_and_rows(self, saved, model):
        result = run("similar", saved, "tree", "-k", 3)
        assert result.exit_code == 0, result.stderr
        assert result.stderr == ""
        title, heads, _, *lines = result.stdout.splitlines()
        assert title == "tree: 100 training rows"
        assert heads.split() == ["label", "inner", "product", "training", "rows"]
        counts = {"ship": 100, "sail": 100, "leaf": 100, "été": 40}
        expected = [
            [name, f"{round(product, 3) + 0.0:.3f}", str(counts[name])] for name, product in model.similar(2, 3)
        ]
        assert [line.split() for line in lines] == expected

    def test_json(self, saved, model):
        result = run("similar", saved, "été", "--json", "-k", 2)
        assert result.exit_code == 0
        found = json.loads(result.stdout)
        assert (found["label"], found["name"], found["training_rows"]) == (4, "été", 40)
        assert [(one["name"], one["inner_product"]) for one in found["similar"]] == model.similar("été", 2)
        assert all(one["name"] == NAMES[one["label"]] and one["training_rows"] == 100 for one in found["similar"])

    def test_no_more_than_there_are(self, saved):
        found = json.loads(run("similar", saved, "0", "-k", 2_000_000_000, "--json").stdout)
        assert sorted(one["label"] for one in found["similar"]) == [1, 2, 3, 4]

    def test_a_label_that_has_no_other(self, tmp_path):
        learner = EmbeddingClassifier(embedding_dim=4, epochs=1, validation_fraction=0, n_jobs=1).fit(
            [[1.0], [2.0]], [[1, 0]] * 2
        )
        Model(learner).save(tmp_path / "alone")
        result = run("similar", tmp_path / "alone", 0)
        assert result.exit_code == 0
        assert "No other label has an embedding." in result.stderr

    @pytest.mark.parametrize(
        ("label", "message"),
        [
            ("tre", "LABEL must be the name of a label, or an id from 0 to 5 (did you mean tree?), got 'tre'."),
            ("6", "LABEL must be the name of a label, or an id from 0 to 5, got '6'."),
            ("sea monster", "Label 'sea monster' has no training row, so it has no embedding."),
        ],
    )
    def test_labels_that_cannot_be_shown(self, saved, label, message):
        assert message in only_error(run("similar", saved, label))

    def test_a_model_without_embeddings(self, tmp_path):
        Model(Popularity().fit([[1.0]], [[1, 0]])).save(tmp_path / "popular")
        error = only_error(run("similar", tmp_path / "popular", 0))
        assert error.startswith(f"error: {tmp_path / 'popular'}: The model has no label embeddings")
        assert "glas and embedding" in error

    def test_no_model(self, tmp_path):
        assert "is not a model" in only_error(run("similar", tmp_path / "nothing", "ship"))
        assert run("similar", tmp_path, "ship", "-k", 0).exit_code == 2
