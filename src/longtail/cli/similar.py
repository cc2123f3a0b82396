"""`longtail similar`: the nearest labels of a label."""

from __future__ import annotations

from typing import Annotated

import typer

from longtail.cli.arguments import capped
from longtail.cli.console import errors_of, guarded, note, output_json, output_table, step
from longtail.cli.options import AsJson, ModelPath, k_option
from longtail.errors import counted


@guarded
def similar(
    model: ModelPath,
    label: Annotated[str, typer.Argument(metavar="LABEL", help="Name or id of a label.", show_default=False)],
    k: Annotated[int, k_option("Labels to show")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show the labels nearest to a label, for a model with label embeddings such as glas.

    Labels are ranked by the inner product of their embeddings, which have norm 1.
    """
    with step("looking for similar labels"):
        from longtail.store import Model

        loaded = Model.load(model)
        chosen = loaded.labels.id_of(label, "LABEL", text_ids=True)
        with errors_of(model):
            top = loaded.similar_topk(chosen, capped(k, loaded))
    counts = loaded.label_counts.tolist()
    shown = loaded.labels.shown
    found = list(zip(top.labels[0].tolist(), top.scores[0].tolist(), strict=True))

    def described(label: int) -> dict[str, object]:
        return {"label": label, "name": shown(label), "training_rows": counts[label]}

    if as_json:
        nearest = [{**described(near), "inner_product": product} for near, product in found]
        output_json({**described(chosen), "similar": nearest})
        return
    if not found:
        note("No other label has an embedding.")
    rows = [[shown(near), f"{round(product, 3) + 0.0:.3f}", f"{counts[near]:,}"] for near, product in found]
    title = f"{shown(chosen)}: {counted(counts[chosen], 'training row')}"
    output_table(title, ["label", "inner product", "training rows"], rows)
