"""From numbers to a page: pictures, tables and sentences in one HTML file that needs nothing else."""

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
from longtail.app.pictures.calibration import score_curves
from longtail.app.pictures.deciles import by_decile
from longtail.app.pictures.frequency import label_frequencies
from longtail.app.pictures.label_map import label_map, point_titles
from longtail.app.pictures.norms import weight_norms
from longtail.app.pictures.propensity import propensities
from longtail.app.pictures.style import in_tags, svg
from longtail.app.report import tables, words
from longtail.app.report.curves import falling_frequencies
from longtail.app.report.gather import ModelResults, Report
from longtail.app.report.tables import Table
from longtail.corpus.streams import write_whole
from longtail.metrics import Interval, frequency_bins

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_IDS = re.compile(r' id="(?P<defined>[^"]+)"|(?:url\(|href=")#(?P<used>[^")]+)')


@dataclass(frozen=True)
class Picture:
    """A picture in the page: its title, the SVG, what it says, and the numbers behind it."""

    title: str
    drawing: str
    caption: words.Caption
    tables: tuple[Table, ...]


def render(report: Report, *, made: datetime | None = None) -> str:
    """Make the page.

    Parameters
    ----------
    report : Report
    made : datetime, optional
        When, for the last line; left out, the same report gives the same bytes.

    Examples
    --------
    >>> from longtail import Dataset, Model, Popularity
    >>> from longtail.app.report import gather
    >>> data = Dataset([[1], [2], [3]], [[0, 1], [1, 1], [0, 1]], name="toy")
    >>> page = render(gather({"popularity": Model(Popularity().fit(data.X, data.Y))}, data, resamples=20))
    >>> page.startswith("<!doctype html>")
    True
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("longtail.app.report"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    with _quiet():
        pictures = _pictures(report)
    return environment.get_template("report.html").render(
        report=report,
        words=words,
        tables=tables,
        pictures=pictures,
        captions={"parts": words.parts_table(report)},
        made=made,
        version=__version__,
    )


def write(report: Report, path: str | PathLike[str], *, made: datetime | None = None) -> None:
    """Write the page to a file, whole or not at all."""
    page = render(report, made=made).encode("utf-8", "replace")
    with write_whole(path) as file:
        file.write(page)


def _pictures(report: Report) -> dict[str, list[Picture]]:
    return {
        "deciles": [_deciles(report, metric) for metric in ("PSP", "recall")],
        "data": [picture for picture in (_frequencies(report), _propensities(report)) if picture is not None],
        "models": [*_norms(report), *_calibrations(report), *_label_maps(report)],
    }


def _deciles(report: Report, metric: str) -> Picture:
    key = f"{metric}@5"
    results = {
        model.name: [
            model.decile_intervals[found.name].get(key) or Interval(found.scores[key], float("nan"), float("nan"))
            for found in model.deciles
        ]
        for model in report.models
    }
    return Picture(
        f"{key} by label frequency",
        _drawing(by_decile(key, results), f"deciles-{metric}", f"{key} of each model in each tenth of the labels"),
        words.deciles(report, metric),
        (tables.deciles_table(report, metric),),
    )


def _frequencies(report: Report) -> Picture | None:
    found = falling_frequencies(report.label_counts)
    if not len(found):
        return None
    drawn = label_frequencies(found, report.power_law, _ends_of_parts(report))
    return Picture(
        "Label frequencies",
        _drawing(drawn, "frequencies", "training rows of the labels against their rank, with a fitted power law"),
        words.frequencies(report),
        (tables.frequencies_table(report),),
    )


def _ends_of_parts(report: Report) -> dict[str, int]:
    """Last rank of head, torso and tail among the labels with a training row."""
    group, names = frequency_bins(report.label_counts)
    seen = group[report.label_counts > 0]
    return dict(zip(names, np.cumsum(np.bincount(seen, minlength=len(names))).tolist(), strict=True))


def _propensities(report: Report) -> Picture:
    names = [model.name for model in report.models]
    drawn = propensities(report.propensities, [names.index(curve.names[0]) for curve in report.propensities])
    return Picture(
        "Propensities",
        _drawing(drawn, "propensities", "propensity against the training rows of a label"),
        words.propensities(report),
        tuple(tables.propensities_table(report, curve) for curve in range(len(report.propensities))),
    )


def _norms(report: Report) -> Iterator[Picture]:
    numbers, models = _numbered(report, [bool(model.norms) for model in report.models])
    if models:
        drawn = weight_norms({model.name: model.norms or () for model in models}, numbers)
        yield Picture(
            "Weights by label frequency",
            _drawing(drawn, "norms", "median norm of the weights against the training rows of a label"),
            words.norms(report),
            tuple(tables.norms_table(models, numbers)),
        )


def _calibrations(report: Report) -> Iterator[Picture]:
    """One picture for raw scores and one for probabilities, where there are models that have them."""
    raw = {model.name: model.score_curve for model in report.models if model.score_curve.bins}
    raw = {name: curve for name, curve in raw.items() if not curve.within_one}
    probable = {model.name: model.probability_curve for model in report.models if model.probability_curve is not None}
    for probabilities, curves, title, caption in (
        (False, raw, "Scores and recorded labels", words.raw_scores),
        (True, probable, "Probabilities and recorded labels", words.probabilities),
    ):
        numbers, models = _numbered(report, [model.name in curves for model in report.models])
        if models:
            kind = "probability" if probabilities else "score"
            drawn = score_curves(curves, numbers, probabilities=probabilities)
            yield Picture(
                title,
                _drawing(drawn, f"by-{kind}", f"share of recorded labels against the {kind}"),
                caption(models),
                tuple(
                    tables.score_curve_table(kind, number, name, curve)
                    for number, (name, curve) in zip(numbers, curves.items(), strict=True)
                ),
            )


def _label_maps(report: Report) -> Iterator[Picture]:
    """One picture for each model that has label embeddings."""
    for place, model in enumerate(report.models, 1):
        found = model.label_map
        if found is None:
            continue
        name, description = f"label-map-{place}", f"map of the labels of {model.name} by their embeddings"
        yield Picture(
            "Labels by their embeddings" + (f": {model.name}" if len(report.models) > 1 else ""),
            _drawing(label_map(found), name, description, point_titles(found)),
            words.label_map(found),
            tuple(tables.label_map_tables(place, model.name, found)),
        )


def _numbered(report: Report, wanted: Sequence[bool]) -> tuple[list[int], list[ModelResults]]:
    numbers = [number for number, one in enumerate(wanted) if one]
    return numbers, [report.models[number] for number in numbers]


def _drawing(figure: Figure, name: str, description: str, titles: Mapping[str, str] | None = None) -> str:
    """SVG of a picture with ids of its own: pictures of one page must not share them, and most are never used."""
    from markupsafe import Markup

    text = svg(figure, description, titles)
    used = {match["used"] for match in _IDS.finditer(text) if match["used"]}

    def own(match: re.Match[str]) -> str:
        if match["defined"] is None:
            return match[0].replace("#", f"#{name}-", 1)
        return f' id="{name}-{match["defined"]}"' if match["defined"] in used else ""

    return Markup(in_tags(_IDS, own, text))  # matplotlib has escaped what it was given


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what matplotlib says of letters that its own font lacks: the reader's browser has other fonts."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield
