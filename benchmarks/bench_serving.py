"""The server under load, on loopback: single texts at a fixed rate, twice its capacity, reloads, and start-up time.

The server and the load generator are separate processes that share the machine's cores. Targets: p50 under 3 ms and p99
under 15 ms for single texts at 100 requests per second; ten minutes at twice the capacity without a crash, without
memory growth and with an answer to every request; no request dropped while a new version is loaded; ready in 3 seconds,
once kernels are compiled.
"""

from __future__ import annotations

import argparse
import http.client
import json
import lzma
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from measure import CACHE, HERE, RESULTS, machine, write

START = "from longtail.cli import main; main()"
BARS = {"p50_ms": 3.0, "p99_ms": 15.0, "start_seconds": 3.0}
WARM_UP = 0.2  # share of a run after which memory must not grow
GROWTH = 0.03


class Server:
    """`longtail serve` in a process of its own, on a free port."""

    def __init__(self, models: dict[str, Path], *arguments: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        given = [f"{name}={directory}" for name, directory in models.items()]
        begin = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, "serve", *given, "--port", str(self.port), *arguments],
            stderr=subprocess.DEVNULL,
        )
        while self.status("/readyz") != 200:
            if self.process.poll() is not None or time.perf_counter() - begin > 120:
                raise RuntimeError("the server did not start")
            time.sleep(0.01)
        self.start_seconds = time.perf_counter() - begin
        self.start_cpu_seconds = self.cpu_seconds()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.exit_code = self.process.wait(60)

    def status(self, path: str, method: str = "GET") -> int:
        """Status of one request, 0 where nobody answers."""
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            connection.request(method, path)
            return connection.getresponse().status
        except OSError:
            return 0

    def cpu_seconds(self) -> float:
        """Processor time of the server so far, that of workers not included."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        """Memory that the server and its workers hold for themselves, without files mapped into it."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        total = 0.0
        for pid in (str(self.process.pid), *children):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("RssAnon"):
                    total += int(line.split()[1]) / 1024
        return total

    def load(self, bodies: list[str], seconds: float, rate: float | None, connections: int) -> dict[str, Any]:
        """Put load on the server from another process, and sample its memory meanwhile."""
        job = {
            "host": "127.0.0.1", "port": self.port, "path": "/v1/predict", "bodies": bodies,
            "seconds": seconds, "rate": rate, "connections": connections,
        }  # fmt: skip
        samples: list[float] = []
        done = threading.Event()

        def sample() -> None:
            while not done.wait(1.0):
                samples.append(self.memory_mb())

        sampler = threading.Thread(target=sample)
        sampler.start()
        try:
            found = subprocess.run(
                [sys.executable, HERE / "http_load.py"],
                input=json.dumps(job).encode(),
                capture_output=True,
                timeout=seconds + 120,
                check=True,
            )
        finally:
            done.set()
            sampler.join()
        return {**json.loads(found.stdout), "memory_mb": samples}


def main() -> int:
    """Measure what is asked for, write the results and print the table."""
    options = _options()
    texts = _texts(options.data / options.dataset / "test.jsonl.xz")[: options.texts]
    model = options.model or _trained(options.dataset, options.data)
    single = [json.dumps({"text": text, "k": 5, "names": True}) for text in texts]
    batches = [json.dumps({"texts": texts[at : at + 64], "k": 5}) for at in range(0, min(len(texts), 1280), 64)]
    workers = ("--workers", str(options.workers))
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "start": lambda: _start(model, options.starts, workers),
        "latency": lambda: _latency(model, single, options.rate, options.latency_seconds, workers),
        "overload": lambda: _overload(model, single, options.overload_seconds, workers),
        "reload": lambda: _reload(model, single, options.rate, options.reload_seconds, workers),
        "documents": lambda: _documents(model, batches, options.latency_seconds, workers),
    }
    path = RESULTS / "serving.json"
    for name in options.parts:
        print(f"{name} ...", flush=True)
        found = {
            **parts[name](),
            "remark": options.remark,
            "measured": time.strftime("%Y-%m-%d %H:%M"),
            "other_load": os.getloadavg()[0],
        }
        report = write(path, f"{options.dataset}, {options.workers} workers", {name: found})
    text = _markdown(report)
    path.with_suffix(".md").write_text(text)
    print(text)
    return 0


def _start(model: Path, times: int, workers: tuple[str, ...]) -> dict[str, Any]:
    """From nothing to ready; the first start may compile kernels and doesn't count."""
    seconds, processor = [], []
    for _ in range(times + 1):
        with Server({"model": model}, *workers) as server:
            seconds.append(server.start_seconds)
            processor.append(server.start_cpu_seconds)
    return {"start_seconds": min(seconds[1:]), "start_cpu_seconds": min(processor[1:]), "all": seconds}


def _latency(model: Path, bodies: list[str], rate: float, seconds: float, workers: tuple[str, ...]) -> dict[str, Any]:
    """Single texts at a rate."""
    with Server({"model": model}, *workers) as server:
        server.load(bodies, 3, rate, 64)
        return {"rate": rate, **server.load(bodies, seconds, rate, 64)}


