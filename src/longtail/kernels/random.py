"""The random generator of all kernels: splitmix64, with its state held by the caller."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.jit import kernel
from longtail.kernels.types import UInt64

STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


@kernel
def mixed(state: Any) -> Any:
    """Return 64 random bits for a state; the next state is ``state + STEP``."""
    bits = (state ^ (state >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    return bits ^ (bits >> np.uint64(31))


@kernel
def next_random(state: UInt64) -> Any:
    """Advance the generator in ``state[0]`` and return 64 random bits."""
    state[0] += STEP
    return mixed(state[0])


@kernel
def random_below(limit: int, state: UInt64) -> Any:
    """Return a random integer from 0 to `limit` - 1, for limits below 2**32."""
    return np.int64(((next_random(state) >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))


@kernel
def random_unit(state: UInt64) -> Any:
    """Return a random float from 0 up to, but not including, 1."""
    return np.float64(next_random(state) >> np.uint64(11)) * 2.0**-53
