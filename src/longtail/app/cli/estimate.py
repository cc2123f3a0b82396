"""`longtail estimate`: what training would take, before it runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.app.cli.arguments import parse_propensity, parse_settings
from longtail.app.cli.console import give, give_json, guarded, step
from longtail.app.cli.train import give_labels, ready
from longtail.app.plans import compose, published_propensity

if TYPE_CHECKING:
    from longtail.learners.estimate import ClusterEstimate, Estimate


@guarded
def estimate(
    recipe: Annotated[
        str,
        typer.Argument(metavar="RECIPE", help="Name of a recipe; longtail recipes lists them.", show_default=False),
    ],
    train: Annotated[
        str,
        typer.Argument(
            metavar="TRAIN",
            help="File in XC text, JSONL or .npz format, or a data set's name such as debian-depends:train.",
            show_default=False,
        ),
    ],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set a parameter, as for longtail train.")
    ] = None,
    propensity: Annotated[
        str | None, typer.Option(metavar="A,B", help="Constants of the propensity model, as for longtail train.")
    ] = None,
    tree: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your own label tree for a tree recipe, as for longtail train.")
    ] = None,
    label_texts: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Part the labels of a tree recipe by texts, as for longtail train."),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads to use; all cores by default.")] = None,
    memory_limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory that training may take, such as 2GB.")
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(min=1, help="Also tell what so many machines would take, each with as many threads as this one."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Give the figures as one JSON object.")] = False,
) -> None:
    """Tell the time, the memory and the size of the model before training.

    The data is read and a few blocks of labels are trained as a trial.
    """
    with step("estimating"):
        from longtail.corpus import load
        from longtail.engine.memory import parse_memory, peak_memory
        from longtail.engine.progress import show_progress

        limit = None if memory_limit is None else parse_memory(memory_limit, "--memory-limit")
        used = parse_propensity(propensity) if propensity else published_propensity(train)
        parameters = parse_settings(settings or [])
        plan = compose(recipe, parameters, used, threads=threads, seed=0, memory_limit=memory_limit)
        with show_progress():
            with step(f"reading {train}"):
                dataset = load(train)
            give_labels(plan, dataset, tree, label_texts)
            learner, rows = ready(plan, parameters, dataset, train)
            found = learner.estimate(rows, dataset.Y)
    figures: dict[str, Any] = {
        "seconds": float(f"{found.seconds:.3g}"),
        "peak_memory_mb": round(max(found.peak_memory_mb, peak_memory() / 1e6), 1),
        "model_mb": round(found.model_mb, 3),
        "block_mb": round(found.block_mb, 1),
        "threads": found.threads,
        "rows": dataset.n_rows,
        "labels": dataset.n_labels,
    }
    cluster = None if nodes is None else found.on_nodes(nodes)
    if cluster is not None:
        figures["cluster"] = {name: float(f"{value:.4g}") for name, value in asdict(cluster).items()}
    if as_json:
        give_json(figures)
        return
    give(
        f"{recipe} on {dataset.n_rows:,} rows and {dataset.n_labels:,} labels, "
        f"{found.threads} thread{'' if found.threads == 1 else 's'}:\n"
        f"  about {found.seconds:,.1f} s, {figures['peak_memory_mb']:,.0f} MB of memory "
        f"({found.block_mb:,.0f} MB of it for each thread) and a model of {found.model_mb:,.1f} MB."
    )
    if cluster is not None:
        give(_told(cluster, found))
    if limit is not None and figures["peak_memory_mb"] * 1e6 > limit:
        give(
            f"  That is more than {memory_limit}: use fewer threads, fewer features (features.min_rows, "
            "features.max_features) or a larger prune_below."
        )


def _told(cluster: ClusterEstimate, one: Estimate) -> str:
    threads, share = cluster.nodes * one.threads, cluster.busy_threads
    alone = (
        "  The training can't be shared between nodes: one of them does all of it.\n"
        if one.blocks == 1 and cluster.nodes > 1 and not one.exchanged_mb
        else ""
    )
    few = f", of which {share:,} have work" if share < threads and not alone else ""
    return (
        f"On {cluster.nodes:,} node{'' if cluster.nodes == 1 else 's'} with {one.threads} "
        f"thread{'' if one.threads == 1 else 's'} each{few}, blocks spread evenly and the data once a node:\n{alone}"
        f"  about {cluster.seconds:,.1f} s: {cluster.sending_seconds:,.1f} s to send {one.data_mb:,.0f} MB of data "
        f"to every node, {cluster.training_seconds:,.1f} s of training, {cluster.gathering_seconds:,.1f} s to fetch, "
        f"write down and put together the blocks;\n"
        f"  {cluster.node_memory_mb:,.0f} MB of memory on each node, {cluster.store_mb:,.0f} MB of it in the object "
        f"store; {cluster.first_memory_mb:,.0f} MB where the model is put together, and {cluster.disk_mb:,.0f} MB of "
        f"disk there; {cluster.network_mb:,.0f} MB over the network (at 1.25 GB/s; disk at 0.5 GB/s)."
    )
