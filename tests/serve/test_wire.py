"""What goes over the wire: one answer to each request, whatever is refused and however its bytes are cut."""

import contextlib
import http.client
import json
import re
import socket
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from longtail import Model, Popularity
from longtail.errors import InputError, ModelError
from longtail.serve.explaining import ExplainOptions, _explained
from longtail.serve.labels import Labels
from longtail.serve.models import Served
from longtail.serve.problems import ProblemDetails
from longtail.serve.settings import ServerLimits
from longtail.serve.spans import find_places, words

from .running import Running, error_of, head_of, receive

KEY = b"a-key-of-ours"
POST = b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("wire") / "tiny"
    Model(Popularity().fit([[1], [2]], [[1, 0], [1, 1]]), label_names=["a", "b"]).save(place)
    return place


@pytest.fixture(scope="module")
def guarded(place):
    with Running({"tiny": place}, keys=[KEY.decode()]) as running:
        yield running


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=5)


def send_on(connection, data):
    """Send to a server that may have closed the connection."""
    with contextlib.suppress(OSError):
        connection.sendall(data)


class TestARefusalBeforeTheBody:
    """It is the only answer, and the connection ends with it: nothing of the body is taken for another request."""

    def ask(self, server, head, parts):
        with connect(server) as connection:
            connection.sendall(head)
            answer = connection.recv(65536)
            for part in parts:
                send_on(connection, part)
            return answer + receive(connection)

    @pytest.mark.parametrize(
        ("more", "status"),
        [(b"", b"401"), (b"x-api-key: %s\r\nsec-fetch-site: cross-site\r\n" % KEY, b"403")],
        ids=["no key", "another site"],
    )
    def test_is_the_only_answer(self, guarded, more, status):
        head = POST + more + b"content-length: 60000\r\n\r\n"
        found = self.ask(guarded, head, [b"a" * 20_000] * 3)
        assert found.startswith(b"HTTP/1.1 " + status)
        assert found.count(b"HTTP/1.1") == 1
        assert b"connection: close" in found

    def test_hides_no_request_in_a_body(self, guarded):
        hidden = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
        found = self.ask(guarded, POST + b"content-length: %d\r\n\r\n" % len(hidden), [hidden])
        assert found.count(b"HTTP/1.1") == 1

    def test_of_too_many_requests(self, place):
        with Running({"tiny": place}, limits=ServerLimits(requests=1)) as server, connect(server) as waiting:
            waiting.sendall(POST + b"content-length: 10\r\n\r\n")
            waiting.settimeout(0.2)
            assert receive(waiting) == b""  # it is in progress now
            found = self.ask(server, POST + b"content-length: 60000\r\n\r\n", [b"a" * 20_000] * 3)
        assert head_of(found) == (429, "busy")
        assert found.count(b"HTTP/1.1") == 1
        assert b"connection: close" in found

    def test_without_a_body_keeps_the_connection(self, guarded):
        ask = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n"
        found = guarded.send(ask + b"\r\n" + ask + b"connection: close\r\n\r\n")
        assert found.count(b"HTTP/1.1 401") == 2


