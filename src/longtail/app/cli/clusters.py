"""The option of commands whose work may be done on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

OnCluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="auto|ADDRESS|local",
        help="Work on a Ray cluster: the one that runs on this machine (auto), the one at host:port, or one of its own "
        "on this machine (local). The result is the same.",
        show_default=False,
    ),
]


@contextmanager
def on_cluster(
    cluster: str | None, threads: int | None = None, memory_limit: int | str | None = None
) -> Iterator[None]:
    """Let the heavy work of a command be done where the option says; on threads of this process without it."""
    if cluster is None:
        yield
        return
    from longtail.engine.cluster import check_address, use_engine
    from longtail.engine.memory import limit_of_a_cluster

    check_address(cluster, "--cluster", "must be auto, local or host:port")
    if cluster == "local" and memory_limit is not None:
        raise limit_of_a_cluster("--memory-limit", memory_limit)
    with use_engine("ray", address=None if cluster == "local" else cluster, threads=threads):
        yield
