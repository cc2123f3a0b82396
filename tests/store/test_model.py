import json
import os

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import longtail
from longtail.data.dataset import Dataset
from longtail.errors import InputError, ModelError, ParameterError
from longtail.features.tfidf.tfidf import Tfidf
from longtail.learners import OneVsRest, Popularity, TextLearner
from longtail.propensity import GivenPropensity, JainPropensity
from longtail.store import Model, files, register
from longtail.store.manifest import FORMAT_VERSION
from longtail.weighting import PW, PWcb

Y = [[0, 1, 1, 0], [0, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]]
NAMES = ["rare", "most", "some", "never"]


@pytest.fixture
def model():
    learner = Popularity().fit(np.ones((4, 2)), Y)
    return Model(
        learner,
        label_names=list(NAMES),
        propensity=JainPropensity(a=0.6, b=2.6),
        recipe="popularity",
        training={"seconds": 1.5},
    )


@pytest.fixture
def saved(model, tmp_path):
    model.save(tmp_path / "model")
    return tmp_path / "model"


def edit(path, change):
    """Change model.json without touching its checksum."""
    manifest = json.loads((path / "model.json").read_text())
    change(manifest)
    (path / "model.json").write_text(json.dumps(manifest))


class TestUse:
    def test_what_it_knows(self, model):
        assert (model.n_labels, model.n_rows, model.label_counts.tolist()) == (4, 4, [1, 3, 2, 0])
        assert not model.takes_texts

    def test_bare_learner(self):
        model = Model(Popularity().fit([[1], [2]], [[0, 1], [1, 1]]))
        assert model.predict_names([[3]], k=5) == [[("1", 1.0), ("0", 0.5)]]
        assert repr(model.propensity) == "JainPropensity()"

    @pytest.mark.parametrize(
        ("weighting", "expected"),
        [
            (None, "JainPropensity()"),
            ("pw", "JainPropensity()"),
            ("class-balanced", "JainPropensity()"),
            (PW(), "JainPropensity()"),
            (PW(propensity="Amazon-670K"), "JainPropensity(a=0.6, b=2.6)"),
            (PWcb(propensity=JainPropensity(a=0.7)), "JainPropensity(a=0.7)"),
        ],
    )
    def test_propensity_is_the_one_the_learner_weights_by(self, weighting, expected):
        learner = OneVsRest(weighting=weighting, n_jobs=1)
        assert repr(Model(clone(learner).fit([[1], [2]], [[0, 1], [1, 1]])).propensity) == expected
        texts = TextLearner(features=Tfidf(min_df=1), learner=learner).fit(["one", "two"], [[0, 1], [1, 1]])
        assert repr(Model(texts).propensity) == expected

    def test_propensity_that_is_a_parameter_of_the_learner(self):
        class Scored(Popularity):
            def __init__(self, *, propensity=None):
                self.propensity = propensity

        learner = Scored(propensity=JainPropensity(b=0.1)).fit([[1], [2]], [[0, 1], [1, 1]])
        assert repr(Model(learner).propensity) == "JainPropensity(b=0.1)"

    def test_unfitted_learner(self):
        with pytest.raises(NotFittedError):
            Model(Popularity())

    def test_names_must_fit(self, model):
        with pytest.raises(ParameterError, match="label_names"):
            Model(model.learner, label_names=["one"])

    def test_predicts_from_matrix_and_data_set(self, model):
        for rows in ([[0, 1]], sp.csr_array([[0, 1]]), Dataset([[0, 1]], [[0, 0, 0, 1]])):
            assert model.predict_topk(rows, 2).labels.tolist() == [[1, 2]]
        assert model.predict_names([[0, 1]], 2) == [[("most", 0.75), ("some", 0.5)]]

    def test_restrictions_by_id_or_name(self, model):
        for only in ([0, 2], ["rare", "some"]):
            assert model.predict_topk([[0, 1]], 3, only=only).labels.tolist() == [[2, 0, -1]]
        assert model.predict_names([[0, 1]], 3, exclude=["most"]) == [[("some", 0.5), ("rare", 0.25)]]
        with pytest.raises(ParameterError, match=r"exclude.*nothing"):
            model.predict_topk([[0, 1]], exclude=["nothing"])

    def test_restrictions_may_come_from_iterators(self, model):
        assert model.predict_topk([[0, 1]], 3, only=iter(["rare", "some"])).labels.tolist() == [[2, 0, -1]]
        assert model.predict_topk([[0, 1]], 3, only=iter([0, 2])).labels.tolist() == [[2, 0, -1]]
        assert model.predict_topk([[0, 1]], 3, exclude=iter(["most"])).labels.tolist() == [[2, 0, -1]]
        assert [why.name for why in model.explain([[0, 1]], iter(["rare", "most"]))] == ["rare", "most"]

    def test_rows_in_chunks_are_rows_at_once(self, model):
        rows = sp.random_array((9000, 2), density=0.5, rng=np.random.default_rng(0), format="csr")
        parts = list(model.iter_topk(rows, 2))
        assert [len(part) for part in parts] == [8192, 808]
        np.testing.assert_array_equal(
            np.concatenate([part.labels for part in parts]), model.predict_topk(rows, 2).labels
        )

    def test_texts_and_features_are_not_mixed_up(self, model):
        texts = Model(TextLearner(learner=Popularity()).fit(["one two", "one"], [[1], [0]]))
        assert texts.takes_texts
        assert texts.predict_topk(Dataset(None, [[1]], texts=["one"]), 1).labels.tolist() == [[0]]
        with pytest.raises(InputError, match="takes texts"):
            texts.predict_topk(Dataset([[1]], [[1]]))
        with pytest.raises(InputError, match="takes features"):
            model.predict_topk(Dataset(None, [[1]], texts=["one"]))