def test_a_body_that_no_one_asked_for_is_no_head(guarded):
    """A GET with a body: what follows is counted as body, not as the head of the next request."""
    body = b"a" * 20_000
    with connect(guarded) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 40000\r\n\r\n" + body)
        connection.sendall(body + b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        found = receive(connection)
    assert found.count(b"HTTP/1.1 200") == found.count(b"HTTP/1.1") == 2


@pytest.mark.parametrize("cuts", [(), (20,), (4000,), (9000,), (20, 4000, 4001, 9000)])
@pytest.mark.parametrize(("size", "status"), [(9000, b"200"), (16_200, b"200"), (16_500, b"431")])
def test_a_head_counts_the_same_in_any_number_of_pieces(guarded, size, status, cuts):
    head = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-long: " + b"a" * size + b"\r\n\r\n"
    with connect(guarded) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for begin, end in pairwise([0, *cuts, len(head)]):
            send_on(connection, head[begin:end])
            time.sleep(0.02)
        assert receive(connection).split()[1] == status


@pytest.mark.parametrize("size", [5 << 20, 20 << 20])
def test_a_client_that_sends_too_large_a_body_gets_the_refusal(guarded, size):
    client = http.client.HTTPConnection("127.0.0.1", guarded.port, timeout=10)
    headers = {"content-type": "application/json", "x-api-key": KEY.decode()}
    client.request("POST", "/v1/predict", b"a" * size, headers)
    answer = client.getresponse()
    assert answer.status == 413
    assert json.loads(answer.read())["error"]["code"] == "too_large"
    client.close()


def refused(server, size, headers=None):
    """Answer to an ordinary client that sends all it has before it reads."""
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    client.connect()
    time.sleep(0.1)  # so that one that is refused at once has been
    client.request("POST", "/v1/predict", b"a" * size, headers or {})
    answer = client.getresponse()
    found = answer.status, json.loads(answer.read())["error"]["code"]
    client.close()
    return found


@pytest.mark.parametrize("size", [10, 5 << 20])
def test_refusals_on_the_wire_reach_a_client_that_still_sends(place, size):
    with Running({"tiny": place}, limits=ServerLimits(connections=3)) as server:
        assert refused(server, size, {"x-long": "a" * 20_000}) == (431, "head_too_large")
        assert refused(server, size, {"content-length": "x"}) == (400, "bad_request")
        with connect(server), connect(server), connect(server):
            time.sleep(0.2)
            for _ in range(6):
                assert refused(server, size) == (503, "not_ready")


def is_closed(connection):
    try:
        connection.sendall(b"a")
    except OSError:
        return True
    return False


def wait_for(condition, seconds=20):
    """Ask until something is true, and return it; after the time limit, return the last answer."""
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def test_refused_connections_keep_no_place_and_are_bounded(place):
    with Running({"tiny": place}, limits=ServerLimits(connections=2, rest_seconds=30)) as server:
        kept = [connect(server) for _ in range(2)]
        time.sleep(0.2)
        lingering = [connect(server) for _ in range(4)]
        for connection in lingering:
            assert b"503" in connection.recv(65536)
        ended = wait_for(lambda: len(closed := [c for c in lingering if is_closed(c)]) >= 2 and closed)
        assert len(ended) == 2, "two are let send on, the others were closed at once"
        for connection in kept:
            connection.close()
        health = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        assert wait_for(lambda: b"200" in server.send(health))
        for connection in lingering:
            connection.close()


def test_an_explanation_is_given_up_along_a_long_text_and_between_labels():
    ticks = iter(range(1000))

    def check():
        if next(ticks) >= 3:
            raise ProblemDetails("deadline", "late")

    with pytest.raises(ProblemDetails):
        find_places(words("red car " * 20_000), {"red"}, check=check)
    assert next(ticks) == 4, "at the fourth look, not at the end"
    seen = []

    def explain(labels):
        seen.append(labels)
        time.sleep(0.06)
        return []

    with pytest.raises(ProblemDetails, match="took too long"):
        _explained(explain, list(range(100)), ExplainOptions(end=time.monotonic() + 0.1))
    assert 1 <= len(seen) <= 3
    assert max(len(some) for some in seen) < 100


def flood(connection, data, times, pause):
    """Send again and again until the server has closed the connection, which it must have in the end."""
    for _ in range(times):
        try:
            connection.sendall(data)
        except (ConnectionResetError, BrokenPipeError):
            return
        time.sleep(pause)
    pytest.fail("the server took it all")


def test_the_discarded_part_of_a_body_is_bounded(place):
    limits = ServerLimits(body_bytes=1000, rest_bytes=1_000_000, rest_seconds=0.3)
    with Running({"tiny": place}, limits=limits) as server:
        with connect(server) as connection:
            connection.sendall(POST + b"content-length: 99999999\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 413")
            flood(connection, b"a" * 65536, 400, 0)
        with connect(server) as connection:
            connection.sendall(POST + b"content-length: 99999999\r\n\r\n")
            flood(connection, b"a", 60, 0.05)


def status_of(server, head):
    return int(server.send(head + b"connection: close\r\nx-api-key: %s\r\n\r\n" % KEY).split()[1])


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"localhost", 200), (b"127.0.0.1:8000", 200), (b"[::1]:8000", 200), (b"[::1]", 200), (b"LocalHost:1", 200),
        (b"evil.example", 403), (b"evil.example:8000", 403), (b"localhost.evil.example", 403), (b"127.0.0.1.evil", 403),
        (b"", 403),
    ],
)  # fmt: skip
def test_other_names_for_this_machine_are_refused(guarded, host, status):
    """A page whose name is made to lead to loopback still sends that name."""
    for path in (b"/", b"/v1/models"):
        assert status_of(guarded, b"GET %s HTTP/1.1\r\nhost: %s\r\n" % (path, host)) == status


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        (b"localhost:8000", b"http://localhost:8000", 200),
        (b"localhost:8000", b"http://localhost:3000", 403),
        (b"localhost:8000", b"http://evil.example", 403),
        (b"localhost:8000", b"null", 403),
    ],
)
def test_the_page_that_asks_is_the_one_of_this_server(guarded, host, origin, status):
    ask = b"POST /v1/models/tiny:reload HTTP/1.1\r\nhost: %s\r\norigin: %s\r\n" % (host, origin)
    assert status_of(guarded, ask) == status


def test_other_names_can_be_allowed(place):
    with Running({"tiny": place}, allowed_hosts=["Models.example"]) as server:
        ask = b"POST /v1/models/tiny:reload HTTP/1.1\r\nhost: %s\r\norigin: https://models.example\r\n"
        assert status_of(server, ask % b"models.example") == status_of(server, ask % b"127.0.0.1:8000") == 200
        assert status_of(server, b"GET / HTTP/1.1\r\nhost: other.example\r\n") == 403
    with Running({"tiny": place}, host="0.0.0.0") as server:
        assert status_of(server, b"GET / HTTP/1.1\r\nhost: other.example\r\n") == 200


