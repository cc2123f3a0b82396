"""A real server on loopback, and a real browser that asks it."""

import json
import shutil
import socket
import threading
import time
from contextlib import nullcontext
from importlib import resources

import httpx
import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
PHONE = {"width": 360, "height": 740}
DESKTOP = {"width": 1280, "height": 900}


class Server:
    """`with Server(models) as server`: ready when the block begins, gone when it ends."""

    def __init__(self, models, *, keys=(), port=0, **limits):
        from longtail.serve.keys import Keys
        from longtail.serve.server import make_server
        from longtail.serve.service import Service
        from longtail.serve.settings import ServerLimits, ServerSettings

        settings = ServerSettings({name: str(path) for name, path in models.items()}, limits=ServerLimits(**limits))
        self.service = Service(settings, Keys(keys))
        self.server = make_server(settings, self.service)
        self.server.capture_signals = nullcontext  # signals are for the main thread, which is that of the tests
        self.listening = socket.create_server(("127.0.0.1", port), backlog=100)
        self.port = self.listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listening]})

    def __enter__(self):
        self.thread.start()
        until = time.monotonic() + 120
        while not (self.service.is_ready and self.server.started):
            assert self.service.failure is None, self.service.failure
            assert self.thread.is_alive(), "the server has stopped"
            assert time.monotonic() < until, "the server is not ready after two minutes"
            time.sleep(0.01)
        return self

    def __exit__(self, *error):
        self.stop()

    def stop(self):
        self.server.should_exit = True
        self.thread.join(60)
        assert not self.thread.is_alive()

    def predict(self, **request):
        answer = httpx.post(f"{self.url}/v1/predict", json=request, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.json()["results"][0]["predictions"]

    def get(self, path, **query):
        answer = httpx.get(self.url + path, params=query, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.json()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start_browser(playwright):
    """Debian's Chromium, or whichever stands on the path."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on the path: apt-get install chromium")
    return playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=ARGUMENTS)


class Visit:
    """A page that is open, and everything that should not have happened on it."""

    def __init__(self, browser, server, path="/", **context):
        self.context = browser.new_context(**{"viewport": DESKTOP, "reduced_motion": "reduce", **context})
        self.context.set_default_timeout(10_000)
        self.server = server
        self.requests, self.failed, self.complaints, self.done = [], [], [], 0
        self.page = self.context.new_page()
        self.page.on("request", lambda request: self.requests.append(request))
        self.page.on("requestfailed", lambda request: self._done(request, failed=True))
        self.page.on("requestfinished", self._done)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._console)
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        self.page.goto(server.url + path)

    def _done(self, request, failed=False):
        self.done += 1
        if failed:
            self.failed.append(request)

    def _console(self, message):
        if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
            self.complaints.append(message.text)

    def __enter__(self):
        return self

    def __exit__(self, kind, *error):
        self.context.close()
        if kind is None:
            assert not self.complaints
            outside = [one.url for one in self.requests if not one.url.startswith((self.server.url, "blob:"))]
            assert not outside, "the page asked somebody else"

    def write(self, text):
        """Write a text and wait for its labels."""
        self.page.fill("#text", text)
        self.settle(writing=True)

    def settle(self, *, writing=False):
        """Wait until nothing is asked any more; what is written is asked about after a moment."""
        self.page.wait_for_timeout(280 if writing else 60)
        quiet, until = 0, time.monotonic() + 20
        while quiet < 5:
            assert time.monotonic() < until, "the page still asks"
            self.page.wait_for_timeout(15)
            quiet = quiet + 1 if len(self.requests) == self.done else 0

    def names(self, panel=0):
        return self.page.locator(f"#results-{panel} .label-name").all_text_contents()

    def values(self, panel=0):
        return self.page.locator(f"#results-{panel} .value").all_text_contents()

    def row(self, name, panel=0):
        exact = self.page.locator(".label-name").get_by_text(name, exact=True)
        return self.page.locator(f"#results-{panel} .result").filter(has=exact)

    def go(self, view):
        self.page.get_by_role("navigation").get_by_role("link", name=view).click()

    def kept(self):
        """Corrections as the browser keeps them."""
        return json.loads(self.page.evaluate("localStorage.getItem('longtail.corrections')") or "[]")

    def overflow(self):
        """Pixels by which the page is wider than the window."""
        return self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def findings(self):
        """Serious and critical findings of axe-core."""
        if not self.page.evaluate("'axe' in window"):
            source = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
            self.page.evaluate(source + "; 0")
        found = self.page.evaluate(
            "axe.run(document, {resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa']})"
        )["violations"]
        return [
            (one["id"], node["target"], node["failureSummary"])
            for one in found
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"]
        ]
