"""A real server on loopback, in a thread of the tests, and what they send to it."""

import json
import socket
import threading
import time

import httpx

from longtail.serve.keys import Keys
from longtail.serve.server import make_server
from longtail.serve.service import Service
from longtail.serve.settings import ServerLimits, ServerSettings
from longtail.serve.sockets import bind


class Running:
    """`with Running(models) as server`: ready when the block begins, gone when it ends."""

    def __init__(self, models, *, keys=(), wait=True, limits=None, **settings):
        self.settings = ServerSettings(
            {name: str(path) for name, path in models.items()}, limits=limits or ServerLimits(), **settings
        )
        self.service = Service(self.settings, Keys(keys))
        self.listening = bind("127.0.0.1", 0)
        self.port = self.listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.server = make_server(self.settings, self.service)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listening]})
        self.client = httpx.Client(base_url=self.url, timeout=30)
        self.wait = wait

    def __enter__(self):
        self.thread.start()
        deadline = time.monotonic() + 120
        while self.wait and not (self.service.is_ready and self.server.started):
            assert self.service.failure is None, self.service.failure
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return self

    def __exit__(self, *error):
        self.client.close()
        self.server.should_exit = True
        self.thread.join(60)
        assert not self.thread.is_alive()

    def predict(self, status=200, **request):
        answer = self.client.post("/v1/predict", json=request)
        assert answer.status_code == status, answer.text
        return answer.json() if status == 200 else error_of(answer)

    def get(self, path, status=200, **query):
        answer = self.client.get(path, params=query)
        assert answer.status_code == status, answer.text
        return answer.json() if status == 200 else error_of(answer)

    def send(self, data, *, wait=5.0):
        """Send bytes and return the answer until the server closes the connection or is silent."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait) as connection:
            connection.sendall(data)
            return receive(connection)


def receive(connection):
    """All bytes until the connection ends or is silent."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except (TimeoutError, ConnectionResetError):
        pass
    return b"".join(parts)


def error_of(answer):
    """The error of an answer, whose shape is always the same."""
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message"}
    assert answer.headers["content-type"] == "application/json"
    assert "Traceback" not in answer.text
    message = body["error"]["message"]
    assert message
    assert message.endswith((".", "..."))
    return body["error"]


def head_of(raw):
    """Status and error of an answer as it came over the wire."""
    head, _, body = raw.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["code"]
