"""longtail's linear recipes against the peers: training time, accuracy, prediction time, size and memory."""

from __future__ import annotations

import sys

from data import DATASETS
from measure import PEERS, Benchmark, run_benchmark

LINEAR = Benchmark(
    name="linear",
    description=__doc__,
    ours="longtail-dismec",
    systems=("longtail-dismec", "longtail-pw-dismec", "longtail-pw-cb-dismec", *PEERS),
    datasets=DATASETS,
    too_slow={"tate-subjects": ("libmultilabel",), "debian-depends": ("libmultilabel",)},
    without=("single row p99 us",),
)

if __name__ == "__main__":
    sys.exit(run_benchmark(LINEAR))
