"""Models, labels, health, metrics, the page, keys and the description."""

import re

import numpy as np
import pytest
from sklearn.metrics.pairwise import cosine_similarity

from longtail import Model
from longtail.serve.pages import page_files

from .running import Running, error_of


class TestModels:
    def test_what_they_are(self, server, models):
        found = {one["name"]: one for one in server.get("/v1/models")["models"]}
        assert list(found) == list(models)
        tags, model = found["tags"], Model.load(models["tags"])
        assert (tags["labels"], tags["rows"], tags["recipe"]) == (model.n_labels, model.n_rows, "dismec")
        assert (tags["takes"], found["features"]["takes"]) == ("texts", "features")
        assert (tags["calibrated"], found["tree"]["calibrated"]) == (True, False)
        assert (tags["has_names"], found["features"]["has_names"]) == (True, False)
        assert [found[name]["has_explanations"] for name in models] == [True] * 5
        assert [found[name]["nearest_by"] for name in models] == ["weights", "leaves", "leaves", None, "weights"]
        assert [found[name]["has_tree"] for name in models] == [False, True, False, False, False]
        assert tags["trained_on"] == "debian-tags:train"
        assert f'"checksum": "{tags["checksum"]}"' in (models["tags"] / "model.json").read_text()
        bins = tags["frequencies"]["bins"]
        assert sum(bin["labels"] for bin in bins.values()) == model.n_labels
        assert bins["head"]["least_rows"] > bins["torso"]["most_rows"]
        assert server.get("/v1/models/tags") == tags

    def test_unknown(self, server):
        assert server.get("/v1/models/nobody", 404)["code"] == "not_found"


class TestLabels:
    def test_most_frequent_first(self, server, models):
        found = server.get("/v1/labels", limit=5)
        counts = Model.load(models["tags"]).label_counts
        assert [one["training_rows"] for one in found["labels"]] == sorted(counts, reverse=True)[:5]
        assert found["total"] == len(counts)
        following = server.get("/v1/labels", limit=3, offset=2)["labels"]
        assert following == found["labels"][2:5]

    def test_by_name(self, server):
        found = server.get("/v1/labels", q="GAME", limit=1000)
        names = [one["name"] for one in found["labels"]]
        assert names
        assert all("game" in name for name in names)
        begins = [name.startswith("game") for name in names]
        assert begins == sorted(begins, reverse=True)

    def test_by_frequency(self, server):
        found = server.get("/v1/labels", bin="tail", min_rows=2, max_rows=4, order="name", limit=1000)["labels"]
        assert {one["bin"] for one in found} == {"tail"}
        assert all(2 <= one["training_rows"] <= 4 for one in found)
        assert [one["name"] for one in found] == sorted((one["name"] for one in found), key=str.lower)

    @pytest.mark.parametrize("path", ["/v1/labels", "/v1/labels/17"])
    def test_a_parameter_that_is_not_known_is_refused_by_name(self, server, path):
        error = server.get(path, 422, model="tags", serach="game")
        assert error["code"] == "invalid"
        assert error["message"].startswith("There is no parameter 'serach': the path takes model, ")
        assert len(server.get(path, 422, **{"x" * 500: 1})["message"]) < 300

    def test_near(self, server):
        found = server.get("/v1/labels", near=17, limit=4)["labels"]
        assert found == server.get("/v1/labels/17", nearest=4)["nearest"]
        assert server.get("/v1/labels", 422, near=17, q="a")["code"] == "invalid"
        assert server.get("/v1/labels", 404, near=5000)["code"] == "not_found"

    def test_nearest_are_those_with_the_smallest_angle(self, server, models):
        coef = Model.load(models["tags"]).learner.learner_.coef_
        label = int(np.argmax(Model.load(models["tags"]).label_counts))
        cosines = cosine_similarity(coef[[label]], coef).ravel()
        cosines[label] = -1
        found = server.get(f"/v1/labels/{label}", nearest=20)["nearest"]
        best = np.sort(cosines)[::-1][:20]
        np.testing.assert_allclose([one["similarity"] for one in found], best[best > 0], rtol=1e-3)
        np.testing.assert_allclose([cosines[one["label"]] for one in found], best[best > 0], rtol=1e-3)

    def test_strongest_words_have_the_largest_weights(self, server, models):
        learner = Model.load(models["tags"]).learner
        weights = learner.learner_.coef_[[589]].toarray().ravel()
        names = learner.features_.feature_names()
        found = server.get("/v1/labels/589", words=10)
        assert found["name"] == "x11::window-manager"
        assert found["share_of_rows"] == float(f"{found['training_rows'] / 1200:.7g}")
        assert [word["weight"] for word in found["words"]] == pytest.approx(np.sort(weights)[::-1][:10])
        assert all(weights[names.index(word["feature"])] == pytest.approx(word["weight"]) for word in found["words"])

    def test_a_label_of_a_tree(self, server):
        found = server.get("/v1/labels/380", model="tree", nearest=5)
        assert found["path"]["steps"][0]["node"] == 0
        assert found["nearest_by"] == "leaves"
        assert found["words"][0]["weight"] >= found["words"][-1]["weight"] > 0

    def test_a_label_that_no_row_has(self, server, models):
        label = int(np.flatnonzero(Model.load(models["tags"]).label_counts == 0)[0])
        for name in ("tags", "tree", "forest", "popular"):
            found = server.get(f"/v1/labels/{label}", model=name)
            assert (found["training_rows"], found["bin"], found["nearest"]) == (0, "tail", [])

    @pytest.mark.parametrize("path", ["/v1/labels/598", "/v1/labels/1000000000"])
    def test_unknown(self, server, path):
        assert server.get(path, 404)["code"] == "not_found"

    @pytest.mark.parametrize("path", ["/v1/labels/x", "/v1/labels/-1", "/v1/labels/" + "9" * 40])
    def test_no_id(self, server, path):
        assert server.get(path, 422)["code"] == "invalid"