def _overload(model: Path, bodies: list[str], seconds: float, workers: tuple[str, ...]) -> dict[str, Any]:
    """What the server can do, then twice as much: no crash, no growth, and an answer to every request."""
    with Server({"model": model}, *workers) as server:
        capacity = server.load(bodies, 10, None, 64)["ok_a_second"]
        found = server.load(bodies, seconds, 2 * capacity, 900)
        alive = server.process.poll() is None and server.status("/healthz") == 200
    memory = found["memory_mb"]
    first, last = (
        memory[int(WARM_UP * len(memory)) :][: max(1, len(memory) // 10)],
        memory[-max(1, len(memory) // 10) :],
    )
    growth = float(np.median(last) / np.median(first) - 1) if memory else None
    return {"capacity": capacity, **found, "alive": alive, "exit_code": server.exit_code, "memory_growth": growth}


def _reload(model: Path, bodies: list[str], rate: float, seconds: float, workers: tuple[str, ...]) -> dict[str, Any]:
    """New versions swapped in under load: each request must be answered with 200."""
    from longtail import Model

    place = CACHE / "serving" / "reloaded"
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(model, place)
    reloads: list[float] = []
    with Server({"model": place}, *workers) as server:
        end = time.monotonic() + seconds

        def swap() -> None:
            while time.monotonic() < end - 2:
                version = Model.load(model)
                version.training["copy"] = len(reloads)
                version.save(place)
                begin = time.perf_counter()
                if server.status("/v1/models/model:reload", "POST") == 200:
                    reloads.append(time.perf_counter() - begin)

        swapper = threading.Thread(target=swap)
        swapper.start()
        found = server.load(bodies, seconds, rate, 64)
        swapper.join()
    return {"rate": rate, "reloads": len(reloads), "reload_seconds": float(np.median(reloads)), **found}


def _documents(model: Path, bodies: list[str], seconds: float, workers: tuple[str, ...]) -> dict[str, Any]:
    """Documents a second where 64 come in a request, four requests at a time."""
    with Server({"model": model}, *workers) as server:
        server.load(bodies, 2, None, 4)
        found = server.load(bodies, seconds, None, 4)
    return {"documents_a_second": 64 * found["ok_a_second"], **found}


def _markdown(report: dict[str, Any]) -> str:
    lines = [machine(report), "", "The load shares the cores with the server, as does whatever else the machine does."]
    for section, parts in report.items():
        if section == "machine":
            continue
        lines += ["", f"### {section}", "", "| | measured | bar |", "|---|---|---|"]
        if found := parts.get("start"):
            lines += [
                f"| from nothing to ready, kernels compiled before | {found['start_seconds']:.2f} s | 3 s |",
                f"| processor time of that | {found['start_cpu_seconds']:.2f} s | |",
            ]
        if found := parts.get("latency"):
            lines += [
                f"| single texts, {found['rate']:g} a second: p50 | {found['p50_ms']:.2f} ms | 3 ms |",
                f"| p99 | {found['p99_ms']:.2f} ms | 15 ms |",
                f"| p99.9, worst | {found['p999_ms']:.2f} ms, {found['worst_ms']:.2f} ms | |",
            ]
        if found := parts.get("overload"):
            statuses = ", ".join(f"{count:,} times {status}" for status, count in sorted(found["statuses"].items()))
            lines += [
                f"| capacity, single texts | {found['capacity']:,.0f} a second | |",
                f"| twice that offered for {found['seconds']:.0f} s; sent, as connections were free | "
                f"{2 * found['capacity']:,.0f} a second; {found['asked'] / found['seconds']:,.0f} | |",
                f"| answers | {statuses} | |",
                f"| requests without an answer, lost connections | {found['unanswered']}, {found['lost']} | 0, 0 |",
                f"| those with 200, from when they were sent: p50, p99 "
                f"| {found['sent_p50_ms']:.0f} ms, {found['sent_p99_ms']:.0f} ms | |",
                f"| growth of memory after warm-up | {100 * found['memory_growth']:+.1f} % | under 3 % |",
            ]
        if found := parts.get("reload"):
            wrong = found["asked"] - found["statuses"].get("200", 0)
            lines += [
                f"| {found['reloads']} reloads in {found['seconds']:.0f} s at {found['rate']:g} a second: requests not "
                f"answered with 200 | {wrong} of {found['asked']:,} | 0 |",
                f"| a reload; p99 meanwhile | {found['reload_seconds']:.2f} s; {found['p99_ms']:.1f} ms | |",
            ]
        if found := parts.get("documents"):
            lines.append(f"| texts a second, 64 in a request | {found['documents_a_second']:,.0f} | |")
        lines += ["", "Load average of the machine at the end of each part, and what there is to say:", ""]
        lines += [
            f"- {name}, {found['measured']}: {found['other_load']:.1f}. {found.get('remark', '')}".rstrip()
            for name, found in parts.items()
        ]
    return "\n".join(lines) + "\n"


def _trained(dataset: str, data: Path) -> Path:
    """The one-vs-rest model of a data set, trained the first time."""
    place = CACHE / "serving" / dataset
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        train = str(data / dataset / "train.jsonl.xz")
        subprocess.run([sys.executable, "-c", START, "train", "dismec", train, "--out", str(place)], check=True)
    return place


def _texts(path: Path) -> list[str]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--dataset", default="eurlex57k")
    parser.add_argument(
        "--model", type=Path, default=None, help="model directory; trained on the data set if not given"
    )
    parser.add_argument("--texts", type=int, default=2000, help="number of test texts to send")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--latency-seconds", type=float, default=60.0)
    parser.add_argument("--overload-seconds", type=float, default=600.0)
    parser.add_argument("--reload-seconds", type=float, default=30.0)
    parser.add_argument("--remark", default="", help="a remark for the results")
    parser.add_argument(
        "--parts", type=lambda text: text.split(","), default=["start", "latency", "overload", "reload", "documents"]
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
