"""Numbers as answers have them."""

from __future__ import annotations

import math
from typing import Any

from longtail.app.serve.problems import Problem


def shortened(value: Any) -> float:
    """A number to seven digits, which is what single precision holds.

    Examples
    --------
    >>> shortened(0.1234567890123)
    0.1234568
    """
    number = float(f"{value:.7g}")
    if not math.isfinite(number):
        raise Problem("invalid", "The values are so large that scores are beyond all numbers: scale them.")
    return number
