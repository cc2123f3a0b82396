"""POST /v1/predict: the predictions of the model, in one schema."""

import re
import time

import numpy as np
import pytest

from longtail import Model
from longtail.metrics import frequency_bins
from longtail.serve.explaining import ExplainOptions, explain_row
from longtail.serve.problems import ProblemDetails

TEXT = "A small tiling window manager for X, written in Haskell. A window is a window."


@pytest.fixture(scope="module")
def model(models):
    return Model.load(models["tags"])


def labels_of(result):
    return [found["label"] for found in result["predictions"]]


class TestRanking:
    def test_one_text_is_ranked_as_by_the_model(self, server, model):
        answer = server.predict(text=TEXT, k=7)
        top, probabilities = model.predict_topk([TEXT], 7), model.predict_topk([TEXT], 7, probabilities=True)
        assert (answer["model"], len(answer["results"])) == ("tags", 1)
        (result,) = answer["results"]
        assert labels_of(result) == top.labels[0].tolist()
        np.testing.assert_allclose([found["score"] for found in result["predictions"]], top.scores[0], rtol=1e-6)
        np.testing.assert_allclose(
            [one["probability"] for one in result["predictions"]], probabilities.scores[0], rtol=1e-6
        )

    def test_each_label_has_its_name_rows_and_group(self, server, model):
        bins, names = frequency_bins(model.label_counts)
        for found in server.predict(text=TEXT, k=50)["results"][0]["predictions"]:
            label = found["label"]
            assert found["name"] == model.label_names[label]
            assert found["training_rows"] == model.label_counts[label]
            assert found["bin"] == names[bins[label]]

    def test_many_texts_keep_their_order(self, server, model, tags):
        texts = [*tags.texts[2000:2300], ""]
        answer = server.predict(texts=texts, k=3)
        assert [labels_of(result) for result in answer["results"]] == model.predict_topk(texts, 3).labels.tolist()

    def test_the_dial_turns(self, server, model):
        (result,) = server.predict(text=TEXT, k=5, tail=1.0)["results"]
        assert labels_of(result) == model.predict_topk([TEXT], 5, tail=1.0).labels[0].tolist()
        assert {found["probability"] for found in result["predictions"]} == {None}

    def test_only_and_exclude_take_ids_and_names(self, server, model):
        best = labels_of(server.predict(text=TEXT, k=4)["results"][0])
        (result,) = server.predict(text=TEXT, k=3, exclude=[best[0], model.label_names[best[2]]])["results"]
        assert labels_of(result)[:2] == [best[1], best[3]]
        (result,) = server.predict(text=TEXT, k=9, only=[model.label_names[best[3]], best[1]])["results"]
        assert labels_of(result) == [best[1], best[3]]
        (result,) = server.predict(text=TEXT, only=[])["results"]
        assert result["predictions"] == []

    def test_min_score_cuts(self, server):
        scores = [found["score"] for found in server.predict(text=TEXT, k=6)["results"][0]["predictions"]]
        (result,) = server.predict(text=TEXT, k=6, min_score=scores[2])["results"]
        assert [found["score"] for found in result["predictions"]] == [s for s in scores if s >= scores[2]]

    def test_names_can_be_left_out(self, server):
        (result,) = server.predict(text=TEXT, names=False)["results"]
        assert {found["name"] for found in result["predictions"]} == {None}

    def test_more_labels_than_there_are(self, server, model):
        (result,) = server.predict(text=TEXT, k=1000)["results"]
        assert 0 < len(result["predictions"]) <= model.n_labels

    def test_rows_of_features(self, server, models):
        learner = Model.load(models["features"])
        rng = np.random.default_rng(0)
        rows, dense = [], np.zeros((5, learner.learner.n_features_in_), np.float32)
        for at in range(5):
            indices = rng.choice(dense.shape[1], 30, replace=False)  # in no order
            values = rng.random(30).astype(np.float32)
            dense[at, indices] = values
            rows.append({"indices": indices.tolist(), "values": values.tolist()})
        answer = server.predict(model="features", rows=rows, k=3)
        assert [labels_of(result) for result in answer["results"]] == learner.predict_topk(dense, 3).labels.tolist()
        assert server.predict(model="features", row=rows[2], k=3)["results"] == [answer["results"][2]]
        assert answer["results"][0]["predictions"][0]["name"] is None

    def test_a_row_without_features(self, server):
        (result,) = server.predict(model="features", row={"indices": [], "values": []}, k=2)["results"]
        assert len(result["predictions"]) == 2


