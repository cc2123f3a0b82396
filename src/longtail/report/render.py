"""Rendering of a report: figures, tables and text in one self-contained HTML file."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np

from longtail import __version__
from longtail.data.streams import write_whole
from longtail.metrics import Interval, frequency_bins
from longtail.plots.by_frequency import by_decile, label_frequencies, propensities, weight_norms
from longtail.plots.comparisons import score_curves
from longtail.plots.curves import falling_frequencies
from longtail.plots.label_map import label_map, point_titles
from longtail.plots.style import in_tags, svg
from longtail.report import captions, tables
from longtail.report.gather import ModelResults, Report
from longtail.report.tables import ReportTable
from longtail.templates import page_environment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_IDS = re.compile(r' id="(?P<defined>[^"]+)"|(?:url\(|href=")#(?P<used>[^")]+)')


@dataclass(frozen=True)
class Plot:
    """A figure of the page: its title, SVG, caption and numbers."""

    title: str
    drawing: str
    caption: captions.Caption
    tables: tuple[ReportTable, ...]


def render(report: Report, *, made: datetime | None = None) -> str:
    """Return the page.

    Parameters
    ----------
    report : Report
    made : datetime, optional
        Time for the footer; without it the same report gives the same bytes.

    Examples
    --------
    >>> from longtail import Dataset, Model, Popularity
    >>> from longtail.report import gather
    >>> data = Dataset([[1], [2], [3]], [[0, 1], [1, 1], [0, 1]], name="toy")
    >>> page = render(gather({"popularity": Model(Popularity().fit(data.X, data.Y))}, data, resamples=20))
    >>> page.startswith("<!doctype html>")
    True
    """
    with _quiet():
        plots = _plots(report)
    return (
        page_environment("longtail.report")
        .get_template("report.html")
        .render(
            report=report,
            captions=captions,
            tables=tables,
            plots=plots,
            bins_caption=captions.bins_table(report),
            made=made,
            version=__version__,
        )
    )


def write(report: Report, path: str | PathLike[str], *, made: datetime | None = None) -> None:
    """Write the page to a file, atomically.

    Examples
    --------
    >>> import tempfile
    >>> from longtail import Dataset, Model, Popularity
    >>> from longtail.report import gather
    >>> data = Dataset([[1], [2], [3]], [[0, 1], [1, 1], [0, 1]], name="toy")
    >>> path = tempfile.mkdtemp() + "/report.html"
    >>> write(gather({"popularity": Model(Popularity().fit(data.X, data.Y))}, data, resamples=20), path)
    >>> open(path, encoding="utf-8").readline().strip()
    '<!doctype html>'
    """
    page = render(report, made=made).encode("utf-8", "replace")
    with write_whole(path) as file:
        file.write(page)


def _plots(report: Report) -> dict[str, list[Plot]]:
    return {
        "deciles": [_deciles(report, metric) for metric in ("PSP", "recall")],
        "data": [plot for plot in (_frequencies(report), _propensities(report)) if plot is not None],
        "models": [*_norms(report), *_calibrations(report), *_label_maps(report)],
    }


def _deciles(report: Report, metric: str) -> Plot:
    key = f"{metric}@5"
    results = {
        model.name: [
            model.decile_intervals[found.name].get(key) or Interval(found.scores[key], float("nan"), float("nan"))
            for found in model.deciles
        ]
        for model in report.models
    }
    return Plot(
        f"{key} by label frequency",
        _drawing(by_decile(key, results), f"deciles-{metric}", f"{key} of each model in each decile of the labels"),
        captions.deciles(report, metric),
        (tables.deciles_table(report, metric),),
    )


def _frequencies(report: Report) -> Plot | None:
    found = falling_frequencies(report.label_counts)
    if not len(found):
        return None
    drawn = label_frequencies(found, report.power_law, _ends_of_bins(report))
    return Plot(
        "Label frequencies",
        _drawing(drawn, "frequencies", "training rows of the labels against their rank, with a fitted power law"),
        captions.frequencies(report),
        (tables.frequencies_table(report),),
    )


def _ends_of_bins(report: Report) -> dict[str, int]:
    """Return the last ranks of head, torso and tail among the labels with a training row."""
    bin_of_label, names = frequency_bins(report.label_counts)
    seen = bin_of_label[report.label_counts > 0]
    return dict(zip(names, np.cumsum(np.bincount(seen, minlength=len(names))).tolist(), strict=True))


def _propensities(report: Report) -> Plot:
    names = [model.name for model in report.models]
    drawn = propensities(report.propensities, [names.index(curve.names[0]) for curve in report.propensities])
    return Plot(
        "Propensities",
        _drawing(drawn, "propensities", "propensity against the training rows of a label"),
        captions.propensities(report),
        tuple(tables.propensities_table(report, curve) for curve in range(len(report.propensities))),
    )


def _norms(report: Report) -> Iterator[Plot]:
    numbers, models = _numbered(report, [bool(model.norms) for model in report.models])
    if models:
        drawn = weight_norms({model.name: model.norms or () for model in models}, numbers)
        yield Plot(
            "Weights by label frequency",
            _drawing(drawn, "norms", "median norm of the weights against the training rows of a label"),
            captions.norms(report),
            tuple(tables.norms_table(models, numbers)),
        )


def _calibrations(report: Report) -> Iterator[Plot]:
    """Yield a figure of raw scores and one of probabilities, if any model has them."""
    raw = {model.name: model.score_curve for model in report.models if model.score_curve.bins}
    raw = {name: curve for name, curve in raw.items() if not curve.within_one}
    probable = {model.name: model.probability_curve for model in report.models if model.probability_curve is not None}
    for probabilities, curves, title, caption in (
        (False, raw, "Scores and recorded labels", captions.raw_scores),
        (True, probable, "Probabilities and recorded labels", captions.probabilities),
    ):
        numbers, models = _numbered(report, [model.name in curves for model in report.models])
        if models:
            kind = "probability" if probabilities else "score"
            drawn = score_curves(curves, numbers, probabilities=probabilities)
            yield Plot(
                title,
                _drawing(drawn, f"by-{kind}", f"share of recorded labels against the {kind}"),
                caption(models),
                tuple(
                    tables.score_curve_table(kind, number, name, curve)
                    for number, (name, curve) in zip(numbers, curves.items(), strict=True)
                ),
            )


def _label_maps(report: Report) -> Iterator[Plot]:
    """Yield a figure per model with label embeddings."""
    for place, model in enumerate(report.models, 1):
        found = model.label_map
        if found is None:
            continue
        name, description = f"label-map-{place}", f"map of the labels of {model.name} by their embeddings"
        yield Plot(
            "Labels by their embeddings" + (f": {model.name}" if len(report.models) > 1 else ""),
            _drawing(label_map(found), name, description, point_titles(found)),
            captions.label_map(found),
            tuple(tables.label_map_tables(place, model.name, found)),
        )


def _numbered(report: Report, wanted: Sequence[bool]) -> tuple[list[int], list[ModelResults]]:
    numbers = [number for number, one in enumerate(wanted) if one]
    return numbers, [report.models[number] for number in numbers]


def _drawing(figure: Figure, name: str, description: str, titles: Mapping[str, str] | None = None) -> str:
    """Return a figure as SVG with unique ids, without those that are never used."""
    from markupsafe import Markup

    text = svg(figure, description, titles)
    used = {match["used"] for match in _IDS.finditer(text) if match["used"]}

    def own(match: re.Match[str]) -> str:
        if match["defined"] is None:
            return match[0].replace("#", f"#{name}-", 1)
        return f' id="{name}-{match["defined"]}"' if match["defined"] in used else ""

    return Markup(in_tags(_IDS, own, text))  # matplotlib has escaped its texts


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress warnings about letters that matplotlib's font lacks: the browser has other fonts."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield
