"""What corrections mend where labels are missing, and how much wrong propensities matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from longtail.app.pictures.models import colour, legend, marker
from longtail.app.pictures.style import figure, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longtail.app.studies.missing import MissingStudy, Outcome


@picture
def missing_labels(study: MissingStudy, outcomes: Sequence[Outcome], metric: str) -> Figure:
    """Draw a metric against the share of labels that is left, and against the propensities that recipes were told.

    Parameters
    ----------
    study : MissingStudy
    outcomes : sequence of Outcome
    metric : str
    """
    drawn, (by_share, by_told) = figure(9.6, 4.2, columns=2)
    kept = {severity: 100 * study.kept(severity) for severity in study.severities}
    for number, recipe in enumerate(study.all):
        is_base = recipe in study.bases
        own = [o for o in outcomes if o.recipe == recipe and o.severity is not None]
        right = sorted((o for o in own if is_base or o.given == o.severity), key=lambda o: kept[o.severity or 0])
        x = [kept[o.severity or 0] for o in right]
        y = [o.scores[metric].value for o in right]
        halves = [o.scores[metric].half or 0 for o in right]
        how = {"color": colour(number), "marker": marker(number), "linestyle": "--" if is_base else "-"}
        by_share.errorbar(x, y, yerr=halves, capsize=2, **how)  # type: ignore[arg-type]
        whole = next((o for o in outcomes if o.recipe == recipe and o.severity is None), None)
        if whole is not None:
            by_share.plot([100], [whole.scores[metric].value], **how)  # type: ignore[arg-type]
        at = [o for o in own if o.severity == study.reference]
        if is_base:
            by_told.axhline(at[0].scores[metric].value, color=colour(number), linestyle="--", linewidth=1)
            continue
        at = sorted(at, key=lambda o: kept[o.given or 0])
        told = [kept[o.given or 0] for o in at]
        by_told.errorbar(
            told, [o.scores[metric].value for o in at], yerr=[o.scores[metric].half or 0 for o in at], capsize=2,
            **how,  # type: ignore[arg-type]
        )  # fmt: skip
    by_told.axvline(kept[study.reference], color="0.6", linewidth=0.8, zorder=0)
    by_share.set(xlabel="training labels that are left, %", ylabel=f"{metric} on all test labels")
    by_told.set(xlabel="what the propensities told say is left, %", ylabel=f"{metric} on all test labels")
    by_told.set_title(f"{kept[study.reference]:.0f} % are left", fontsize=9)
    legend(drawn, study.all)
    return drawn
