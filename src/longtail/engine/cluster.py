"""Ray as the engine: blocks become tasks, and what they work on is put once into the object store of the cluster."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, get_args

from longtail import __version__
from longtail.engine.cluster_task import Refusal, run_block, warm_up
from longtail.engine.memory import machine_memory
from longtail.engine.pool import thread_count
from longtail.engine.portable import Portable, inside, own, plain, with_arrays
from longtail.engine.signals import held_signals
from longtail.engine.stopping import is_stopping
from longtail.errors import InputError, Interrupted, LongtailError, MissingExtraError, ParameterError

EngineName = Literal["threads", "ray"]

_STORE = 2_000_000_000  # bytes of a local object store at most; what is larger lies on disk
_RETRIES = 8  # of a block whose worker or node was lost
_LOOKED_EVERY = 2.0  # seconds, at how many cores there are
_EMPTY = 60.0  # seconds without a core before a run is given up
_CONNECTING = 10.0  # seconds
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
_LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1", "[::1]")
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # its name notwithstanding: for one machine alone, anywhere


@contextmanager
def use_engine(engine: EngineName = "ray", *, address: str | None = None, threads: int | None = None) -> Iterator[None]:
    """Choose where the heavy work of what runs inside is done: on threads of this process, or on a Ray cluster.

    Blocks of labels, nodes and trees that learners train, and shards of rows that models predict, become tasks of one
    core each. The results have the same bits as on threads.

    Parameters
    ----------
    engine : {"ray", "threads"}
    address : str, optional
        Of the cluster: "auto" for the one that runs on this machine, or ``host:port``. Without it a Ray of its own is
        started on this machine, for this machine alone, and stopped at the end.
    threads : int, optional
        Cores of that Ray, all by default.

    Raises
    ------
    InputError
        When there is no cluster at the address, or one of another version.
    MissingExtraError
        When Ray is not installed.

    Examples
    --------
    >>> from longtail import OneVsRest, use_engine
    >>> with use_engine("threads"):  # or engine="ray"
    ...     learner = OneVsRest().fit([[1, 0], [0, 1]], [[1, 0], [0, 1]])
    """
    if engine not in get_args(EngineName):
        raise ParameterError("engine", engine, f"must be one of {', '.join(get_args(EngineName))}")
    if address is not None:
        check_address(address)
    cores = thread_count(threads)
    if engine == "threads":
        if address is not None:
            raise ParameterError("address", address, "must be left out with threads")
        with inside(None):
            yield
        return
    if find_spec("ray") is None:
        raise MissingExtraError("Training on a cluster", "ray")
    with _connected(address, cores) as is_own:
        cluster = RayCluster(is_own=is_own)
        with inside(cluster):
            try:
                yield
            except KeyboardInterrupt:
                cluster.interrupt()
                raise
            finally:
                cluster.close()


class RayCluster:
    """A Ray cluster that this process has joined.

    Parameters
    ----------
    is_own : bool
        Whether it was started on this machine for this program alone.
    """

    def __init__(self, *, is_own: bool = False) -> None:
        import ray

        self.is_own = is_own
        self._ray: Any = ray
        self._task = ray.remote(run_block)
        self._put: dict[int, tuple[Any, weakref.ref[Any]]] = {}
        self._putting = threading.Lock()
        self._interrupted, self._runs, self._lock = False, 0, threading.Lock()
        self._cpus, self._looked, self._last_seen = 0, -_LOOKED_EVERY, time.monotonic()
        modules = sorted(name for name in sys.modules if name.split(".")[0] == "longtail" and "__main__" not in name)
        warm = ray.remote(warm_up).options(num_cpus=1, max_retries=0)
        self._warming = [warm.remote(modules) for _ in range(self.cpus)]

    @property
    def cpus(self) -> int:
        """Cores of all nodes that are there now; at least 1, because nodes may yet come."""
        now = time.monotonic()
        if now - self._looked >= _LOOKED_EVERY:
            self._looked, self._cpus = now, int(self._ray.cluster_resources().get("CPU", 0))
            if self._cpus:
                self._last_seen = now
            elif now - self._last_seen > _EMPTY:
                raise InputError(f"The cluster has had no core for {_EMPTY:.0f} s: start a node, then resume.")
        return max(self._cpus, 1)

    def run(self, work: Portable, blocks: Sequence[Any], finished: Callable[[int], None]) -> Generator[Any]:
        """Work on all blocks, at most two a core at a time, and give the results in their order.

        A block whose worker or node is lost is worked on again elsewhere. What has ended out of order waits in the
        object store, not in the memory of this process.
        """
        if not len(blocks):
            return
        self._last_seen = time.monotonic()
        self._check_cores(work.cpus)
        with self._counted():
            yield from self._run(work, blocks, finished)

    def _run(self, work: Portable, blocks: Sequence[Any], finished: Callable[[int], None]) -> Generator[Any]:
        ray = self._ray
        running: dict[Any, int] = {}
        waiting: dict[int, Any] = {}
        submitted = next_out = 0
        task = self._task.options(num_cpus=work.cpus, max_retries=_RETRIES, name=f"longtail {work.method}")
        try:
            references = [self._reference(work.owner), self._stored(work.shared)]
            while next_out < len(blocks):
                room = 2 * max(1, self.cpus // work.cpus)
                while submitted < len(blocks) and len(running) < room and len(running) + len(waiting) < 2 * room:
                    block = blocks[submitted] if work.pack is None else work.pack(blocks[submitted])
                    sent = task.remote(__version__, references, work.method, plain_block(block), work.cpus)
                    running[sent] = submitted
                    submitted += 1
                if self._interrupted or is_stopping():
                    raise Interrupted("Stopped.")
                ready, _ = ray.wait(list(running), timeout=_LOOKED_EVERY)
                for reference in ready:
                    index = running.pop(reference)
                    waiting[index] = self._result(reference)
                    finished(index)
                while next_out in waiting:
                    result = own(waiting.pop(next_out))
                    next_out += 1
                    yield result
        except KeyboardInterrupt:
            self._interrupted = True
            raise
        except ray.exceptions.RayError as error:
            raise _failed(error) from None
        finally:
            for reference in running:
                with suppress(Exception):
                    ray.cancel(reference, force=self._interrupted or is_stopping())

    def together(self, owner: Any, method: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method in a process for each GPU, or for each core, which train one network together.

        They join `torch.distributed` through Ray Train. Gives what the first one gives.
        """
        from longtail.engine.cluster_training import run_together

        ray = self._ray
        references = [self._stored(thing) for thing in (owner, arguments)]
        self._last_seen = time.monotonic()
        try:
            with self._counted():
                return run_together(
                    ray,
                    references,
                    method,
                    lambda: (self.cpus, int(ray.cluster_resources().get("GPU", 0))),
                    lambda: self._interrupted or is_stopping(),
                )
        except ray.exceptions.RayError as error:
            raise _failed(error) from None

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count a run: a stop is for the runs of its time."""
        with self._lock:
            self._interrupted = self._interrupted and self._runs > 0
            self._runs += 1
        try:
            yield
        finally:
            with self._lock:
                self._runs -= 1

    def _check_cores(self, wanted: int) -> None:
        """Refuse tasks of more cores than any node has, which would wait for ever."""
        most = max((int(node["Resources"].get("CPU", 0)) for node in self._ray.nodes() if node["Alive"]), default=0)
        if 0 < most < wanted:
            raise InputError(f"No node of the cluster has {wanted} cores, {most} is the most: give fewer threads.")

    def interrupt(self) -> None:
        """End all runs, also those that other threads wait for."""
        self._interrupted = True

    def close(self) -> None:
        """Forget what was put into the store."""
        for reference in self._warming:
            with suppress(Exception):
                self._ray.cancel(reference)
        self._put.clear()

    def _reference(self, owner: Any) -> Any:
        """Where an object is in the store; put there once, at its first use, and gone with the object."""
        with self._putting:
            return self._found_or_put(owner)

    def _found_or_put(self, owner: Any) -> Any:
        known = self._put.get(id(owner))
        if known is not None and known[1]() is owner:
            return known[0]
        reference, number, put = self._stored(owner), id(owner), self._put

        def forget(_: object) -> None:
            put.pop(number, None)

        self._put[number] = reference, weakref.ref(owner, forget)
        return reference

    def _stored(self, value: Any) -> Any:
        """Put something into the store, and give where it is."""
        from ray import exceptions

        try:
            return self._ray.put(with_arrays(value, plain))
        except (exceptions.ObjectStoreFullError, exceptions.OutOfDiskError) as error:
            raise InputError(
                f"The object store of the cluster has no room for the rows ({type(error).__name__}): start its nodes "
                "with more of it (ray start --object-store-memory), or free disk space where Ray spills to."
            ) from None
        except exceptions.RayError as error:
            raise _failed(error) from None

    def _result(self, reference: Any) -> Any:
        from ray import exceptions

        try:
            found = self._ray.get(reference)
        except exceptions.RayTaskError as error:
            if isinstance(error.cause, ModuleNotFoundError) or "failed to import on the worker" in str(error.cause):
                raise InputError("A node of the cluster has another longtail, or none: install this one.") from error
            if isinstance(error.cause, Exception):
                raise error.cause from error
            raise
        except exceptions.OutOfMemoryError:
            raise MemoryError from None
        except (exceptions.WorkerCrashedError, exceptions.ObjectLostError, exceptions.NodeDiedError) as error:
            raise InputError(
                f"A block lost its worker {_RETRIES + 1} times ({type(error).__name__}): "
                "look whether the nodes have memory enough, then resume."
            ) from None
        except exceptions.TaskCancelledError:
            raise Interrupted("Stopped.") from None
        except exceptions.RayError as error:
            raise _failed(error) from None
        if isinstance(found, Refusal):
            raise found.error()
        return found


def _failed(error: Exception) -> InputError:
    """Say in one sentence what became of a cluster."""
    said = " ".join(str(error).split()).rstrip(".")[:300]
    return InputError(f"The cluster failed ({type(error).__name__}): {said}; mend it, then resume.")


def plain_block(block: Any) -> Any:
    """A block as it travels: arrays that are mapped from a file travel as plain ones."""
    return with_arrays(block, plain)


@contextmanager
def _connected(address: str | None, cores: int) -> Iterator[bool]:
    """Join a cluster, or start one on this machine; who has joined one already stays there.

    Gives whether one was started.
    """
    if address is not None:
        address = _reachable(address)
    is_here = address is None or address.rpartition(":")[0] in _LOOPBACK_HOSTS
    with _environment(_QUIET | (_LOOPBACK if is_here else {})):
        import ray

        is_ours = not ray.is_initialized()
        if is_ours:
            _join(ray, address, cores, is_here)
    try:
        yield is_ours and address is None
    finally:
        if is_ours:
            ray.shutdown()


def _join(ray: Any, address: str | None, cores: int, is_here: bool) -> None:
    how: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        store = max(min(_STORE, machine_memory() // 5), 80_000_000)
        how |= {"address": "local", "num_cpus": cores, "object_store_memory": store, "include_dashboard": False}
    else:
        how["address"] = address
    try:
        with _own_signals(), _loopback_alone() if is_here else nullcontext():
            ray.init(**how, **({"_node_ip_address": "127.0.0.1"} if is_here else {}))
    except KeyboardInterrupt:
        ray.shutdown()
        raise Interrupted(f"Stopped while {'starting Ray' if address is None else 'joining the cluster'}.") from None
    except Exception as error:
        raise _unreachable(address, error) from error


@contextmanager
def _own_signals() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back while Ray starts, and keep it from ending the process when SIGTERM comes.

    We stop Ray ourselves.
    """
    utils: Any = import_module("ray._private.utils")
    setting = getattr(utils, "set_sigterm_handler", None)
    with held_signals():
        ours = signal.getsignal(signal.SIGTERM)
        utils.set_sigterm_handler = lambda handler: None
        try:
            yield
        finally:
            utils.set_sigterm_handler = setting
            is_first = threading.current_thread() is threading.main_thread()
            if is_first and signal.getsignal(signal.SIGTERM) not in (ours, signal.SIG_IGN):
                signal.signal(signal.SIGTERM, ours)  # a Ray that sets it in another way; what came is not undone


