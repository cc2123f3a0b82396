"""Multiplicative hashing of integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.jit import kernel

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2**64 over the golden ratio, as an odd integer."""


@kernel
def bucket_of(key: Any, bits: Any) -> Any:
    """Return the bucket of a feature or label: the upper `bits` bits of a multiplicative hash."""
    mixed = (np.uint64(key) * GOLDEN) >> np.uint64(32)
    return np.int64(mixed >> np.uint64(np.uint64(32) - np.uint64(bits)))