class TestHealth:
    def test_lives_and_is_ready(self, server):
        assert server.get("/healthz") == {"status": "ok"}
        assert server.get("/readyz") == {"status": "ready"}

    @pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/metrics", "/v1/models", "/v1/labels?x=1", "/no"])
    def test_head_is_as_get_without_a_body(self, server, path):
        get, head = server.client.get(path), server.client.head(path)
        assert (head.status_code, head.content) == (get.status_code, b"")
        assert head.headers["content-type"] == get.headers["content-type"]
        if path != "/metrics":
            assert head.headers["content-length"] == get.headers["content-length"] == str(len(get.content))
        raw = server.send(f"HEAD {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
        assert raw.endswith(b"\r\n\r\n")

    def test_head_of_what_takes_post_alone(self, server):
        assert server.client.head("/v1/predict").status_code == 405
        assert server.client.head("/v1/models/tags:reload").status_code == 405

    def test_metrics_count(self, server):
        def value(pattern):
            found = re.search(pattern + r"\S* ([\d.e+]+)", server.client.get("/metrics").text)
            return float(found.group(1)) if found else 0.0

        before = value('longtail_rows_total{model="tree"}')
        server.predict(model="tree", texts=["a"] * 7)
        server.predict(404, model="nobody", text="a")
        assert value('longtail_rows_total{model="tree"}') == before + 7
        assert value('longtail_errors_total{code="not_found"}') >= 1
        assert value('longtail_request_seconds_count{path="/v1/predict"}') >= 2
        version = server.get("/v1/models/tree")["version"]
        assert value(f'longtail_model_info{{model="tree",recipe="",version="{version}"}}') == 1

    def test_paths_of_strangers_make_no_series(self, server):
        server.client.get("/some/path/of/mine")
        assert "some/path" not in server.client.get("/metrics").text


class TestPage:
    def test_index_and_its_headers(self, server):
        answer = server.client.get("/")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        again = server.client.get("/", headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")

    @pytest.mark.parametrize(
        "path",
        [
            "/../pages.py",
            "/..%2fpages.py",
            "/%2e%2e/pages.py",
            "//etc/passwd",
            "/page/index.html",
            "/index.html/",
            "/..",
        ],
    )
    def test_no_other_file_is_reached(self, server, path):
        raw = server.send(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
        assert b" 404 " in raw.split(b"\r\n")[0]

    def test_nothing_is_fetched_from_elsewhere(self):
        for path, file in page_files().items():
            if file.kind.startswith("text/"):
                found = re.findall(rb"""(?:src|href|url)\s*[=(]\s*["']?(?:https?:)?//""", file.content)
                assert not found, path


class TestKeys:
    @pytest.fixture(scope="class")
    @classmethod
    def guarded(cls, models):
        with Running({"tags": models["tags"]}, keys=["first-key-1", "second-key-2"]) as running:
            yield running

    def test_without(self, guarded):
        answer = guarded.client.get("/v1/models")
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert error_of(answer)["code"] == "unauthorised"
        for path in ("/metrics", "/v1/labels", "/v1/labels/1"):
            assert guarded.client.get(path).status_code == 401
        assert guarded.client.post("/v1/predict", json={"text": "a"}).status_code == 401
        assert guarded.client.post("/v1/models/tags:reload").status_code == 401

    @pytest.mark.parametrize(
        "headers",
        [
            {"authorization": "Bearer first-key-1"},
            {"authorization": "bearer second-key-2"},
            {"x-api-key": "second-key-2"},
        ],
    )
    def test_with(self, guarded, headers):
        assert guarded.client.get("/v1/models", headers=headers).status_code == 200
        assert guarded.client.post("/v1/predict", json={"text": "a"}, headers=headers).status_code == 200

    @pytest.mark.parametrize(
        "headers",
        [
            {"authorization": "Bearer first-key-"},
            {"authorization": "Basic first-key-1"},
            {"x-api-key": ""},
            {"x-api-key": "first-key-1 second-key-2"},
        ],
    )
    def test_with_another(self, guarded, headers):
        assert guarded.client.get("/v1/models", headers=headers).status_code == 401

    def test_health_and_the_page_are_open(self, guarded):
        for path in ("/healthz", "/readyz", "/", "/openapi.json"):
            assert guarded.client.get(path).status_code == 200


def test_description_names_every_path_and_error(server):
    described = server.get("/openapi.json")
    assert set(described["paths"]) == {
        "/healthz", "/readyz", "/metrics", "/v1/predict", "/v1/models", "/v1/models/{name}",
        "/v1/models/{name}:reload", "/v1/labels", "/v1/labels/{label}",
    }  # fmt: skip
    predict = described["paths"]["/v1/predict"]["post"]
    assert set(predict["responses"]) >= {"200", "400", "401", "413", "422", "429", "503", "504"}
    examples = predict["requestBody"]["content"]["application/json"]["examples"]
    for example in examples.values():
        model = "features" if "rows" in example["value"] else "tags"
        server.predict(**{**example["value"], "model": model})
