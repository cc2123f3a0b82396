"""`longtail serve` as people start it: signals, several processes, and how it ends."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest

from longtail import Model, Popularity
from longtail.errors import InputError
from longtail.serve.sockets import bind

START = "from longtail.cli import main; main()"


class Process:
    """A server in a process of its own."""

    def __init__(self, *arguments, module=False, before="", **environment):
        command = [sys.executable, "-c", before + START, "serve"]
        if module:
            command = [sys.executable, "-m", "longtail.serve"]
        self.process = subprocess.Popen(
            [*command, *map(str, arguments), "--port", "0"],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "LONGTAIL_DEBUG": "0", **environment},
        )
        self.port = None

    def __enter__(self):
        for line in self.process.stderr:
            if found := re.search(r"Listening on http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found.group(1))
                break
        assert self.port, "it did not start"
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30)
        self.until(lambda: self.client.get("/readyz").status_code == 200)
        return self

    def __exit__(self, *error):
        self.client.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=30)

    @staticmethod
    def until(condition, seconds=60):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=30)
        return self.process.returncode, err

    def listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
        except OSError:
            return False
        return True

    def workers(self):
        return [int(pid) for pid in open(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read().split()]


@pytest.fixture
def tiny(tmp_path):
    Model(Popularity().fit([[1], [2]], [[1, 0], [1, 1]]), label_names=["a", "b"]).save(tmp_path / "tiny")
    return tmp_path / "tiny"


ROW = {"row": {"indices": [0], "values": [1.0]}}


def test_a_signal_ends_it_after_what_it_accepted(tiny):
    body = json.dumps(ROW).encode()
    head = b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    key = "from-the-environment"
    with Process(f"name={tiny}", module=True, LONGTAIL_API_KEY=key) as server:
        assert server.client.get("/v1/models").status_code == 401
        assert server.client.get("/v1/models", headers={"x-api-key": key}).json()["models"][0]["name"] == "name"
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(head + b"x-api-key: %s\r\ncontent-length: %d\r\n\r\n" % (key.encode(), len(body)))
            connection.sendall(body[:5])
            time.sleep(0.2)
            server.process.send_signal(signal.SIGTERM)
            Process.until(lambda: not server.listens())
            connection.sendall(body[5:])
            answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert b"connection: close" in answer
        _, err = server.process.communicate(timeout=30)
        assert (server.process.returncode, err) == (0, "Stopped.\n")


STUCK = """import time; import longtail.serve.label_requests as label_requests
label_requests.find_labels = lambda *_: time.sleep(100)
"""


def test_a_thread_that_is_stuck_does_not_keep_it_from_ending(tiny):
    with Process(tiny, "--deadline", "0.3", before=STUCK) as server:
        assert server.client.get("/v1/labels").status_code == 504
        begin = time.monotonic()
        code, err = server.end()
        assert time.monotonic() - begin < 25
        assert (code, err) == (0, "Stopped.\n")


def test_a_second_signal_cuts_off_what_is_left(tiny):
    with Process(tiny, "--deadline", "60", before=STUCK) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(b"GET /v1/labels HTTP/1.1\r\nhost: localhost\r\n\r\n")
            time.sleep(0.2)
            server.process.send_signal(signal.SIGTERM)
            Process.until(lambda: not server.listens())
            begin = time.monotonic()
            code, _ = server.end()
        assert time.monotonic() - begin < 25
        assert code == 0


def test_several_processes_share_work_reloads_and_metrics(tiny):
    with Process(tiny, "--workers", "2") as server:
        Process.until(lambda: "longtail_ready_workers 2.0" in server.client.get("/metrics").text)
        for _ in range(30):
            with httpx.Client(base_url=server.client.base_url) as client:
                assert client.post("/v1/predict", json=ROW).status_code == 200
        assert 'longtail_rows_total{model="tiny"} 30.0' in server.client.get("/metrics").text

        Model(Popularity().fit([[1], [2]], [[0, 1], [1, 1]]), label_names=["a", "b"]).save(tiny)
        answer = server.client.post("/v1/models/tiny:reload").json()
        assert (answer["changed"], answer["workers"]) == (True, 2)
        for _ in range(10):
            with httpx.Client(base_url=server.client.base_url) as client:
                assert client.post("/v1/predict", json=ROW).json()["version"] == answer["version"]

        Model(Popularity().fit([[1], [2]], [[1, 1], [1, 1]]), label_names=["a", "b"]).save(tiny)
        server.process.send_signal(signal.SIGHUP)
        info = r'longtail_model_info{model="tiny",recipe="",version="(\w+)"} 2\.0'

        def swapped():
            found = re.search(info, server.client.get("/metrics").text)
            return found and found.group(1) != answer["version"]

        Process.until(swapped)

        first = server.workers()
        os.kill(first[0], signal.SIGKILL)
        Process.until(lambda: len(server.workers()) == 2 and set(server.workers()) != set(first))
        Process.until(lambda: "longtail_ready_workers 2.0" in server.client.get("/metrics").text)
        code, err = server.end()
        assert code == 0
        assert "ended with code -9: starting another" in err
        assert err.endswith("Stopped.\n")


def test_a_model_damaged_later_ends_no_process_that_serves(tiny):
    with Process(tiny, "--workers", "2") as server:
        Process.until(lambda: "longtail_ready_workers 2.0" in server.client.get("/metrics").text)
        manifest = (tiny / "model.json").read_text()
        (tiny / "model.json").write_text("{}")
        first = server.workers()
        os.kill(first[0], signal.SIGKILL)
        Process.until(lambda: set(server.workers()) - set(first))
        second = (set(server.workers()) - set(first)).pop()
        Process.until(lambda: second not in server.workers())  # it could not load the model
        with httpx.Client(base_url=server.client.base_url) as client:
            assert client.post("/v1/predict", json=ROW).status_code == 200
        (tiny / "model.json").write_text(manifest)
        Process.until(lambda: "longtail_ready_workers 2.0" in server.client.get("/metrics").text)
        code, err = server.end()
        assert code == 0
        assert f"worker {second} ended with code 2: starting another" in err


def test_sighup_reloads_models(tiny):
    with Process(tiny) as server:
        before = server.client.get("/v1/models/tiny").json()["version"]
        Model(Popularity().fit([[1], [2]], [[0, 1], [1, 1]]), label_names=["a", "b"]).save(tiny)
        server.process.send_signal(signal.SIGHUP)
        Process.until(lambda: server.client.get("/v1/models/tiny").json()["version"] != before)
        file = next(tiny.glob("*.npy"))
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)  # the version stays as it was
        failed = 'longtail_reloads_total{model="tiny",outcome="failed"} '
        server.process.send_signal(signal.SIGHUP)
        Process.until(lambda: f"{failed}1.0" in server.client.get("/metrics").text)
        (tiny / "model.json").write_text("{}")
        server.process.send_signal(signal.SIGHUP)
        Process.until(lambda: f"{failed}2.0" in server.client.get("/metrics").text)
        assert server.client.post("/v1/predict", json=ROW).status_code == 200
        code, err = server.end(signal.SIGINT)
        assert code == 0
        assert "model tiny: version" in err
        assert "model tiny was not reloaded: The version before is still served." in err
        assert f"{file.name} was changed, its checksum is wrong" in err


def refused(*arguments, **environment):
    command = [sys.executable, "-c", START, "serve", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, "LONGTAIL_DEBUG": "0", **environment}
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def test_non_models_are_refused_before_work(tiny, tmp_path):
    assert "is not a model directory" in refused(tmp_path / "nowhere")
    assert "has no model.json" in refused(tmp_path)
    assert "is given twice" in refused(tiny, f"tiny={tiny}")
    assert "must have a name of up to 64 letters" in refused(f"a b={tiny}")
    (tmp_path / "empty").write_text("\n")
    assert "contains no API key" in refused(tiny, "--api-key-file", tmp_path / "empty")
    rule = "must have at least 8 ASCII characters and no spaces"
    assert f"LONGTAIL_API_KEY {rule}" in refused(tiny, LONGTAIL_API_KEY="short")
    (tmp_path / "keys").write_text("# ours\nlong-enough\n\nsecret\n")
    said = refused(tiny, "--api-key-file", tmp_path / "keys")
    assert f"{tmp_path / 'keys'}:4: an API key {rule}." in said
    assert "secret" not in said


def test_a_damaged_model_ends_the_server(tiny):
    file = next(tiny.glob("*.npy"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", START, "serve", str(tiny), "--port", "0", "--workers", "2"],
        capture_output=True, text=True, timeout=60, env={**os.environ, "LONGTAIL_DEBUG": "0"},
    )  # fmt: skip
    assert done.returncode == 2
    assert "its checksum is wrong" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken(tiny):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-c", START, "serve", str(tiny), "--port", str(port)],
            capture_output=True, text=True, timeout=60, env={**os.environ, "LONGTAIL_DEBUG": "0"},
        )  # fmt: skip
    assert done.returncode == 2
    assert f"Can't listen on 127.0.0.1, port {port}" in done.stderr
    assert "Give another --port." in done.stderr


@pytest.mark.parametrize("host", ["192.0.2.1", "nowhere.invalid"])  # set aside for examples: no machine has them
def test_an_address_that_is_not_ours(host):
    with pytest.raises(InputError, match=f"^{host} is not an address of this machine: give another --host"):
        bind(host, 0)
