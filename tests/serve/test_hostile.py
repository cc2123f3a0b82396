"""Hostile input: refused with a sentence, in time, while other clients are served."""

import json
import socket
import time
from dataclasses import replace

import pytest

from longtail.serve.settings import ServerLimits

from .running import Running, error_of, head_of, receive

SMALL = ServerLimits(
    body_bytes=200_000,
    head_bytes=4096,
    headers=20,
    rows=50,
    text_characters=50_000,
    row_features=100,
    answer_labels=4000,
    filter_labels=30,
    connections=40,
    head_seconds=0.6,
    body_seconds=0.8,
    rest_seconds=0.5,
    idle_seconds=2,
    deadline=5,
)
POST = b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def small(models):
    with Running({name: models[name] for name in ("tags", "features")}, limits=SMALL) as running:
        yield running
        assert running.predict(text="still here")["results"]


def post(server, body, headers=JSON):
    answer = server.client.post("/v1/predict", content=body, headers=headers)
    return answer.status_code, error_of(answer)


BODIES = {
    "nothing": (b"", 400),
    "no JSON": (b"text=hello", 400),
    "cut off": (b'{"text": "a', 400),
    "invalid UTF-8": (b'{"text": "\xff\xfe"}', 400),
    "overlong UTF-8": (b'{"text": "\xc0\xaf"}', 400),
    "a lone surrogate": (b'{"text": "\\ud800"}', 400),
    "UTF-16": ('{"text": "a"}'.encode("utf-16"), 400),
    "deep lists": (b'{"texts": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", 400),
    "deep objects": (b'{"row": ' + b'{"row":' * 20_000 + b"1" + b"}" * 20_000 + b"}", 400),
    "a list": (b'[{"text": "a"}]', 422),
    "a number": (b"17", 422),
    "null": (b"null", 422),
    "NaN": (b'{"text": "a", "tail": NaN}', 422),
    "Infinity": (b'{"text": "a", "min_score": Infinity}', 422),
    "NaN as a value": (b'{"model": "features", "row": {"indices": [1], "values": [NaN]}}', 422),
    "a value beyond all numbers": (b'{"model": "features", "row": {"indices": [1], "values": [1e999]}}', 422),
    "a value beyond single precision": (b'{"model": "features", "row": {"indices": [1], "values": [1e200]}}', 422),
    "a huge integer": (b'{"text": "a", "k": ' + b"9" * 5000 + b"}", 400),
    "wrong types": (b'{"texts": {"0": "a"}, "k": [], "only": "all"}', 422),
    "null in texts": (b'{"texts": ["a", null]}', 422),
    "ids as fractions": (b'{"text": "a", "only": [1.5]}', 422),
    "a name that is none": (b'{"text": "a", "only": ["' + b"x" * 9000 + b'"]}', 422),
    "a field twice that is wrong": (b'{"text": 1, "text": 2}', 422),
    "too many rows": (json.dumps({"texts": ["a"] * 51}).encode(), 413),
    "too long a text": (json.dumps({"text": "a" * 50_001}).encode(), 413),
    "too many features": (
        json.dumps({"model": "features", "row": {"indices": list(range(101)), "values": [1] * 101}}).encode(),
        413,
    ),
    "a flood of answers": (json.dumps({"texts": ["a"] * 50, "k": 100}).encode(), 413),
    "a flood of labels": (json.dumps({"text": "a", "only": [1] * 31}).encode(), 413),
    "a flood of labels to exclude": (json.dumps({"text": "a", "exclude": list(range(200))}).encode(), 413),
    "too large a body": (b'{"text": "' + b"a" * 300_000 + b'"}', 413),
}


@pytest.mark.parametrize(("body", "status"), BODIES.values(), ids=BODIES)
def test_bodies(small, body, status):
    before = time.monotonic()
    found, error = post(small, body)
    assert found == status
    assert len(error["message"]) < 500
    assert time.monotonic() - before < 15


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""])
def test_other_kinds_of_bodies(small, kind):
    assert post(small, b'{"text": "a"}', {"content-type": kind})[0] == 415


def test_odd_words_are_words(small):
    text = (
        "\x00 \u202e \ufeff 𝔘𝔫𝔦 \U0010ffff naïve İI "
        + "é" * 1000
        + " '; DROP TABLE labels; -- <script>alert(1)</script>"
    )
    assert small.predict(text=text, explain=True, k=2)["results"][0]["predictions"]


def test_largest_values_give_numbers_or_a_sentence(small):
    for value in (1e15, -1e15, 1e-300, 0):
        answer = small.client.post(
            "/v1/predict",
            json={"model": "features", "row": {"indices": [1, 2], "values": [value, value]}, "explain": True},
        )
        assert answer.status_code in (200, 422)
        json.loads(answer.text, parse_constant=lambda name: pytest.fail(name))


def test_a_body_that_says_it_is_huge_is_refused_before_it_comes(small):
    head = POST + b"content-length: 99999999999\r\n\r\n"
    assert head_of(small.send(head)) == (413, "too_large")