class TestEvaluate:
    def test_is_what_metrics_say(self, model):
        truth = sp.csr_array([[0, 1, 0, 0], [1, 0, 1, 1], [0, 0, 0, 0]])
        test = Dataset(np.ones((3, 2)), truth)
        inverse = model.propensity.inverse(model.label_counts, 4)
        expected = longtail.evaluate(model.predict_topk(test, 3), truth, inverse_propensity=inverse, ks=(1, 3))
        scores = model.evaluate(test, ks=(1, 3))
        assert dict(scores) == dict(expected)
        assert scores["P@1"] == pytest.approx(100 / 3)

    def test_labels_are_matched_by_name(self, model):
        by_id = model.evaluate(Dataset(np.ones((2, 2)), [[0, 1, 1, 0], [1, 0, 0, 0]], label_names=NAMES))
        by_name = model.evaluate(Dataset(np.ones((2, 2)), [[1, 0, 1], [0, 1, 0]], label_names=["most", "rare", "some"]))
        assert dict(by_id) == dict(by_name)

    def test_labels_that_no_row_has_are_columns_too(self, model):
        names = ["most", "rare", "more", "never", "some", "new"]
        Y, counts, inverse = model.truth(Dataset([[0, 1]], [[1, 0, 0, 0, 0, 0]], label_names=names))
        assert Y.shape == (1, len(counts)) == (1, len(inverse))
        assert Y.shape[1] == len({*model.label_names, *names})
        assert Y.indices.tolist() == [model.labels.id_of("most")]

    def test_labels_it_never_saw_count_as_missed(self, model):
        known = Dataset(np.ones((1, 2)), [[1, 0]], label_names=["most", "some"])
        more = Dataset(np.ones((1, 2)), [[1, 0, 1]], label_names=["most", "some", "brand new"])
        assert model.evaluate(known)["R@5"] == 100
        assert model.evaluate(more)["R@5"] == 50
        assert model.evaluate(more)["PSP@1"] < model.evaluate(known)["PSP@1"]

    def test_given_propensities_reach_labels_it_never_saw(self, model):
        given = Model(model.learner, label_names=NAMES, propensity=GivenPropensity(values=[0.5, 1.0, 0.8, 0.25]))
        more = Dataset(np.ones((1, 2)), [[1, 0, 1]], label_names=["most", "some", "brand new"])
        assert given.evaluate(more, ks=[5])["PSP@5"] == pytest.approx(100 * 1 / (1 + 4))

    def test_other_labels_without_names_are_refused(self, model):
        with pytest.raises(InputError, match="3 labels instead of 4"):
            model.evaluate(Dataset(np.ones((1, 2)), [[0, 1, 0]]))

    def test_no_rows(self, model):
        with pytest.raises(InputError):
            model.evaluate(Dataset(np.ones((0, 2)), np.zeros((0, 4))))


