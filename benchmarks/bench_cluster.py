"""The overhead of Ray on one machine, the speed-up by a second node, and whether all give the same model.

All nodes are on this machine. Runs alternate: threads, Ray, threads, Ray; one node, two nodes, one node, two nodes. The
best of several counts. Times are of ``fit`` alone, with workers already started; start-up time is shown separately.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # before Ray is imported: loopback alone
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np
import ray
import scipy.sparse as sp
from ray.cluster_utils import Cluster

from data import is_there, prepare
from longtail import OneVsRest, use_engine
from measure import CACHE, HERE, RESULTS, machine, write

STORE = 1_000_000_000
LIMITS = {"overhead": 0.10, "speed-up": 1.7}
NODE = {"num_cpus": 1, "object_store_memory": STORE, "node_ip_address": "127.0.0.1"}


def trained(X: Any, Y: Any, threads: int) -> tuple[float, str]:
    """Seconds of a fit, and a digest of the model's arrays."""
    start = time.perf_counter()
    learner = OneVsRest(n_jobs=threads).fit(X, Y)
    seconds = time.perf_counter() - start
    digest = hashlib.blake2b(digest_size=16)
    for name, array in sorted(vars(learner.weights_).items()):
        if isinstance(array, np.ndarray):
            digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return seconds, digest.hexdigest()


def warmed(X: Any, Y: Any) -> None:
    """Train on a few rows until every worker has its code."""
    while ray.is_initialized() and int(ray.cluster_resources().get("CPU", 0)) > len(workers(X, Y)):
        time.sleep(0.2)


def workers(X: Any, Y: Any) -> set[str]:
    """Processes that a short training reaches."""
    OneVsRest(n_jobs=1).fit(X[:2000], Y[:2000])
    spinning = ray.remote(num_cpus=1)(_spin)
    return set(ray.get([spinning.remote() for _ in range(2 * int(ray.cluster_resources()["CPU"]))]))


def _spin() -> str:
    time.sleep(0.3)
    return f"{ray.get_runtime_context().get_node_id()} {os.getpid()}"


def on_one_machine(X: Any, Y: Any, threads: int, repeat: int) -> dict[str, Any]:
    """Threads against Ray with as many cores, in turns."""
    start = time.perf_counter()
    with use_engine("ray", n_jobs=threads):
        started = time.perf_counter() - start
        first, digest = trained(X, Y, threads)
        times: dict[str, list[float]] = {"threads": [], "ray": []}
        digests = {digest}
        for _ in range(repeat):
            with use_engine("threads"):
                seconds, digest = trained(X, Y, threads)
            times["threads"].append(seconds)
            digests.add(digest)
            seconds, digest = trained(X, Y, threads)
            times["ray"].append(seconds)
            digests.add(digest)
    with use_engine("threads"):
        digests.add(trained(X, Y, 1)[1])
    best = {name: min(values) for name, values in times.items()}
    return {
        "threads": threads, "seconds": times, "best": best, "overhead": best["ray"] / best["threads"] - 1,
        "start_seconds": started, "first_fit_seconds": first, "digests": sorted(digests),
    }  # fmt: skip


def with_two_nodes(X: Any, Y: Any, repeat: int) -> dict[str, Any]:
    """One node with one core against two, in turns; and what is told of them beforehand."""
    beforehand = OneVsRest(n_jobs=1).estimate(X, Y)
    estimated = {name: beforehand.on_nodes(n).seconds for name, n in (("one node", 1), ("two nodes", 2))}
    cluster = Cluster(initialize_head=True, connect=False, head_node_args={**NODE, "include_dashboard": False})
    times: dict[str, list[float]] = {"one node": [], "two nodes": []}
    digests = set()

    def measure(name: str) -> None:
        with use_engine("ray", address=cluster.address):
            warmed(X, Y)
            seconds, digest = trained(X, Y, 1)
        times[name].append(seconds)
        digests.add(digest)

    try:
        for _ in range(repeat):
            measure("one node")
            node = cluster.add_node(**NODE)
            measure("two nodes")
            cluster.remove_node(node)
            _wait_for(cluster, 1)
    finally:
        cluster.shutdown()
    best = {name: min(values) for name, values in times.items()}
    speed_up = best["one node"] / best["two nodes"]
    return {"seconds": times, "best": best, "speed-up": speed_up, "digests": sorted(digests), "estimated": estimated}


