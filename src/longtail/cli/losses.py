"""`longtail losses`: the losses with their corrections for missing labels, as a table and a plot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.console import guarded, named_as, output_json, output_table, save_plot
from longtail.cli.options import AsJson, plot_option
from longtail.validation import PROBABILITY, check

if TYPE_CHECKING:
    from longtail.losses import Loss

_SCORES = (-1.0, 0.0, 1.0)


@guarded
def losses(
    propensity: Annotated[
        float, typer.Option(metavar="P", help="Probability that a true label is recorded, above 0 and at most 1.")
    ] = 0.5,
    label_count: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Also show the rebalanced forms, for a label with N training rows."),
    ] = None,
    beta: Annotated[float, typer.Option(metavar="BETA", help="Constant beta of the class-balanced factor.")] = 0.9,
    plot: Annotated[Path | None, plot_option("the losses")] = None,
    as_json: AsJson = False,
) -> None:
    """Show each loss in its plain form, its form unbiased for missing labels, and its convex surrogate.

    Values are the loss of a recorded label with score -1, 0 and 1. Equation numbers refer to Qaraei et al. 2021.
    """
    check("--propensity", propensity, PROBABILITY)
    with named_as(beta="--beta"):
        table = [_described(form, loss) for form, loss in _forms(propensity, label_count, beta)]
    if plot is not None:
        from longtail.plots.losses import loss_curves

        save_plot(loss_curves(propensity), plot)
    if as_json:
        rebalanced = {} if label_count is None else {"label_count": label_count, "beta": beta}
        output_json({"propensity": propensity, **rebalanced, "losses": table})
        return
    rows = [
        [
            row["loss"],
            row["form"],
            row["equations"],
            "yes" if row["convex"] else "no",
            "yes" if row["lower_bounded"] else "no",
            *(f"{value:.2f}" for value in row["values"].values()),
        ]
        for row in table
    ]
    columns = ["loss", "form", "equations", "convex", "bounded below", *(f"at {score:g}" for score in _SCORES)]
    output_table(f"Losses of a recorded label with propensity {propensity:g}", columns, rows, text_columns=5)


def _forms(propensity: float, label_count: int | None, beta: float) -> list[tuple[str, Loss]]:
    """Return each loss in each form, with the name of the form."""
    from longtail.losses import (
        CORRECTION_ORDERS,
        Hinge,
        Logistic,
        Rebalanced,
        SquaredHinge,
        Surrogate,
        Unbiased,
        UnbiasedRebalanced,
        ZeroOne,
    )
    from longtail.weighting import class_balanced_factor

    forms: list[tuple[str, Loss]] = []
    for plain in (ZeroOne(), Hinge(), SquaredHinge(), Logistic()):
        forms += [
            ("plain", plain),
            ("unbiased", Unbiased(plain, propensity=propensity)),
            ("surrogate", Surrogate(plain, propensity=propensity)),
        ]
        if label_count is None:
            continue
        for order, count in zip(CORRECTION_ORDERS, (label_count, label_count / propensity), strict=True):
            factor = float(class_balanced_factor(count, beta))
            for balanced in (UnbiasedRebalanced, Rebalanced):
                loss = balanced(plain, propensity=propensity, factor=factor, order=order)
                forms.append((f"{loss.name}, {order}", loss))
    return forms


def _described(form: str, loss: Loss) -> dict[str, Any]:
    from longtail.losses import Corrected

    return {
        "loss": loss.plain.name if isinstance(loss, Corrected) else loss.name,
        "form": form,
        "equations": loss.equations,
        "convex": loss.convex,
        "lower_bounded": loss.lower_bounded,
        "values": {f"{score:g}": round(float(loss.positive(score)), 6) for score in _SCORES},
    }