class TestKeep:
    def test_everything_comes_back(self, model, saved):
        for loaded in (longtail.load(saved), Model.load(str(saved), verify=True)):
            assert loaded.label_names == NAMES
            assert repr(loaded.propensity) == repr(model.propensity)
            assert loaded.recipe == "popularity"
            assert loaded.training == {"seconds": 1.5}
            assert loaded.predict_names([[0, 1]]) == model.predict_names([[0, 1]])

    def test_many_names_come_back(self, tmp_path):
        names = [f"label {index}" for index in range(50)]
        learner = Popularity().fit(np.ones((50, 1)), sp.eye_array(50))
        Model(learner, label_names=names).save(tmp_path / "m")
        assert Model.load(tmp_path / "m").label_names == names
        assert (tmp_path / "m" / "label_names.json").exists()

    def test_arrays_are_mapped(self, saved):
        assert not longtail.load(saved).learner.ranking_.flags.owndata

    def test_says_what_it_is(self, saved):
        manifest = json.loads((saved / "model.json").read_text())
        assert manifest["format_version"] == FORMAT_VERSION
        assert manifest["versions"]["longtail"] == longtail.__version__
        assert set(manifest["versions"]) == {"longtail", "numpy", "python"}
        assert manifest["model"]["learner"]["object"] == "Popularity"
        for name, facts in manifest["files"].items():
            assert (saved / name).stat().st_size == facts["bytes"]
            assert len(facts["sha256"]) == 64

    def test_the_same_model_gives_the_same_bytes(self, model, saved, tmp_path):
        model.save(tmp_path / "again")
        for file in saved.iterdir():
            assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()

    def test_no_pickle(self, saved):
        assert {file.suffix for file in saved.iterdir()} <= {".json", ".npy"}

    def test_own_classes_can_be_registered(self, tmp_path):
        @register
        class Mine(Popularity):
            pass

        Model(Mine().fit([[1]], [[1]])).save(tmp_path / "m")
        assert type(Model.load(tmp_path / "m").learner) is Mine
        with pytest.raises(ModelError, match="another name"):
            register(type("Popularity", (), {}))