def test_a_body_in_endless_chunks_is_cut_off(small):
    head = POST + b"transfer-encoding: chunked\r\n\r\n"
    chunk = b"4000\r\n" + b"a" * 0x4000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", small.port), timeout=5) as connection:
        connection.sendall(head)
        try:
            for _ in range(200):
                connection.sendall(chunk)
        except OSError:
            pass
        found = receive(connection)
    assert head_of(found) == (413, "too_large")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx-long: " + b"a" * 5000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"x-%d: 1\r\n" % number for number in range(30)) + b"\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx-endless: " + b"a" * 100_000,
    ],
    ids=["address", "header", "many headers", "endless header"],
)
def test_heads_have_limits(small, head):
    assert head_of(small.send(head)) == (431, "head_too_large")


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01\x02\x00\x01\x00", b"HELLO\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x00" * 100]
)
def test_what_is_no_http(small, data):
    found = small.send(data)
    assert head_of(found) == (400, "bad_request")


def test_a_body_that_trickles_is_given_up(small):
    head = POST + b"content-length: 1000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", small.port), timeout=5) as connection:
        connection.sendall(head)
        before = time.monotonic()
        try:
            while time.monotonic() - before < 20:
                connection.sendall(b" ")
                time.sleep(0.1)
        except OSError:
            pass
        taken = time.monotonic() - before
        found = receive(connection)
    assert taken < 15
    assert head_of(found) == (408, "body_timeout")


@pytest.mark.parametrize("begin", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: localhost\r\nx-slow: "])
def test_a_head_that_trickles_is_given_up(small, begin):
    before = time.monotonic()
    assert small.send(begin, wait=20) == b""
    assert 0.4 < time.monotonic() - before < 15


def test_a_head_that_trickles_after_a_request_is_given_up_too(models):
    """After the time for a head, long before the time that a connection may be idle."""
    with (
        Running({"tags": models["tags"]}, limits=replace(SMALL, idle_seconds=120)) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection,
    ):
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert b"200 OK" in connection.recv(65536)
        connection.sendall(b"GET /hea")
        before = time.monotonic()
        assert receive(connection) == b""
        assert time.monotonic() - before < 30


def test_excess_connections_get_a_refusal(small):
    time.sleep(0.1)
    connections = []
    try:
        for _ in range(60):
            connections.append(socket.create_connection(("127.0.0.1", small.port), timeout=5))
        refused = [found for found in map(receive, connections[-10:]) if found]
        assert refused
        assert all(head_of(found) == (503, "not_ready") for found in refused)
    finally:
        for connection in connections:
            connection.close()
    deadline = time.monotonic() + 5
    while small.client.get("/healthz").status_code != 200:
        assert time.monotonic() < deadline


def test_pipelined_requests_are_answered_in_turn(small):
    one = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    assert small.send(one * 50 + last).count(b"200 OK") == 51


def test_a_client_that_leaves_is_forgotten(small):
    body = json.dumps({"texts": ["a b c"] * 50}).encode()
    head = POST + b"content-length: %d\r\n\r\n"
    for cut in (0, 10, len(body)):
        with socket.create_connection(("127.0.0.1", small.port), timeout=5) as connection:
            connection.sendall(head % len(body) + body[:cut])
    assert small.predict(text="a")["results"]


def test_a_client_that_does_not_take_its_answer_is_cut_off(models):
    limits = ServerLimits(write_seconds=0.5, answer_labels=1_000_000)
    body = json.dumps({"texts": ["a"] * 300, "k": 598}).encode()
    head = POST + b"content-length: %d\r\n\r\n"
    with Running({"tags": models["tags"]}, limits=limits) as server:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", server.port))
            connection.sendall(head % len(body) + body)
            deadline = time.monotonic() + 20
            while not server.server.server_state.total_requests:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            while server.server.server_state.connections:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        assert server.get("/healthz") == {"status": "ok"}


def test_pages_of_other_sites_may_not_act(small):
    for site in ("cross-site", "same-site"):
        answer = small.client.post("/v1/models/tags:reload", headers={"sec-fetch-site": site})
        assert answer.status_code == 403
        assert error_of(answer)["code"] == "forbidden"
    assert small.client.post("/v1/models/tags:reload", headers={"sec-fetch-site": "same-origin"}).status_code == 200


def test_other_methods_and_paths(small):
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        answer = small.client.request(method, "/v1/predict")
        assert (answer.status_code, error_of(answer)["code"]) == (405, "method_not_allowed")
    for path in ("/v2/predict", "/v1", "/docs", "/redoc", "/v1/predict/"):
        answer = small.client.get(path)
        assert answer.status_code in (404, 405, 422), path
        error_of(answer)


def test_actions_of_models(small):
    for method in ("GET", "PUT", "DELETE"):
        answer = small.client.request(method, "/v1/models/tags:reload")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        assert error_of(answer)["code"] == "method_not_allowed"
        for action in ("relod", "reload:reloads", "%0a"):
            answer = small.client.request("POST" if method == "PUT" else method, f"/v1/models/tags:{action}")
            assert answer.status_code == 404
            assert error_of(answer)["message"].startswith(
                "A model has no such action: the only one is POST /v1/models/NAME:reload"
            )


def test_internal_errors_show_no_internals(small, monkeypatch):
    served = small.service.registry.get("tags")

    def broken(*_):
        raise RuntimeError("secret /path/of/ours")

    monkeypatch.setattr(served, "predict", broken)
    answer = small.client.post("/v1/predict", json={"text": "a"})
    assert answer.status_code == 500
    assert error_of(answer)["code"] == "internal"
    assert "secret" not in answer.text
