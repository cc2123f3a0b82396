"""A new version of a model is loaded while requests continue."""

import shutil
import threading
import time

import pytest

from longtail import Model
from longtail.errors import ModelError

from .running import Running, error_of


@pytest.fixture
def place(models, tmp_path):
    shutil.copytree(models["tags"], tmp_path / "tags")
    return tmp_path / "tags"


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def save_version(place, number):
    model = Model.load(place)
    model.training["version"] = number
    model.save(place)


def largest_file(place):
    return max(place.glob("*.npy"), key=lambda path: path.stat().st_size)


def damage(file):
    """Change the last byte in place."""
    with open(file, "r+b") as opened:
        opened.seek(-1, 2)
        last = opened.read(1)[0]
        opened.seek(-1, 2)
        opened.write(bytes([last ^ 1]))


def refused_reload(server):
    answer = server.client.post("/v1/models/tags:reload")
    error = error_of(answer)
    assert (answer.status_code, error["code"]) == (409, "reload_failed")
    assert "its checksum is wrong" in error["message"]
    return error["message"]


def test_nothing_changes_without_a_new_version(place):
    with Running({"tags": place}) as server:
        before = server.get("/v1/models/tags")
        answer = server.client.post("/v1/models/tags:reload").json()
        assert answer == {"name": "tags", "version": before["version"], "changed": False, "workers": 1}
        assert server.get("/v1/models/tags") == before


def test_requests_continue_while_versions_change(place):
    with Running({"tags": place}) as server:
        first = server.get("/v1/models/tags")["version"]
        seen, wrong, stop = set(), [], threading.Event()

        def ask():
            import httpx

            with httpx.Client(base_url=server.url, timeout=30) as client:
                while not stop.is_set():
                    answer = client.post("/v1/predict", json={"texts": ["a window", "a game"], "k": 3})
                    if answer.status_code != 200:
                        wrong.append(answer.text)
                    seen.add(answer.json()["version"])

        askers = [threading.Thread(target=ask) for _ in range(3)]
        for asker in askers:
            asker.start()
        for number in range(5):
            save_version(place, number)
            answer = server.client.post("/v1/models/tags:reload").json()
            assert answer["changed"]
            assert server.predict(text="a")["version"] == answer["version"]
        stop.set()
        for asker in askers:
            asker.join()
        assert wrong == []
        assert first in seen
        metrics = server.client.get("/metrics").text
        assert f'longtail_model_info{{model="tags",recipe="dismec",version="{first}"}} 0.0' in metrics
        assert f'version="{answer["version"]}"}} 1.0' in metrics


def test_a_damaged_version_is_refused_and_the_old_one_stays(place):
    with Running({"tags": place}) as server:
        before = server.predict(text="a window")
        save_version(place, 1)
        damage(largest_file(place))
        assert str(place.parent) not in refused_reload(server)
        assert server.predict(text="a window") == before
        assert server.get("/readyz") == {"status": "ready"}


@pytest.mark.parametrize("find", [largest_file, lambda place: min(place.glob("*.npy"))], ids=["largest", "first"])
def test_damage_in_place_is_noticed_although_the_version_is_as_before(place, find):
    with Running({"tags": place}) as server:
        before, file = server.predict(text="a window"), find(place)
        content = file.read_bytes()
        damage(file)
        refused_reload(server)
        refused_reload(server)
        assert server.get("/v1/models/tags")["version"] == before["version"]
        assert server.get("/readyz") == {"status": "ready"}
        mended = place / "mended"
        mended.write_bytes(content)
        mended.rename(file)  # another file than the one that is mapped
        answer = server.client.post("/v1/models/tags:reload")
        assert (answer.status_code, answer.json()["changed"]) == (200, False)
        assert server.predict(text="a window") == before


def test_not_ready_before_models_are_loaded(place, monkeypatch):
    from longtail.serve import models as serving

    gate, load = threading.Event(), serving.load

    def slow(*arguments):
        gate.wait(30)
        return load(*arguments)

    monkeypatch.setattr(serving, "load", slow)
    with Running({"tags": place}, wait=False) as server:
        until(lambda: server.server.started)
        assert server.get("/healthz") == {"status": "ok"}
        answer = server.client.get("/readyz")
        assert (answer.status_code, answer.json()) == (503, {"status": "loading"})
        assert server.predict(503, text="a")["code"] == "not_ready"
        assert server.get("/v1/models") == {"models": [], "loading": ["tags"]}
        gate.set()
        until(lambda: server.service.is_ready)
        assert server.get("/readyz") == {"status": "ready"}
        assert server.predict(text="a")["results"]


def test_a_full_queue_answers_429_and_what_was_taken_is_answered(place, monkeypatch):
    from concurrent.futures import ThreadPoolExecutor

    from longtail.serve.settings import ServerLimits

    gate = threading.Event()
    with Running({"tags": place}, threads=1, limits=ServerLimits(queued_rows=3, requests=6)) as server:
        served = server.service.registry.get("tags")
        predict = served.predict
        monkeypatch.setattr(served, "predict", lambda *arguments: gate.wait(20) and predict(*arguments))
        with ThreadPoolExecutor(12) as pool:
            asked = [
                pool.submit(server.client.post, "/v1/predict", json={"text": "a", "k": 1 + number})
                for number in range(12)
            ]
            until(lambda: sum(one.done() for one in asked) >= 8)
            gate.set()
            answers = [one.result() for one in asked]
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {200, 429}
    assert statuses.count(200) == 4  # one in the thread, three in the queue
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.headers["retry-after"] == "1"
    assert error_of(refused)["code"] == "busy"


def test_a_damaged_model_ends_a_server_that_starts(place):
    largest = largest_file(place)
    largest.write_bytes(largest.read_bytes()[:-1])
    with Running({"tags": place}, wait=False) as server:
        server.thread.join(30)
        assert isinstance(server.service.failure, ModelError)