class TestPlace:
    def test_an_older_model_is_replaced(self, model, saved):
        model.recipe = "newer"
        model.save(saved)
        assert longtail.load(saved).recipe == "newer"
        assert [entry.name for entry in saved.parent.iterdir()] == ["model"]

    def test_a_loaded_model_can_be_saved_over_itself(self, saved):
        loaded = longtail.load(saved)
        loaded.save(saved)
        assert longtail.load(saved).predict_names([[0, 1]]) == loaded.predict_names([[0, 1]])

    def test_an_empty_directory_is_used(self, model, tmp_path):
        (tmp_path / "m").mkdir()
        model.save(tmp_path / "m")
        assert longtail.load(tmp_path / "m").recipe == "popularity"

    def test_other_things_are_never_overwritten(self, model, tmp_path):
        (tmp_path / "file").write_text("mine")
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "thesis.tex").write_text("mine")
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "model.json").write_text("{}")
        for name, message in (("file", "is a file"), ("folder", "not a longtail model"), ("other", "not a longtail")):
            with pytest.raises(ModelError, match=message):
                model.save(tmp_path / name)
        assert (tmp_path / "folder" / "thesis.tex").read_text() == "mine"

    def test_files_beside_an_older_model_are_not_lost(self, model, saved):
        (saved / "notes.txt").write_text("mine")
        with pytest.raises(ModelError, match=r"notes\.txt"):
            model.save(saved)
        assert (saved / "notes.txt").exists()

    @pytest.mark.parametrize("hidden", [".git", ".DS_Store"])
    def test_hidden_files_are_not_lost(self, model, saved, tmp_path, hidden):
        (tmp_path / "project").mkdir()
        for place, message in ((tmp_path / "project", "is not a longtail model"), (saved, "not part of the model")):
            if hidden == ".git":
                (place / hidden).mkdir()
            else:
                (place / hidden).write_text("mine")
            with pytest.raises(ModelError, match=rf"\{hidden}.*{message}"):
                model.save(place)
            assert (place / hidden).exists()

    def test_missing_parent(self, model, tmp_path):
        with pytest.raises(ModelError, match="not a directory"):
            model.save(tmp_path / "none" / "model")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_parent_that_cannot_be_written(self, model, tmp_path):
        tmp_path.chmod(0o500)
        with pytest.raises(ModelError, match="written"):
            model.save(tmp_path / "model")

    def test_what_cannot_be_held_leaves_nothing(self, model, saved):
        model.training = {"when": object()}
        with pytest.raises(ModelError, match="training"):
            model.save(saved)
        assert longtail.load(saved).training == {"seconds": 1.5}
        assert [entry.name for entry in saved.parent.iterdir()] == ["model"]