class TestExplanation:
    @pytest.mark.parametrize("name", ["tags", "tree", "forest"])
    def test_parts_add_up_to_the_score(self, server, name):
        (result,) = server.predict(model=name, text=TEXT, k=3, explain=True, parts=4)["results"]
        for found in result["predictions"]:
            why = found["explanation"]
            total = why["bias"] + why["others"]["contribution"] + sum(part["contribution"] for part in why["parts"])
            assert total == pytest.approx(why["score"], abs=1e-5)
            assert why["score"] == pytest.approx(found["score"], abs=1e-5)
            assert len(why["parts"]) <= 4

    def test_spans_point_at_the_words_and_share_their_contribution(self, server):
        (result,) = server.predict(text=TEXT, k=1, explain=True, parts=1000)["results"]
        why = result["predictions"][0]["explanation"]
        shares = np.zeros(len(why["parts"]))
        for span in why["spans"]:
            words = re.findall(r"\w\w+", TEXT[span["start"] : span["end"]].lower())
            assert why["parts"][span["part"]]["feature"] == " ".join(words)
            shares[span["part"]] += span["contribution"]
        np.testing.assert_allclose(shares, [part["contribution"] for part in why["parts"]], rtol=1e-5)
        places = {TEXT[span["start"] : span["end"]] for span in why["spans"]}
        assert {"window", "window manager"} <= places

    def test_offsets_can_be_counted_as_javascript_does(self, server):
        text = "𝄞𝄞 a window"
        plain, wide = (
            server.predict(text=text, k=1, explain=True, offsets=how)["results"][0]["predictions"][0]["explanation"]
            for how in ("characters", "utf-16")
        )
        start = next(s["start"] for s in plain["spans"] if text[s["start"] : s["end"]] == "window")
        assert start == 5
        encoded = text.encode("utf-16-le")
        assert any(encoded[2 * s["start"] : 2 * s["end"]].decode("utf-16-le") == "window" for s in wide["spans"])

    def test_a_long_text_is_explained_in_bounded_time_and_size(self, server):
        text = "a tiling window manager 𝄞 " * 4000
        begin = time.monotonic()
        answer = server.client.post(
            "/v1/predict", json={"text": text, "k": 15, "explain": True, "offsets": "utf-16", "nearest": 0}
        )
        assert answer.status_code == 200
        assert time.monotonic() - begin < 20
        for one in answer.json()["results"][0]["predictions"]:
            spans = one["explanation"]["spans"]
            assert 0 < len(spans) <= 1000
            part = one["explanation"]["parts"][spans[0]["part"]]
            if " " not in part["feature"]:
                assert spans[0]["contribution"] == pytest.approx(part["contribution"] / 4000, rel=1e-4)

    def test_too_long_a_text_for_so_many_labels(self, server):
        error = server.predict(413, text="window " * 100_000, k=10, explain=True)
        assert (
            error["message"]
            == "The request has 7,000,000 characters to explain, texts times k; the maximum is 2,000,000."
        )

    def test_nothing_is_explained_after_the_deadline(self, server, monkeypatch):
        served = server.service.registry.get("tags")
        explained = []
        monkeypatch.setattr(served, "nearest", lambda label, k: explained.append(label) or [])
        options = ExplainOptions(end=time.monotonic() - 1)
        with pytest.raises(ProblemDetails, match="took too long"):
            explain_row(served, "a window manager", [589, 380], options)
        assert explained == []

    def test_paths_through_trees(self, server, models):
        (found,) = server.predict(model="tree", text=TEXT, k=1, explain=True)["results"][0]["predictions"]
        steps = found["explanation"]["path"]["steps"]
        assert steps[0]["node"] == 0
        (found,) = server.predict(model="forest", text=TEXT, k=1, explain=True)["results"][0]["predictions"]
        path = found["explanation"]["path"]
        assert {step["name"] for step in path["steps"]} <= {"left", "right"}
        assert 0 < path["share"] <= 1

    def test_features_are_explained_by_number(self, server):
        row = {"indices": [5, 3], "values": [1.0, 2.0]}
        (found,) = server.predict(model="features", row=row, k=1, explain=True, nearest=0)["results"][0]["predictions"]
        assert {part["feature"] for part in found["explanation"]["parts"]} <= {"3", "5"}
        assert found["explanation"]["spans"] == []
        assert found["explanation"]["nearest"] == []

    def test_a_model_that_cannot_say_why(self, server, monkeypatch):
        monkeypatch.setattr(server.service.registry.get("popular"), "explains", False)
        error = server.predict(422, model="popular", text=TEXT, explain=True)
        assert error["message"] == "The model popular doesn't support explanations."


