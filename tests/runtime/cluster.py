"""A Ray cluster of two nodes with a core each, on loopback, for tests."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # before the import: loopback alone
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
ray = pytest.importorskip("ray", reason="needs the extra ray")

from ray.cluster_utils import Cluster  # noqa: E402

STORE = 100_000_000
SOON = {  # a dead node is noticed within seconds, where Ray would take its time
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 2,
    "worker_niceness": 0,
}


class SmallCluster:
    """Nodes of one core that can be killed and added."""

    def __init__(self) -> None:
        head = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False, "node_ip_address": "127.0.0.1"}
        head["_system_config"] = SOON
        self._cluster = Cluster(initialize_head=True, connect=False, head_node_args=head)
        self.other = self.add()

    @property
    def address(self) -> str:
        return self._cluster.address

    def add(self):
        self.other = self._cluster.add_node(num_cpus=1, object_store_memory=STORE, node_ip_address="127.0.0.1")
        return self.other

    def kill_other_node(self) -> None:
        self._cluster.remove_node(self.other, allow_graceful=False)

    def kill_worker(self) -> int | None:
        """Kill one process that works on a block of ours; return its number, None if none is working."""
        for node in self._cluster.list_all_nodes():
            raylet = node.all_processes["raylet"][0].process.pid
            for child in psutil.Process(raylet).children(recursive=True):
                if "longtail" in _title(child):
                    os.kill(child.pid, signal.SIGKILL)
                    return child.pid
        return None

    def shutdown(self) -> None:
        self._cluster.shutdown()


def _title(process: psutil.Process) -> str:
    """What Ray calls a worker: the task that it is at."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
