"""Processes that train one network together, through Ray Train: gloo among CPUs, nccl among GPUs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any

from longtail import __version__
from longtail.engine import pool, spool
from longtail.engine.cluster_task import Refusal, check_version
from longtail.engine.portable import own, with_arrays, writable
from longtail.errors import InputError, Interrupted, LongtailError

_FAILURES = 3  # that a training survives: it goes on from its newest state, where that is kept


class Mailbox:
    """An actor beside the driver that keeps what the first process hands in."""

    def __init__(self) -> None:
        self._kept: Any = None

    def keep(self, value: Any) -> None:
        """Hand something in."""
        self._kept = value

    def take(self) -> Any:
        """Take it out."""
        return self._kept


def run_together(ray: Any, references: Sequence[Any], method: str, n_cpus: int, n_gpus: int) -> Any:
    """Call a method in as many processes as there are GPUs, or cores without them, and give what the first one gives.

    The processes have joined `torch.distributed` by then, which has the rank of each. What outlives the run (see
    `resumable`) does so where all nodes have the directory.
    """
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    mailbox = ray.remote(Mailbox).options(num_cpus=0).remote()
    order = {"version": __version__, "references": list(references), "method": method, "mailbox": mailbox}
    order["unfinished"] = spool.place()
    backend = TorchConfig(backend="cpu:gloo,cuda:nccl" if n_gpus else "gloo")
    scaling = ScalingConfig(num_workers=n_gpus or n_cpus, use_gpu=bool(n_gpus), resources_per_worker=None)
    with tempfile.TemporaryDirectory(prefix="longtail-") as folder:
        run = RunConfig(storage_path=folder, failure_config=FailureConfig(max_failures=_FAILURES))
        trainer = TorchTrainer(
            train_one, train_loop_config=order, scaling_config=scaling, run_config=run, torch_config=backend
        )
        try:
            trainer.fit()
        except KeyboardInterrupt:
            raise Interrupted("Stopped while training on the cluster.") from None
        except Exception as error:
            said = " ".join(str(error).split())
            raise InputError(f"The training failed {_FAILURES + 1} times on the cluster: {said[-300:]}") from error
    found = ray.get(mailbox.take.remote())
    if isinstance(found, Refusal):
        raise found.error()
    result, opened = found
    spool.count_as_opened(opened)
    return own(result)


def train_one(order: dict[str, Any]) -> None:
    """Do the part of one process; the first one hands in what came out."""
    import ray
    from ray import train

    pool.limit_threads(1)
    is_first = train.get_context().get_world_rank() == 0
    found: Any
    try:
        check_version(order["version"])
        owner, arguments = (with_arrays(ray.get(reference), writable) for reference in order["references"])
        with spool.taken_up(order["unfinished"]):
            found = getattr(owner, order["method"])(*arguments), spool.opened()
    except LongtailError as error:
        found = Refusal.of(error)
    if is_first:
        ray.get(order["mailbox"].keep.remote(found))