class TestDamage:
    def every_file(self, saved):
        return sorted(saved.iterdir())

    def test_truncated_files_are_named(self, saved):
        for file in self.every_file(saved):
            whole = file.read_bytes()
            for size in (0, len(whole) // 2, len(whole) - 1):
                file.write_bytes(whole[:size])
                if file.name == "model.json" and size == len(whole) - 1:
                    continue  # only the last line end is gone
                with pytest.raises(ModelError, match=file.name):
                    longtail.load(saved)
            file.write_bytes(whole)
        longtail.load(saved)

    def test_changed_bytes_are_named(self, saved):
        rng = np.random.default_rng(0)
        for file in self.every_file(saved):
            whole = file.read_bytes()
            for position in rng.integers(0, len(whole), 12):
                changed = bytearray(whole)
                changed[position] ^= 4
                file.write_bytes(changed)
                with pytest.raises(ModelError):
                    longtail.load(saved)
            file.write_bytes(whole)

    def test_large_files_are_hashed_on_demand(self, saved, monkeypatch):
        monkeypatch.setattr(files, "HASH_ALWAYS", 10)
        file = saved / "learner.shares_.npy"
        changed = bytearray(file.read_bytes())
        changed[-1] ^= 1
        file.write_bytes(changed)
        longtail.load(saved)
        with pytest.raises(ModelError, match=r"learner\.shares_\.npy was changed"):
            longtail.load(saved, verify=True)

    def test_a_changed_header_is_noticed_without_hashing(self, saved, monkeypatch):
        monkeypatch.setattr(files, "HASH_ALWAYS", 10)
        file = saved / "learner.shares_.npy"
        whole = file.read_bytes()
        for other in (whole.replace(b"<f4", b"<i4"), whole.replace(b"\x93NUMPY", b"\x93NUMPI"), b"x" * len(whole)):
            file.write_bytes(other)
            with pytest.raises(ModelError, match=r"shares_\.npy"):
                longtail.load(saved)

    def test_missing_files(self, saved):
        (saved / "learner.ranking_.npy").unlink()
        with pytest.raises(ModelError, match=r"ranking_\.npy is missing"):
            longtail.load(saved)
        (saved / "model.json").unlink()
        with pytest.raises(ModelError, match=r"no model\.json"):
            longtail.load(saved)

    @pytest.mark.parametrize("name", ["nowhere", "file"])
    def test_no_directory(self, tmp_path, name):
        (tmp_path / "file").write_text("")
        with pytest.raises(
            ModelError, match="not a model directory" if name == "nowhere" else "holds rows, and a model is wanted here"
        ):
            longtail.load(tmp_path / name)

    @pytest.mark.parametrize("depth", [700, 200_000])
    def test_deeply_nested_manifests(self, saved, depth, monkeypatch):
        monkeypatch.setattr("longtail.store.manifest._checksum", lambda manifest: None)
        content = (saved / "model.json").read_text()
        nested = content.replace('"popularity"', "[" * depth + "]" * depth)
        assert nested != content
        (saved / "model.json").write_text(nested.replace('"checksum"', '"other"'))
        with pytest.raises(ModelError, match=r"model\.json is"):
            longtail.load(saved)

    def test_newer_format(self, saved):
        edit(saved, lambda manifest: manifest.update(format_version=FORMAT_VERSION + 1))
        with pytest.raises(ModelError, match="upgrade"):
            longtail.load(saved)

    def test_changed_parameters(self, saved):
        edit(saved, lambda manifest: manifest["model"].update(recipe="dismec"))
        with pytest.raises(ModelError, match=r"model\.json was changed"):
            longtail.load(saved)

    @pytest.mark.parametrize(
        "change",
        [
            lambda manifest: manifest.pop("files"),
            lambda manifest: manifest.pop("model"),
            lambda manifest: manifest.update(model=3),
            lambda manifest: manifest["model"].pop("learner"),
            lambda manifest: manifest["model"].update(learner=3),
            lambda manifest: manifest["files"].update({"../evil.npy": {"bytes": 0, "sha256": ""}}),
            lambda manifest: manifest["model"]["learner"].update(object="os.system"),
            lambda manifest: manifest["model"]["learner"].pop("params"),
            lambda manifest: manifest["model"]["learner"]["state"].pop("n_labels_"),
        ],
    )
    def test_forged_manifests(self, saved, change, monkeypatch):
        monkeypatch.setattr("longtail.store.manifest._checksum", lambda manifest: None)
        edit(saved, lambda manifest: (change(manifest), manifest.pop("checksum")))
        with pytest.raises(ModelError):
            longtail.load(saved)

    def test_unknown_keys_are_tolerated(self, saved, monkeypatch):
        monkeypatch.setattr("longtail.store.manifest._checksum", lambda manifest: None)

        def change(manifest):
            manifest["later"] = 1
            manifest["model"]["later"] = {"dict": {"a": 1}}
            manifest.pop("checksum")

        edit(saved, change)
        assert longtail.load(saved).predict_names([[0, 1]], 1) == [[("most", 0.75)]]

    def test_unknown_parameters_are_refused(self, saved, monkeypatch):
        monkeypatch.setattr("longtail.store.manifest._checksum", lambda manifest: None)

        def change(manifest):
            manifest["model"]["learner"]["params"]["later"] = 2
            manifest.pop("checksum")

        edit(saved, change)
        with pytest.raises(ModelError, match="Popularity with later, which this version of longtail doesn't know"):
            longtail.load(saved)


class TestMaking:
    def test_a_model_is_shown_in_one_line(self):
        learner = Popularity().fit([[1], [2]], [[0, 1], [1, 1]])
        assert (
            repr(Model(learner, label_names=["a", "b"])) == "Model('Popularity': 2 training rows, 1 feature, 2 labels)"
        )

    def test_a_pipeline_or_a_search_is_no_learner(self):
        pipeline = make_pipeline(StandardScaler(), OneVsRest()).fit(np.eye(2), np.eye(2))
        with pytest.raises(
            ParameterError, match="learner must be a fitted learner of longtail: for texts a TextLearner"
        ):
            Model(pipeline)

    def test_names_of_labels_are_text(self):
        learner = Popularity().fit([[1], [2]], [[0, 1], [1, 1]])
        with pytest.raises(ParameterError, match="label_names must hold text, got 7"):
            Model(learner, label_names=["a", 7])
