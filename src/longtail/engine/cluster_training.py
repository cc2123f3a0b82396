"""Processes that train one network together, through Ray Train: gloo among CPUs, nccl among GPUs."""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from longtail import __version__
from longtail.engine import pool, spool
from longtail.engine.cluster_task import Refusal, check_version
from longtail.engine.portable import own, with_arrays, writable
from longtail.errors import InputError, Interrupted, LongtailError

_FAILURES = 3  # that a training survives: it goes on from its newest state, where that is kept
_LOOKED_EVERY = 1.0  # seconds, at whether something went wrong
_GRACE = 15.0  # seconds for Ray Train to clear up by itself
_SILENCE = 1800  # seconds that a process waits for the others
_LOST_CONTACT = re.compile("gloo|nccl", re.IGNORECASE)


class Conductor:
    """An actor beside the driver that runs a training; its processes tell it what came out and what went wrong.

    All of them look at times whether they are to end.
    """

    def __init__(self) -> None:
        self._kept: Any = None
        self._wrong: Any = None
        self._is_over = False

    def keep(self, value: Any) -> None:
        """Hand in what came out."""
        self._kept = value

    def complain(self, error: Any) -> None:
        """Tell what went wrong; the first to tell is heard."""
        if self._wrong is None:
            self._wrong = error

    def take(self) -> Any:
        """What came out."""
        return self._kept

    def wrong(self) -> Any:
        """What went wrong, if anything."""
        return self._wrong

    def end(self) -> None:
        """Let the processes end, whatever they are at."""
        self._is_over = True

    def is_over(self) -> bool:
        """Whether the processes are to end."""
        return self._is_over

    def train(self, order: dict[str, Any], n_cpus: int, n_gpus: int) -> str:
        """Let as many processes train as there are GPUs, or cores without them; gives why they ended before the end.

        They are started once: how many there can be the next time, only the driver knows.
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
    """Call a method in as many processes as there are GPUs, or cores without them, and give what the first one gives.

    The processes have joined `torch.distributed` by then, which has the rank of each. What outlives the run (see
    `resumable`) does so where all nodes have the directory. When a process or a node is lost, all are started anew
    on the cores that are left; what one of them refuses is refused at once.

    Parameters
    ----------
    ray : module
    references : sequence
        Where the owner of the method is, and its arguments.
    method : str
    n_cores : callable
        Gives the cores and the GPUs that there are now.
    is_stopped : callable
        Whether the user has asked for an end.
    """
    order = {"version": __version__, "references": list(references), "method": method, "unfinished": spool.place()}
    lost = ""
    for _ in range(_FAILURES + 1):
        with _begun(ray, order, n_cores()) as (conductor, run):
            lost = _watched(ray, conductor, run, is_stopped)
            if not lost:
                result, opened = ray.get(conductor.take.remote())
                spool.count_as_opened(opened)
                return own(result)
    raise InputError(
        f"The training lost its processes on the cluster {_FAILURES + 1} times: look whether the nodes have cores and "
        f"memory enough, then resume ({lost})."
    )


@contextmanager
def _begun(ray: Any, order: dict[str, Any], cores: tuple[int, int]) -> Iterator[tuple[Any, Any]]:
    """Begin a training, conducted from the node of the driver, and end it, and all that it has started, at the end."""
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
            ray.wait([run], timeout=_GRACE)  # where Ray Train is killed, it leaves the cores taken
            ray.kill(conductor)


def _watched(ray: Any, conductor: Any, run: Any, is_stopped: Callable[[], bool]) -> str:
    """Wait for the end of a training; gives why it ended before its time, and raises what a process raised."""
    while True:
        ended, _ = ray.wait([run], timeout=_LOOKED_EVERY)
        wrong = ray.get(conductor.wrong.remote())
        if wrong is not None:
            raise wrong.error() if isinstance(wrong, Refusal) else wrong
        if is_stopped():
            raise KeyboardInterrupt
        if ended:
            return str(ray.get(run))


def train_one(order: dict[str, Any]) -> None:
    """Do the part of one process; the first one hands in what came out, and any of them tells what went wrong."""
    import ray
    from ray import train

    pool.limit_threads(1)
    conductor, ended = order["conductor"], threading.Event()
    threading.Thread(target=_end_when_told, args=(ray, conductor, ended), daemon=True).start()
    try:
        check_version(order["version"])
        owner, arguments = (with_arrays(ray.get(reference), writable) for reference in order["references"])
        with spool.taken_up(order["unfinished"]):
            found = getattr(owner, order["method"])(*arguments), spool.opened()
    except LongtailError as error:
        ray.get(conductor.complain.remote(Refusal.of(error)))
        raise
    except Exception as error:
        if not _is_lost_contact(error):
            ray.get(conductor.complain.remote(_sendable(error)))
        raise
    finally:
        ended.set()
    if train.get_context().get_world_rank() == 0:
        ray.get(conductor.keep.remote(found))


def _end_when_told(ray: Any, conductor: Any, ended: threading.Event) -> None:
    """End this process when the training is over for all: it may be waiting for one that is gone."""
    while not ended.wait(_LOOKED_EVERY):
        try:
            is_over = ray.get(conductor.is_over.remote())
        except Exception:  # the conductor is gone
            is_over = True
        if is_over and not ended.is_set():
            os._exit(1)


def _is_lost_contact(error: Exception) -> bool:
    """Whether an error only says that another process is gone."""
    is_of_torch = isinstance(error, RuntimeError) and type(error).__name__.startswith("Dist")
    is_said = isinstance(error, RuntimeError) and bool(_LOST_CONTACT.search(str(error)))
    return is_of_torch or is_said or isinstance(error, ConnectionError)


def _sendable(error: Exception) -> Exception:
    """An error without what it holds on to: its kind where that is made of texts alone."""
    said = " ".join(str(error).split())
    kind: type[Exception] = type(error)
    if kind.__module__ == "builtins" and all(isinstance(part, str) for part in error.args):
        with suppress(Exception):
            return kind(*error.args)
    return RuntimeError(f"{kind.__name__}: {said}")
