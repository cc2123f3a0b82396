"""Learning-rate schedules: the factor of the learning rate at each step, counted from 0."""

from __future__ import annotations

import numpy as np


def cosine_with_warmup(step: int, steps: int, warmup_steps: int, floor: float) -> float:
    """Rise linearly over the warmup steps, and fall along half a cosine to no less than `floor`.

    Examples
    --------
    >>> [round(cosine_with_warmup(step, 4, 2, 0.1), 2) for step in range(4)]
    [0.45, 0.65, 0.35, 0.1]
    """
    falling = 0.5 * (1 + np.cos(np.pi * (step + 1) / (steps + 1)))
    return float(max(falling, floor) * min(1.0, (step + 1) / min(warmup_steps, steps)))


def linear_with_warmup(step: int, steps: int, warmup_fraction: float) -> float:
    """Rise linearly over a fraction of the steps, and fall linearly to 0 over the others.

    Examples
    --------
    >>> [round(linear_with_warmup(step, 4, 0.5), 2) for step in range(4)]
    [0.5, 1.0, 1.0, 0.5]
    """
    warmup_steps = max(round(warmup_fraction * steps), 1)
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return max((steps - step) / max(steps - warmup_steps, 1), 0.0)