WRONG = [
    ({}, "Give exactly one of text, texts, row and rows."),
    ({"text": "a", "texts": ["b"]}, "Give exactly one of text, texts, row and rows."),
    ({"text": 3}, "text must be a text."),
    ({"texts": []}, "texts must hold at least 1."),
    ({"text": "a", "k": 0}, "k must be at least 1."),
    ({"text": "a", "k": True}, "k must be an integer."),
    ({"text": "a", "k": 1001}, "k asks for 1,001 labels per row; the maximum is 1,000."),
    ({"text": "a", "tail": 1.5}, "tail must be at most 1."),
    ({"text": "a", "tail": "0.5"}, "tail must be a number."),
    ({"text": "a", "only": [[1]]}, "only.0 must be a label's id or name."),
    ({"text": "a", "exclude": [1.5]}, "exclude.0 must be a label's id or name."),
    ({"text": "a", "offsets": "bytes"}, "offsets must be 'characters' or 'utf-16'."),
    ({"text": "a", "names": "yes"}, "names must be true or false."),
    ({"text": "a", "model": "m" * 65}, "model must have at most 64 characters."),
    ({"row": {"indices": [1]}}, "row.values is missing."),
    ({"row": 3}, "row must be an object."),
    ({"text": "a", "only": [598]}, "only[0] must be the name of a label, or an id from 0 to 597, got 598."),
    (
        {"text": "a", "exclude": ["no such"]},
        "exclude[0] must be the name of a label, or an id from 0 to 597, got 'no such'.",
    ),
    ({"text": "a", "wrong": 1}, "wrong is not known."),
    (
        {"text": "a", "explain": True, "k": 101},
        "The request has 101 labels to explain, rows times k; the maximum is 100.",
    ),
    ({"row": {"indices": [], "values": []}}, "The model tags takes text or texts, not row or rows."),
    ({"model": "features", "text": "a"}, "The model features takes row or rows, not texts."),
    ({"model": "features", "row": {"indices": [1, 1], "values": [1, 2]}}, "Row 0 has a feature twice: give each once."),
    ({"model": "features", "row": {"indices": [1], "values": [1, 2]}}, "Row 0 has 1 indices and 2 values."),
    ({"model": "features", "row": {"indices": [-1], "values": [1]}}, None),
    ({"model": "features", "row": {"indices": [10**8], "values": [1]}}, None),
]


@pytest.mark.parametrize(("request_", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_what_makes_no_sense_is_refused_with_a_sentence(server, request_, message):
    error = server.predict(422, **request_)
    assert error["code"] == "invalid"
    assert message is None or error["message"] == message


def test_a_model_that_is_not_there(server):
    assert server.predict(404, model="nobody", text="a")["code"] == "not_found"
