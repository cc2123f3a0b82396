"""What training would take, told before it runs: on one machine, or on several."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

NETWORK = 1.25e9
"""Bytes a second between two nodes: ten gigabit."""
DISK = 5e8
"""Bytes a second that a disk writes."""
_PROCESS_MB = 250.0  # interpreter, libraries and kernels
_COPIES = 1.5  # of the data in a node: as they came, and the features renumbered
_IN_FLIGHT = 2  # results a thread that wait to be fetched


@dataclass(frozen=True)
class Estimate:
    """Time, memory and size of a training run that hasn't happened.

    Parameters
    ----------
    seconds : float
        Of the fit.
    peak_memory_mb : float
        Most memory that the process holds, the data in memory included.
    model_mb : float
        Size of the model on disk.
    block_mb : float
        Part of the memory that each thread needs for itself.
    threads : int
        With so many threads.
    blocks : int
        Pieces of work that can be done at the same time: blocks of labels, nodes of trees, or trees.
    least_seconds : float, optional
        Time that remains whatever number of threads there is: the longest piece, and what one thread does alone. All
        of it where work can't be shared.
    data_mb : float
        Size of the rows and labels.
    exchanged_mb : float
        For networks, which share the rows of each step between nodes: gradients that a node sends in all.

    Examples
    --------
    >>> one = Estimate(1000.0, 900.0, 100.0, 50.0, 4, blocks=500, least_seconds=10.0, data_mb=400.0)
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

    def times(self, factor: float, alone: float = 0.0) -> Estimate:
        """Give the estimate of so many such trainings one after the other, and of seconds that one thread works."""
        least = self.seconds if self.least_seconds is None else self.least_seconds
        return replace(
            self,
            seconds=self.seconds * factor + alone,
            least_seconds=least * factor + alone,
            exchanged_mb=self.exchanged_mb * factor,
        )

    def on_nodes(self, nodes: int, network: float = NETWORK, disk: float = DISK) -> ClusterEstimate:
        """Tell what the training takes on so many equal machines, each with as many threads.

        Blocks are taken to spread evenly over all threads, and each node to hold the data once. Data go from node to
        node in a tree of copies, so they are sent log2(nodes) times one after the other; all blocks come back to one
        node, which writes them down and puts them together. Networks share the rows of each step, and exchange its
        gradients.

        Parameters
        ----------
        nodes : int
        network, disk : float
            Bytes a second.
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
        return ClusterEstimate(
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
class ClusterEstimate:
    """What training would take on several machines.

    Parameters
    ----------
    nodes : int
    seconds : float
        In all.
    training_seconds, sending_seconds, gathering_seconds : float
        Of the training, until every node has the data, and of fetching, writing down and putting together the blocks.
    node_memory_mb : float
        Memory of each node: the data in its object store, what is derived from them, and its threads.
    first_memory_mb : float
        Memory of the node where the model is put together; a memory limit there keeps the model on disk.
    store_mb : float
        Object store of each node: the data, and results on their way.
    network_mb : float
        What goes over the network in all.
    disk_mb : float
        Disk of the first node: finished blocks, and the model.
    busy_threads : int
        Threads that have work; fewer than there are where blocks are few.
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