@contextmanager
def _loopback_alone() -> Iterator[None]:
    """Let Ray take 127.0.0.1 for the address of this machine, also where it was imported before it was told to.

    Ray replaces it by an address that other machines can reach, and listens there, unless it knows of none.
    """
    from ray._private import ray_constants

    before = getattr(ray_constants, "ENABLE_RAY_CLUSTER", None)
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables that are not set, and take them back afterwards: processes that are started meanwhile keep them."""
    new = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)


def check_address(address: object, name: str = "address", wanted: str = "must be auto or host:port") -> None:
    """Refuse what is no address of a cluster."""
    if address in ("auto", "local") and (address == "auto" or "local" in wanted):
        return
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    if not host or "/" in host or not port.isdecimal() or int(port) >= 2**16:
        raise ParameterError(name, address, wanted)


def _reachable(address: str) -> str:
    """Host and port of a cluster; refused where nobody answers, because Ray itself would wait for minutes."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", "") or _running_here()
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_CONNECTING) as connection:
            is_cluster = _speaks_http2(connection)
    except (OSError, ValueError):
        is_cluster = False
    if not is_cluster:
        raise InputError(f"No Ray cluster answers at {address}: ray start --head starts one.")
    return address


def _speaks_http2(connection: socket.socket) -> bool:
    """Whether the other side answers as gRPC does, by which Ray is reached: with a frame of its settings."""
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("", "0", "false"):
        return True  # not in the open
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    answer = b""
    while len(answer) < 4:
        part = connection.recv(9)
        if not part:
            return False
        answer += part
    return answer[3] == 4


def _running_here() -> str:
    """Address of the cluster that was started on this machine last."""
    from ray._private.utils import read_ray_address

    found = read_ray_address()
    if not found:
        raise InputError("No Ray cluster runs on this machine: ray start --head starts one.")
    return str(found)


def _unreachable(address: str | None, error: BaseException) -> LongtailError:
    """Say in one sentence why a cluster can't be joined."""
    if isinstance(error, LongtailError):
        return error
    said = " ".join(str(error).split())
    if address is None:
        return InputError(f"Ray could not be started on this machine: {said[:200]}")
    if "ersion mismatch" in said:
        return InputError(f"The cluster at {address} has another version of Ray or Python: {said[:300]}")
    return InputError(
        f"The cluster at {address} can't be joined: run this on one of its nodes, which "
        f"ray start --address={address} makes of a machine, and with the RAY_AUTH_MODE of the cluster ({said[:200]})."
    )
