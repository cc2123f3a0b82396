"""What training would take, told before it runs."""

from __future__ import annotations

from dataclasses import dataclass


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
    """

    seconds: float
    peak_memory_mb: float
    model_mb: float
    block_mb: float
    threads: int
