"""Clusters of our own, what is refused, and arrays on their way."""

import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from longtail import use_engine
from longtail.cli.program import program
from longtail.data import Dataset, write_xc
from longtail.errors import InputError, MissingExtraError, ParameterError
from longtail.runtime.mmap import writable
from longtail.runtime.ray import connection
from longtail.runtime.ray import engine as engine_cluster
from longtail.runtime.task import own, with_arrays
from tests.learners.contract import small_data

pytest.importorskip("ray", reason="needs the extra ray")
pytestmark = pytest.mark.xdist_group("cluster")


def test_without_an_address_a_cluster_is_started_and_stopped():
    code = (
        "import os, ray\n"
        "from longtail import OneVsRest, config_context, use_engine\n"
        "with use_engine(engine='ray', n_jobs=1):\n"
        "    print(ray.nodes()[0]['NodeManagerAddress'], int(ray.cluster_resources()['CPU']))\n"
        "    print(OneVsRest().fit([[1, 0], [0, 1]], [[1, 0], [0, 1]]).predict_topk([[1, 0]], 1).labels)\n"
        "    try:\n"
        "        with config_context(memory_limit='2GB'): OneVsRest().fit([[1, 0], [0, 1]], [[1, 0], [0, 1]])\n"
        "    except ValueError as error: print(error.name if 'train on threads' in str(error) else error)\n"
        "print(ray.is_initialized())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["127.0.0.1", "1", "[[0]]", "memory_limit", "False"]
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["start_head_processes", "start_ray_processes"])
def test_a_termination_while_ray_starts_ends_as_elsewhere(tmp_path, moment):
    """Ray's own handler would end the process without a word."""
    write_xc(Dataset(*small_data(n_rows=40)), tmp_path / "train.txt")
    code = (
        "import os, signal, ray\n"
        "from ray._private import node\n"
        f"begin = node.Node.{moment}\n"
        "def told(self, *more, **named):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return begin(self, *more, **named)\n"
        f"node.Node.{moment} = told\n"
        "from longtail.cli import main; main()\n"
    )
    command = [sys.executable, "-c", code, "train", "popularity", "train.txt", "--out", "model", "--cluster", "local"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 143, done.stderr
    assert done.stderr.splitlines()[-1].startswith("Stopped while starting Ray. No model was written.")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "model").exists()


class TestRefusals:
    def test_an_engine_that_is_none(self):
        with pytest.raises(ParameterError, match="engine must be one of threads, ray"), use_engine("spark"):
            pass
        with pytest.raises(ParameterError, match="address must be left out"), use_engine("threads", address="auto"):
            pass

    @pytest.mark.parametrize("address", ["", "here", "host:", ":6379", "ray://host:10001", "host:70000", 6379])
    def test_what_is_no_address(self, address):
        with pytest.raises(ParameterError, match="address must be auto or host:port"), use_engine(address=address):
            pass

    def test_an_address_where_nobody_answers(self):
        code = (
            "from longtail import LongtailError, use_engine\n"
            "try:\n"
            "    with use_engine(address='127.0.0.1:1'): pass\n"
            "except LongtailError as error: print(error)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "No Ray cluster answers at 127.0.0.1:1: ray start --head starts one.\n"

    @pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\0\0"])
    def test_an_address_where_something_else_answers(self, answer):
        with socket.create_server(("127.0.0.1", 0)) as server:

            def serve():
                with server.accept()[0] as connection:
                    connection.recv(100)
                    connection.sendall(answer)

            threading.Thread(target=serve, daemon=True).start()
            address = f"127.0.0.1:{server.getsockname()[1]}"
            with pytest.raises(InputError, match=f"No Ray cluster answers at {address}"):
                connection._reachable(address)

    def test_ray_is_an_extra(self, monkeypatch):
        monkeypatch.setattr(engine_cluster, "find_spec", lambda name: None)
        with pytest.raises(MissingExtraError, match=r'pip install "longtail\[ray\]"'), use_engine():
            pass

    def test_a_limit_that_a_ray_of_its_own_would_not_keep(self, tmp_path):
        write_xc(Dataset(*small_data(n_rows=40)), tmp_path / "train.txt")
        more = ["--out", tmp_path / "model", "--cluster", "local", "--memory-limit", "2GB"]
        done = CliRunner().invoke(program, ["train", "dismec", str(tmp_path / "train.txt"), *map(str, more)])
        assert done.exit_code == 2
        assert "--memory-limit must be left out with a local Ray cluster" in done.stderr
        assert not (tmp_path / "model").exists()

    @pytest.mark.parametrize(
        ("said", "told"),
        [
            ("Version mismatch: The cluster was started with Ray 2.9", "another version of Ray or Python"),
            ("cannot find a local Raylet", "run this on one of its nodes"),
        ],
    )
    def test_why_a_cluster_cant_be_joined(self, said, told):
        assert told in str(connection._unreachable("host:6379", RuntimeError(said)))


def test_a_cluster_without_a_core_is_given_up_after_a_minute(monkeypatch):
    now, resources = [1000.0], {"CPU": 2.0}
    monkeypatch.setattr(engine_cluster, "time", SimpleNamespace(monotonic=lambda: now[0]))
    cluster = object.__new__(engine_cluster.RayCluster)
    cluster._ray = SimpleNamespace(cluster_resources=lambda: resources)
    cluster._cpus, cluster._looked, cluster._last_seen = 0, 0.0, now[0]
    assert cluster.cpus == 2
    for seconds, cores, seen in ((59, None, 1), (3, 1.0, 1), (59, None, 1)):
        now[0] += seconds
        resources.update(CPU=cores) if cores else resources.clear()
        assert cluster.cpus == seen
    now[0] += 3
    with pytest.raises(InputError, match="has had no core for 60 s: start a node, then resume"):
        _ = cluster.cpus


def test_arrays_are_exchanged_wherever_they_are():
    matrix = sp.csr_array(np.eye(3, dtype=np.float32))
    frozen = np.arange(4)
    frozen.flags.writeable = False
    holder = {"a": [frozen, (frozen, "text")], "matrix": matrix}
    holder["itself"] = holder
    found = with_arrays(holder, writable)
    assert found["a"][0].flags.writeable
    assert found["a"][0] is found["a"][1][0]
    assert np.shares_memory(found["a"][0], frozen)
    assert own((matrix.data,))[0] is not matrix.data
    for empty in (np.empty(0), np.empty((0, 3), np.int32)):
        empty.flags.writeable = False
        assert writable(empty).shape == empty.shape
