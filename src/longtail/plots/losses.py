"""Figure of the losses, with and without the corrections for missing labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longtail.plots.style import COLOURS, INK, figure, plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEAST, _MOST = -2.5, 2.5


@plot
def loss_curves(propensity: float) -> Figure:
    """Draw the loss of a recorded label against its score, for the hinge, the squared hinge and the logistic loss.

    As figure 2 of Qaraei et al. 2021: each loss (solid) and the 0-1 loss that it bounds (dashed), plain, unbiased, and
    with the convex surrogate. A ring marks where the unbiased loss stops being convex. The logistic loss is divided by
    ln 2, as in the paper, so that it bounds the 0-1 loss.

    Parameters
    ----------
    propensity : float
        Above 0 and at most 1.
    """
    import numpy as np

    from longtail.losses import Hinge, Logistic, Loss, MarginLoss, SquaredHinge, Surrogate, Unbiased, ZeroOne

    def forms(plain: Loss) -> dict[str, Loss]:
        return {
            "plain": plain,
            "unbiased": Unbiased(plain, propensity=propensity),
            "surrogate": Surrogate(plain, propensity=propensity),
        }

    panels: list[tuple[str, MarginLoss, float | None]] = [
        ("Hinge", Hinge(), -1.0),
        ("Squared hinge", SquaredHinge(), 1.0),
        ("Logistic / ln 2", Logistic(), None),
    ]
    steps = forms(ZeroOne())
    score, step = np.linspace(_LEAST, _MOST, 201), np.array([_LEAST, 0.0, np.nextafter(0.0, 1.0), _MOST])
    drawn, plots = figure(6.8, 2.7, columns=len(panels))
    for axes, (title, plain, bend) in zip(plots, panels, strict=True):
        for colour, (name, form) in zip(COLOURS, forms(plain).items(), strict=False):
            axes.plot(step, steps[name].positive(step), "--", color=colour, linewidth=0.9)
            axes.plot(score, plain.surrogate_scale * form.positive(score), color=colour, label=name)
            if name == "unbiased" and bend is not None and propensity < 1:
                axes.plot(bend, float(form.positive(bend)), "o", markersize=9, color=colour, fillstyle="none")
        axes.axhline(0.0, color=INK, linewidth=0.6)
        axes.set(xlim=(_LEAST, _MOST), xlabel="score")
        axes.set_ylim(-5.5 * (1 / propensity - 1) - 0.5, 3.5 * (2 / propensity - 1))
        axes.set_title(title)
        axes.tick_params(labelleft=axes is plots[0])
    plots[0].set_ylabel(f"loss of a recorded label, p = {propensity:g}")
    plots[-1].plot([], [], "--", color=INK, linewidth=0.9, label="0-1 loss")
    plots[-1].legend(loc="upper right")
    return drawn
