"""Distributed training of one network through Ray Train: gloo on CPUs, nccl on GPUs."""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from longtail import __version__
from longtail.config import limit_threads
from longtail.errors import InputError, Interrupted, LongtailError
from longtail.runtime import block_file
from longtail.runtime.mmap import writable
from longtail.runtime.ray.worker import Refusal, check_version
from longtail.runtime.task import own, with_arrays

_FAILURES = 3  # that a training survives; it resumes from its checkpoint, where there is one
_LOOKED_EVERY = 1.0  # seconds between checks for errors
_GRACE = 15.0  # seconds for Ray Train to clean up by itself
_SILENCE = 1800  # seconds that a process waits for the others
_LOST_CONTACT = re.compile("gloo|nccl", re.IGNORECASE)


class Conductor:
    """Actor on the driver's node that runs a training and collects its result and errors.

    The processes of the training poll whether they should end.
    """

    def __init__(self) -> None:
        self._result: Any = None
        self._error: Any = None
        self._is_over = False

    def store_result(self, value: Any) -> None:
        """Store the result."""
        self._result = value

    def report_error(self, error: Any) -> None:
        """Store an error; the first one is kept."""
        if self._error is None:
            self._error = error

    def result(self) -> Any:
        """Return the result."""
        return self._result

    def error(self) -> Any:
        """Return the first error, if any."""
        return self._error

    def end(self) -> None:
        """Make all processes end."""
        self._is_over = True

    def is_over(self) -> bool:
        """Return whether the processes should end."""
        return self._is_over

    def train(self, order: dict[str, Any], n_cpus: int, n_gpus: int) -> str:
        """Train in one process per GPU, or per core without GPUs; return why they failed, or an empty string.

        They are started once: only the driver knows how many there can be the next time.
        """
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer

        backend = TorchConfig(backend="cpu:gloo,cuda:nccl" if n_gpus else "gloo", timeout_s=_SILENCE)
        scaling = ScalingConfig(num_workers=n_gpus or n_cpus, use_gpu=bool(n_gpus), resources_per_worker=None)
        with tempfile.TemporaryDirectory(prefix="longtail-") as folder:
            limits: dict[str, Any] = {"max_failures": 0, "controller_failure_limit": 0}
            run = RunConfig(storage_path=folder, failure_config=FailureConfig(**limits))
            trainer = TorchTrainer(
                train_one, train_loop_config=order, scaling_config=scaling, run_config=run, torch_config=backend
            )
            try:
                trainer.fit()
            except Exception as error:
                return " ".join(str(error).split())[-300:] or type(error).__name__
        return ""


def run_together(
    ray: Any,
    references: Sequence[Any],
    method: str,
    n_cores: Callable[[], tuple[int, int]],
    is_stopped: Callable[[], bool],
) -> Any:
    """Call a method in one process per GPU, or per core without GPUs, and return the result of the first.

    The processes have joined `torch.distributed`. Checkpoints (see `resumable`) are kept where all nodes have the
    directory. When a process or a node is lost, all processes are restarted on the remaining cores; errors of longtail
    are raised at once.

    Parameters
    ----------
    ray : module
    references : sequence
        Object references of the owner of the method and of its arguments.
    method : str
    n_cores : callable
        Returns the current numbers of cores and GPUs.
    is_stopped : callable
        Returns whether the user has asked for a stop.
    """
    order = {"version": __version__, "references": list(references), "method": method, "unfinished": block_file.place()}
    lost = ""
    for _ in range(_FAILURES + 1):
        with _begun(ray, order, n_cores()) as (conductor, run):
            lost = _watched(ray, conductor, run, is_stopped)
            if not lost:
                result, opened = ray.get(conductor.result.remote())
                block_file.count_as_opened(opened)
                return own(result)
    raise InputError(
        f"The training lost its processes on the cluster {_FAILURES + 1} times: check that the nodes have enough "
        f"cores and memory, then resume ({lost})."
    )


@contextmanager
def _begun(ray: Any, order: dict[str, Any], cores: tuple[int, int]) -> Iterator[tuple[Any, Any]]:
    """Start a training with its conductor on the driver's node, and end all its processes at the end."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    conductor = ray.remote(Conductor).options(num_cpus=0, max_concurrency=64, scheduling_strategy=here).remote()
    run = conductor.train.remote({**order, "conductor": conductor}, *cores)
    try:
        yield conductor, run
    except KeyboardInterrupt:
        raise Interrupted("Stopped while training on the cluster.") from None
    finally:
        with suppress(Exception):
            conductor.end.remote()
            ray.wait([run], timeout=_GRACE)  # a killed Ray Train would not free its cores
            ray.kill(conductor)


def _watched(ray: Any, conductor: Any, run: Any, is_stopped: Callable[[], bool]) -> str:
    """Wait for the end of a training; return why it failed, or an empty string, and raise errors of its processes."""
    while True:
        ended, _ = ray.wait([run], timeout=_LOOKED_EVERY)
        error = ray.get(conductor.error.remote())
        if error is not None:
            raise error.error() if isinstance(error, Refusal) else error
        if is_stopped():
            raise KeyboardInterrupt
        if ended:
            return str(ray.get(run))


def train_one(order: dict[str, Any]) -> None:
    """Run one process of a training: rank 0 stores the result, and every process reports its error."""
    import ray
    from ray import train

    limit_threads(1)
    conductor, ended = order["conductor"], threading.Event()
    threading.Thread(target=_end_when_told, args=(ray, conductor, ended), daemon=True).start()
    try:
        check_version(order["version"])
        owner, arguments = (with_arrays(ray.get(reference), writable) for reference in order["references"])
        with block_file.resumed_at(order["unfinished"]):
            found = getattr(owner, order["method"])(*arguments), block_file.opened()
    except LongtailError as error:
        ray.get(conductor.report_error.remote(Refusal.of(error)))
        raise
    except Exception as error:
        if not _is_lost_contact(error):
            ray.get(conductor.report_error.remote(_sendable(error)))
        raise
    finally:
        ended.set()
    if train.get_context().get_world_rank() == 0:
        ray.get(conductor.store_result.remote(found))


def _end_when_told(ray: Any, conductor: Any, ended: threading.Event) -> None:
    """End this process when the training is over, because it may be waiting for a lost one."""
    while not ended.wait(_LOOKED_EVERY):
        try:
            is_over = ray.get(conductor.is_over.remote())
        except Exception:  # the conductor is gone
            is_over = True
        if is_over and not ended.is_set():
            os._exit(1)


def _is_lost_contact(error: Exception) -> bool:
    """Return whether an error only says that another process was lost."""
    is_of_torch = isinstance(error, RuntimeError) and type(error).__name__.startswith("Dist")
    is_reported = isinstance(error, RuntimeError) and bool(_LOST_CONTACT.search(str(error)))
    return is_of_torch or is_reported or isinstance(error, ConnectionError)


def _sendable(error: Exception) -> Exception:
    """Return an error without references to other objects; of its own class where its arguments are texts."""
    message = " ".join(str(error).split())
    kind: type[Exception] = type(error)
    if kind.__module__ == "builtins" and all(isinstance(part, str) for part in error.args):
        with suppress(Exception):
            return kind(*error.args)
    return RuntimeError(f"{kind.__name__}: {message}")