def _wait_for(cluster: Cluster, nodes: int) -> None:
    """Wait until the cluster knows how many nodes it has."""
    is_known: Callable[[], bool] = lambda: len([n for n in _alive(cluster) if n["Alive"]]) == nodes  # noqa: E731
    deadline = time.monotonic() + 60
    while not is_known() and time.monotonic() < deadline:
        time.sleep(0.5)


def _alive(cluster: Cluster) -> list[dict[str, Any]]:
    with use_engine("ray", address=cluster.address):
        found: list[dict[str, Any]] = ray.nodes()
        return found


def markdown(report: dict[str, Any]) -> str:
    """Figures as text."""
    lines = [machine(report), ""]
    for name, found in report["datasets"].items():
        here, nodes = found["one machine"], found["two nodes"]
        same = len({*here["digests"], *nodes["digests"]}) == 1
        lines += [
            f"### {name}", "",
            f"Training `dismec` on {found['rows']:,} rows and {found['labels']:,} labels, seconds of the fit, best of "
            f"{len(here['seconds']['ray'])}:", "",
            "| | seconds | estimated | | asked for |", "|---|---|---|---|---|",
            f"| {here['threads']} threads | {here['best']['threads']:.2f} | | | |",
            f"| Ray, {here['threads']} cores of the same machine | {here['best']['ray']:.2f} | | "
            f"{100 * here['overhead']:+.1f} % | below {100 * LIMITS['overhead']:.0f} % |",
            f"| Ray, one node of one core | {nodes['best']['one node']:.2f} | "
            f"{nodes['estimated']['one node']:.2f} | | |",
            f"| Ray, two nodes of one core each | {nodes['best']['two nodes']:.2f} | "
            f"{nodes['estimated']['two nodes']:.2f} | "
            f"{nodes['speed-up']:.2f} times | at least {LIMITS['speed-up']} times |", "",
            f"Starting Ray takes {here['start_seconds']:.1f} s, and the first fit, while its workers start, "
            f"{here['first_fit_seconds']:.2f} s. One thread, {here['threads']} threads and all clusters gave "
            + ("the same bits." if same else "**different models**.")
            + " *Estimated* is what `longtail estimate --nodes` assumes.", "",
        ]  # fmt: skip
    return "\n".join(lines)


def main() -> int:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--dataset", default="eurlex57k")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS / "cluster.json")
    options = parser.parse_args()
    if not is_there(options.dataset, options.data):
        print(f"No {options.dataset} in {options.data}.", file=sys.stderr)
        return 2
    folder = prepare(options.dataset, options.data, CACHE)
    X, Y = (sp.csr_array(sp.load_npz(folder / f"train.{part}.npz")) for part in "XY")
    OneVsRest(n_jobs=1).fit(X[:200], Y[:200])  # kernels are compiled before the clock starts
    found: dict[str, Any] = {"rows": X.shape[0], "labels": Y.shape[1]}
    found["one machine"] = on_one_machine(X, Y, options.threads, options.repeat)
    found["two nodes"] = with_two_nodes(X, Y, options.repeat)
    report = write(options.out, "datasets", {options.dataset: found})
    text = markdown(report)
    options.out.with_suffix(".md").write_text(text)
    print(text)
    print(json.dumps({"overhead": found["one machine"]["overhead"], "speed-up": found["two nodes"]["speed-up"]}))
    digests = {*found["one machine"]["digests"], *found["two nodes"]["digests"]}
    return 0 if len(digests) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