@pytest.mark.parametrize("path", [b"/healthz", b"/readyz"])
def test_health_takes_no_body(guarded, path):
    found = guarded.send(b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4000000\r\n\r\n" % path)
    assert head_of(found) == (405, "method_not_allowed")
    assert b"allow: GET" in found


def test_bodies_in_progress_are_bounded_together(place):
    body = b'{"row": {"indices": [0], "values": [1.0]}}'.ljust(1000)
    with Running({"tiny": place}, limits=ServerLimits(held_bytes=2500)) as server:
        ask = {"content": body, "headers": {"content-type": "application/json"}}
        for _ in range(5):
            assert server.client.post("/v1/predict", **ask).status_code == 200
        with connect(server) as one, connect(server) as other:
            for connection in (one, other):
                connection.sendall(POST + b"content-length: 1001\r\n\r\n" + body)
            time.sleep(1)  # both are read before another one comes
            deadline = time.monotonic() + 20
            while server.client.post("/v1/predict", **ask).status_code != 429:
                assert time.monotonic() < deadline
            one.sendall(b" ")
            assert one.recv(65536).startswith(b"HTTP/1.1 200")
        assert server.client.post("/v1/predict", **ask).status_code == 200


def test_a_large_body_does_not_wait_behind_questions(place, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr("longtail.serve.app.find_labels", lambda *_: gate.wait(20) and {})
    body = b'{"row": {"indices": [0], "values": [1.0]}}'.ljust(300_000)
    with Running({"tiny": place}, limits=ServerLimits(deadline=5)) as server, connect(server) as asking:
        asking.sendall(b"GET /v1/labels HTTP/1.1\r\nhost: localhost\r\n\r\n")
        asking.settimeout(0.2)
        assert receive(asking) == b""  # it has the thread for questions
        answer = server.client.post("/v1/predict", content=body, headers={"content-type": "application/json"})
        gate.set()
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RuntimeError("secret /path/of/ours"), 500, "internal"),
        (ModelError("secret /path/of/ours"), 500, "internal"),
        (InputError("a sentence."), 422, "invalid"),
    ],
)
def test_errors_of_questions_have_the_shape_of_all_errors(place, monkeypatch, error, status, code):
    def broken(*_):
        raise error

    monkeypatch.setattr("longtail.serve.app.find_labels", broken)
    with Running({"tiny": place}) as server:
        answer = server.client.get("/v1/labels")
    assert answer.status_code == status
    assert error_of(answer)["code"] == code
    assert "secret" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_description_of_models_names_the_deadline(guarded):
    described = guarded.get("/openapi.json")["paths"]
    assert all("504" in described[path]["get"]["responses"] for path in ("/v1/models", "/v1/models/{name}"))


def test_the_label_whose_name_is_asked_for_comes_first():
    names = ["ruby", "r", "a ruby"]
    labels = Labels(Model(Popularity().fit([[1], [1]], [[1, 0, 1], [1, 1, 1]]), label_names=names))
    assert [one["name"] for one in labels.search("R", limit=2)[1]] == ["r", "ruby"]


def test_near_takes_no_filters(place):
    with Running({"tiny": place}) as server:
        for more in ({"bin": "tail"}, {"min_rows": 1}, {"max_rows": 3}, {"order": "name"}, {"q": "a"}, {"offset": 1}):
            assert "near can be combined with limit only" in server.get("/v1/labels", 422, near=0, **more)["message"]
        assert server.get("/v1/labels", near=0, limit=3)["labels"] == []


def test_neighbours_are_kept_for_labels_asked_for_lately(place, monkeypatch):
    asked = []

    class Line:
        """Labels on a line; the label 1 has two neighbours alone."""

        def nearest(self, label, k):
            asked.append((label, k))
            return [(0, 1.0 / at) for at in range(1, (2 if label == 1 else k) + 1)]

    served = Served("tiny", Model.load(place), "0")
    served.__dict__["space"] = Line()
    monkeypatch.setattr("longtail.serve.models._KEPT_LABELS", 2)
    assert [len(served.nearest(1, k)) for k in (5, 10, 1000)] == [2, 2, 2]
    assert len(asked) == 1
    assert [len(served.nearest(0, k)) for k in (200, 50, 10)] == [200, 50, 10]
    assert len(asked) == 2
    assert max(len(kept) for kept, _ in served._neighbours.values()) == 50
    served.nearest(1, 5)
    served.nearest(2, 5)  # 0 goes, which was asked for longest ago
    served.nearest(1, 5)
    assert len(asked) == 3


def test_containers_mount_the_directory_of_models():
    """A mount of the model itself would still show the old version, which is gone, after a new one was saved."""
    root = Path(__file__).parents[2]
    for name in ("Dockerfile", "docs/how-to/serve-a-model.md"):
        mounts = re.findall(r"-v (\S+):ro longtail (\S+)", (root / name).read_text("utf-8"))
        assert mounts, name
        assert all(Path(model).parent == Path(mount.split(":")[1]) for mount, model in mounts)
