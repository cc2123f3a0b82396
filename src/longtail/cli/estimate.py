"""`longtail estimate`: the cost of training, before it runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.arguments import parse_parameters, propensity_for
from longtail.cli.console import guarded, output, output_json, run_settings, step
from longtail.cli.options import (
    AsJson,
    LabelTexts,
    MemoryLimit,
    OwnTree,
    PropensityConstants,
    RecipeName,
    SetOptions,
    Threads,
    TrainRows,
)
from longtail.errors import counted

if TYPE_CHECKING:
    from longtail.learners import TextLearner
    from longtail.learners.cost import ClusterCost, TrainingCost


@guarded
def estimate(
    recipe: RecipeName,
    train: TrainRows,
    settings: SetOptions = None,
    propensity: PropensityConstants = None,
    tree: OwnTree = None,
    label_texts: LabelTexts = None,
    threads: Threads = None,
    memory_limit: MemoryLimit = None,
    nodes: Annotated[
        int | None,
        typer.Option(min=1, help="Also estimate a cluster of this many machines, each with the threads of this one."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate the time, the memory and the model size of training.

    Reads the data and trains a few blocks of labels as a trial.
    """
    with step("estimating"):
        from longtail.cli.preparation import prepare
        from longtail.recipes.compose import compose
        from longtail.runtime.memory import peak_memory

        parameters = parse_parameters(settings)
        plan = compose(recipe, parameters, propensity_for(propensity, train))
        with run_settings(threads=threads, memory_limit=memory_limit):
            learner, rows, dataset = prepare(plan, parameters, train, tree, label_texts)
            _load_kernels(plan)
            cost = learner.estimate(rows, dataset.Y)
    figures: dict[str, Any] = {
        "seconds": float(f"{cost.seconds:.3g}"),
        "peak_memory_mb": round(max(cost.peak_memory_mb, peak_memory() / 1e6), 1),
        "model_mb": round(cost.model_mb, 3),
        "block_mb": round(cost.block_mb, 1),
        "threads": cost.threads,
        "rows": dataset.n_rows,
        "labels": dataset.n_labels,
    }
    cluster = None if nodes is None else cost.on_nodes(nodes)
    if cluster is not None:
        figures["cluster"] = {name: float(f"{value:.4g}") for name, value in asdict(cluster).items()}
    if as_json:
        output_json(figures)
    else:
        _report(recipe, figures, cost, cluster, memory_limit)


def _load_kernels(plan: TextLearner) -> None:
    """Compile the kernels, or load them from their cache, on two rows, so that the trial doesn't time that."""
    from sklearn.base import clone

    from longtail.features import Tfidf

    if not isinstance(plan.features, Tfidf):
        return
    small = clone(plan).set_params(features__min_df=1, features__max_features=None)
    of_data = {"tree": None, "representation": "centroids", "leaf_size": 1}
    for _, part in small.parts():
        part.set_params(**{name: value for name, value in of_data.items() if hasattr(part, name)})
    small.fit(["one word", "two words"], [[1, 0], [0, 1]])


def _report(
    recipe: str, figures: dict[str, Any], cost: TrainingCost, cluster: ClusterCost | None, memory_limit: str | None
) -> None:
    from longtail.config import parse_memory

    output(
        f"{recipe} on {counted(figures['rows'], 'row')} and {counted(figures['labels'], 'label')}, "
        f"{counted(cost.threads, 'thread')}:\n"
        f"  about {cost.seconds:,.1f} s, {figures['peak_memory_mb']:,.0f} MB of memory "
        f"({cost.block_mb:,.0f} MB of it per thread) and a model of {cost.model_mb:,.1f} MB."
    )
    if cluster is not None:
        output(_cluster_report(cluster, cost))
    if memory_limit is not None and figures["peak_memory_mb"] * 1e6 > parse_memory(memory_limit):
        output(
            f"  That is more than {memory_limit}: use fewer threads, fewer features (features.min_df, "
            "features.max_features) or a larger prune_below."
        )


def _cluster_report(cluster: ClusterCost, one: TrainingCost) -> str:
    threads, share = cluster.nodes * one.threads, cluster.busy_threads
    alone = (
        "  The training can't be shared between nodes: one of them does all of it.\n"
        if one.blocks == 1 and cluster.nodes > 1 and not one.exchanged_mb
        else ""
    )
    few = f", of which {share:,} have work" if share < threads and not alone else ""
    return (
        f"On {counted(cluster.nodes, 'node')} with {counted(one.threads, 'thread')} each{few}, with the data on every "
        f"node:\n{alone}"
        f"  about {cluster.seconds:,.1f} s: {cluster.sending_seconds:,.1f} s to send {one.data_mb:,.0f} MB of data "
        f"to every node, {cluster.training_seconds:,.1f} s of training, {cluster.gathering_seconds:,.1f} s to fetch, "
        f"write and merge the blocks;\n"
        f"  {cluster.node_memory_mb:,.0f} MB of memory on each node, {cluster.store_mb:,.0f} MB of it in the object "
        f"store; {cluster.first_memory_mb:,.0f} MB of memory and {cluster.disk_mb:,.0f} MB of disk on the first; "
        f"{cluster.network_mb:,.0f} MB over the network (at 1.25 GB/s; disk at 0.5 GB/s)."
    )
