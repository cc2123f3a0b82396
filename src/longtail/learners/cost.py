"""Estimated cost of training, on one machine or on several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

NETWORK = 1.25e9
"""Bytes per second between two nodes: ten gigabit."""
DISK = 5e8
"""Bytes per second written to disk."""
_PROCESS_MB = 250.0  # interpreter, libraries and kernels
_COPIES = 1.5  # of the data in a node: the input, and the features renumbered
_IN_FLIGHT = 2  # results per thread waiting to be fetched


@dataclass(frozen=True)
class TrainingCost:
    """Estimated time, memory and model size of a training run.

    Parameters
    ----------
    seconds : float
        Time of the fit.
    peak_memory_mb : float
        Peak memory of the process, including the data.
    model_mb : float
        Size of the model on disk.
    block_mb : float
        Memory per thread, a part of the peak.
    threads : int
        Number of threads.
    blocks : int
        Number of parallel tasks: blocks of labels, nodes of trees, or trees.
    least_seconds : float, optional
        Time with any number of threads: the longest task and the serial part; by default all of it.
    data_mb : float
        Size of the rows and labels.
    exchanged_mb : float
        For data-parallel networks: gradients that a node sends in total.

    Examples
    --------
    >>> one = TrainingCost(1000.0, 900.0, 100.0, 50.0, 4, blocks=500, least_seconds=10.0, data_mb=400.0)
    >>> round(one.on_nodes(5).seconds)
    201
    """

    seconds: float
    peak_memory_mb: float
    model_mb: float
    block_mb: float
    threads: int
    blocks: int = 1
    least_seconds: float | None = None
    data_mb: float = 0.0
    exchanged_mb: float = 0.0

    def times(self, factor: float, alone: float = 0.0) -> TrainingCost:
        """Return the estimate of `factor` such runs in turn, plus `alone` seconds of serial work."""
        least = self.seconds if self.least_seconds is None else self.least_seconds
        return replace(
            self,
            seconds=self.seconds * factor + alone,
            least_seconds=least * factor + alone,
            exchanged_mb=self.exchanged_mb * factor,
        )

    @classmethod
    def in_turn(cls, parts: Sequence[TrainingCost]) -> TrainingCost:
        """Return the estimate of several runs in turn, whose models are kept."""
        return replace(
            parts[0],
            seconds=sum(part.seconds for part in parts),
            peak_memory_mb=max(part.peak_memory_mb for part in parts),
            model_mb=sum(part.model_mb for part in parts),
            block_mb=max(part.block_mb for part in parts),
            threads=max(part.threads for part in parts),
            blocks=min(part.blocks for part in parts),
            least_seconds=sum(part.times(1).least_seconds or 0.0 for part in parts),
            exchanged_mb=sum(part.exchanged_mb for part in parts),
        )

    def on_nodes(self, nodes: int, network: float = NETWORK, disk: float = DISK) -> ClusterCost:
        """Estimate the cost on several equal machines, each with as many threads.

        Assumes that blocks are distributed evenly over all threads and that each node holds the data once. Data are
        broadcast along a tree of copies, in log2(nodes) steps; all blocks return to one node, which writes and merges
        them. Networks split the rows of each step and exchange its gradients.

        Parameters
        ----------
        nodes : int
        network, disk : float
            Bytes per second.
        """
        least = self.seconds if self.least_seconds is None else self.least_seconds
        workers = max(1, min(nodes * self.threads, self.blocks))
        training = self.seconds
        if nodes > 1 and self.blocks > 1:
            training = min(self.seconds, max(least, self.seconds * min(self.threads, self.blocks) / workers))
        is_shared = nodes > 1 and (self.blocks > 1 or self.exchanged_mb > 0)
        if nodes > 1 and self.exchanged_mb > 0:
            workers, training = nodes * self.threads, self.seconds / nodes + 1e6 * self.exchanged_mb / network
        sending = 0.0 if not is_shared else math.ceil(math.log2(nodes)) * 1e6 * self.data_mb / network
        gathering = 0.0 if self.blocks == 1 or nodes == 1 else 1e6 * self.model_mb / network
        writing = 0.0 if self.blocks == 1 or nodes == 1 else 2e6 * self.model_mb / disk  # as blocks, and as a model
        at_work = -(-workers // nodes)
        in_flight = _IN_FLIGHT * at_work * self.model_mb / max(self.blocks, 1)
        return ClusterCost(
            nodes=nodes,
            seconds=training + sending + gathering + writing,
            training_seconds=training,
            sending_seconds=sending,
            gathering_seconds=gathering + writing,
            node_memory_mb=_PROCESS_MB + _COPIES * self.data_mb + at_work * self.block_mb + in_flight,
            first_memory_mb=_PROCESS_MB + _COPIES * self.data_mb + at_work * self.block_mb + self.model_mb,
            store_mb=self.data_mb + in_flight,
            network_mb=is_shared * (nodes - 1) * (self.data_mb + self.model_mb / nodes) + nodes * self.exchanged_mb,
            disk_mb=2 * self.model_mb,
            busy_threads=workers,
        )


@dataclass(frozen=True)
class ClusterCost:
    """Estimated cost of training on several machines.

    Parameters
    ----------
    nodes : int
    seconds : float
        In all.
    training_seconds, sending_seconds, gathering_seconds : float
        Training, broadcast of the data, and fetching, writing and merging of the blocks.
    node_memory_mb : float
        Memory of each node: the data in its object store, derived data, and its threads.
    first_memory_mb : float
        Memory of the node that merges the model; a memory limit there keeps the model on disk.
    store_mb : float
        Object store of each node: the data, and results in flight.
    network_mb : float
        Total network traffic.
    disk_mb : float
        Disk of the first node: finished blocks, and the model.
    busy_threads : int
        Threads with work; fewer than available if there are few blocks.
    """

    nodes: int
    seconds: float
    training_seconds: float
    sending_seconds: float
    gathering_seconds: float
    node_memory_mb: float
    first_memory_mb: float
    store_mb: float
    network_mb: float
    disk_mb: float
    busy_threads: int
