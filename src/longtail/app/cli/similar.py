"""`longtail similar`: the labels that a model has put nearest to a label."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longtail.app.cli.arguments import capped, find_label
from longtail.app.cli.console import give_json, give_table, guarded, note, step
from longtail.errors import InputError


@guarded
def similar(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="Directory of a model that has label embeddings, such as glas.", show_default=False
        ),
    ],
    label: Annotated[str, typer.Argument(metavar="LABEL", help="Name or id of a label.", show_default=False)],
    k: Annotated[int, typer.Option("-k", min=1, help="Labels to show.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Give everything as one JSON object.")] = False,
) -> None:
    """Show the labels that are nearest to a label.

    Nearest are those whose embeddings have the largest inner product with its own: 1 is the same direction, 0 a right \
angle.
    """
    with step("looking for similar labels"):
        from longtail.store import Model

        loaded = Model.load(model)
        chosen = find_label(label, loaded, "LABEL")
        try:
            top = loaded.similar_topk(chosen, capped(k, loaded))
        except InputError as error:
            raise InputError(error.reason, path=model) from None
    counts = loaded.label_counts.tolist()
    names = loaded.label_names or [str(one) for one in range(loaded.n_labels)]
    found = list(zip(top.labels[0].tolist(), top.scores[0].tolist(), strict=True))
    if as_json:
        give_json(
            {
                **_described(chosen, names, counts),
                "similar": [{**_described(near, names, counts), "inner_product": product} for near, product in found],
            }
        )
        return
    if not found:
        note("No other label has an embedding.")
    rows = [[names[near], f"{round(product, 3) + 0.0:.3f}", f"{counts[near]:,}"] for near, product in found]
    title = f"{names[chosen]}: {counts[chosen]:,} training {'row' if counts[chosen] == 1 else 'rows'}"
    give_table(title, ["label", "inner product", "training rows"], rows)


def _described(label: int, names: list[str], counts: list[int]) -> dict[str, object]:
    return {"label": label, "name": names[label], "training_rows": counts[label]}
