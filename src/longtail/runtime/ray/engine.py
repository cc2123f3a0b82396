"""Ray as the engine: blocks are tasks, and their shared data is put into the object store of the cluster once."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any, Literal, get_args

from longtail import __version__
from longtail.config import thread_count
from longtail.errors import InputError, Interrupted, MissingExtraError, ParameterError
from longtail.runtime.ray.connection import check_address, connected
from longtail.runtime.ray.worker import Refusal, run_block, warm_up
from longtail.runtime.signals import is_stopping
from longtail.runtime.task import RemoteTask, own, plain, using_engine, with_arrays
from longtail.validation import OneOf, check

EngineName = Literal["threads", "ray"]

_RETRIES = 8  # of a block whose worker or node was lost
_LOOKED_EVERY = 2.0  # seconds between checks of the number of cores
_EMPTY = 60.0  # seconds without a core before a run fails


@contextmanager
def use_engine(engine: EngineName = "ray", *, address: str | None = None, n_jobs: int | None = None) -> Iterator[None]:
    """Choose where the work inside runs: on threads of this process, or on a Ray cluster.

    Blocks of labels, tree nodes and trees in training, and shards of rows in prediction, become tasks of one core each.
    The results have the same bits as on threads.

    Parameters
    ----------
    engine : {"ray", "threads"}
    address : str, optional
        Address of the cluster: "auto" for the one on this machine, or ``host:port``. Without it a local cluster is
        started, and stopped at the end.
    n_jobs : int, optional
        Cores of the local cluster, all by default.

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
    check("engine", engine, OneOf(*get_args(EngineName)))
    if address is not None:
        check_address(address)
    cores = thread_count(n_jobs)
    if engine == "threads":
        if address is not None:
            raise ParameterError("address", address, "must be left out with threads")
        with using_engine(None):
            yield
        return
    if find_spec("ray") is None:
        raise MissingExtraError("Training on a cluster", "ray")
    with connected(address, cores) as is_own:
        cluster = RayCluster(is_own=is_own)
        with using_engine(cluster):
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
        """Current number of cores of all nodes; at least 1, because nodes may join later."""
        now = time.monotonic()
        if now - self._looked >= _LOOKED_EVERY:
            self._looked, self._cpus = now, int(self._ray.cluster_resources().get("CPU", 0))
            if self._cpus:
                self._last_seen = now
            elif now - self._last_seen > _EMPTY:
                raise InputError(f"The cluster has had no core for {_EMPTY:.0f} s: start a node, then resume.")
        return max(self._cpus, 1)

    def run(self, work: RemoteTask, blocks: Sequence[Any], finished: Callable[[int], None]) -> Generator[Any]:
        """Run all blocks, at most two per core at a time, and yield the results in order.

        A block whose worker or node is lost runs again elsewhere. Results that are out of order wait in the object
        store, not in the memory of this process.
        """
        if not len(blocks):
            return
        self._last_seen = time.monotonic()
        self._check_cores(work.cpus)
        with self._counted():
            yield from self._run(work, blocks, finished)

    def _run(self, work: RemoteTask, blocks: Sequence[Any], finished: Callable[[int], None]) -> Generator[Any]:
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
                    sent = task.remote(__version__, references, work.method, with_arrays(block, plain), work.cpus)
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
        """Call a method in one process per GPU, or per core, that train one network; return the result of the first.

        They join `torch.distributed` through Ray Train.
        """
        from longtail.runtime.ray.training import run_together

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
        """Count a run, because a stop is for the runs in progress only."""
        with self._lock:
            self._interrupted = self._interrupted and self._runs > 0
            self._runs += 1
        try:
            yield
        finally:
            with self._lock:
                self._runs -= 1

    def _check_cores(self, wanted: int) -> None:
        """Raise an error for tasks with more cores than any node has, which would wait for ever."""
        most = max((int(node["Resources"].get("CPU", 0)) for node in self._ray.nodes() if node["Alive"]), default=0)
        if 0 < most < wanted:
            raise InputError(f"No node of the cluster has {wanted} cores, {most} is the most: give fewer threads.")

    def interrupt(self) -> None:
        """Stop the runs of all threads."""
        self._interrupted = True

    def close(self) -> None:
        """Release the objects in the object store."""
        for reference in self._warming:
            with suppress(Exception):
                self._ray.cancel(reference)
        self._put.clear()

    def _reference(self, owner: Any) -> Any:
        """Return the reference of an object, which is stored at its first use and released with it."""
        number, put = id(owner), self._put
        with self._putting:
            known = put.get(number)
            if known is None or known[1]() is not owner:
                known = put[number] = self._stored(owner), weakref.ref(owner, lambda _: put.pop(number, None))
            return known[0]

    def _stored(self, value: Any) -> Any:
        """Put an object into the object store and return its reference."""
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
                raise InputError(
                    "A node of the cluster has no longtail, or another version: install the same on all nodes."
                ) from error
            if isinstance(error.cause, Exception):
                raise error.cause from error
            raise
        except exceptions.OutOfMemoryError:
            raise MemoryError from None
        except (exceptions.WorkerCrashedError, exceptions.ObjectLostError, exceptions.NodeDiedError) as error:
            raise InputError(
                f"A block lost its worker {_RETRIES + 1} times ({type(error).__name__}): "
                "check that the nodes have enough memory, then resume."
            ) from None
        except exceptions.TaskCancelledError:
            raise Interrupted("Stopped.") from None
        except exceptions.RayError as error:
            raise _failed(error) from None
        if isinstance(found, Refusal):
            raise found.error()
        return found


def _failed(error: Exception) -> InputError:
    """Return the error for a cluster that failed, in one sentence."""
    message = " ".join(str(error).split()).rstrip(".")[:300]
    return InputError(f"The cluster failed ({type(error).__name__}): {message}; repair it, then resume.")
