"""Captions of a report: how to read each figure, and its main results."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from longtail.metrics import FrequencyBin
from longtail.plots.curves import CountBin, falling_frequencies
from longtail.plots.formats import as_percent, listing, percents, share, span, training_rows
from longtail.plots.label_points import CLOSE, LabelMap
from longtail.propensity import FittedPropensity, GivenPropensity
from longtail.report.gather import KS, METRICS, RANKED, ModelResults, Report

GLOSSARY = (
    ("P@k", "Precision at k: the share of the k highest-ranked labels that are recorded; mean over rows."),
    ("nDCG@k", "Normalised discounted cumulative gain: higher ranks count more; relative to the ideal ranking."),
    ("R@k", "Recall at k: the share of a row's recorded labels that are among its k highest-ranked; mean over rows."),
    ("PSP@k", "Propensity-scored precision: a label of propensity p counts 1/p; relative to the ideal ranking."),
    ("PSnDCG@k", "Propensity-scored nDCG: a label of propensity p counts 1/p."),
    ("C@k", "Coverage: the share of the distinct labels of the test rows that are predicted correctly at least once."),
    ("propensity", "The probability that a true label is recorded, by the model's propensity curve."),
    (
        "head, torso, tail",
        "Labels in order of decreasing frequency: those with the first 50 % of all label assignments in the training "
        "rows, those with the next 40 %, and the rest.",
    ),
    (
        "interval",
        "Bootstrap interval: the test rows are resampled with replacement. It covers the variation between samples of "
        "test rows, not that between training runs.",
    ),
)
"""Terms of the report."""

_HEADLINES = (
    ("P@1", "has the highest precision at 1", "the share of rows whose highest-ranked label is recorded"),
    ("PSP@5", "is best where rare labels count more", "precision at 5 in which rare labels count more"),
    ("C@5", "finds the most distinct labels", "the share of the test labels that are found at least once"),
)
_STRAIGHT, _ROUGH = 1.15, 1.6  # typical factors between frequencies and the power law


class Caption(NamedTuple):
    """Text under a figure: how to read it, and its main result."""

    read: str
    says: str


def summary(report: Report) -> list[str]:
    """Summarise the main tables."""
    if len(report.models) == 1:
        (only,) = report.models
        return [
            f"{metric} is {percents(only.scores[metric])} ({span(only.intervals[metric])}): {meaning}."
            for metric, _, meaning in _HEADLINES
        ]
    sentences = []
    for metric, praise, _ in _HEADLINES:
        best, second = sorted(report.models, key=lambda model: -model.scores[metric])[:2]
        value, other = percents(best.scores[metric]), percents(second.scores[metric])
        if value == other:
            level = [model.name for model in report.models if percents(model.scores[metric]) == value]
            sentences.append(f"{listing(level)} are tied in {metric}: {value}.")
            continue
        ours, theirs = best.intervals[metric], second.intervals[metric]
        doubt = ", and the intervals overlap" if ours.low <= theirs.high else ""
        sentences.append(
            f"{best.name} {praise}: {metric} is {value} ({span(ours)}); {second.name} comes next with {other} "
            f"({span(theirs)}){doubt}."
        )
    return sentences


def caution(report: Report) -> str | None:
    """Return a warning if the propensity-scored values of the models can't be compared."""
    if report.same_training:
        return None
    return (
        "The models have different training rows or propensities, so their PSP and PSnDCG are not on one scale, and "
        "their head, torso, tail and deciles may contain different labels."
    )


def scores_tables(report: Report) -> str:
    """Explain the main tables, and count the clear differences."""
    read = (
        f"All values are in percent; the small numbers are {share(report.level)} intervals from "
        f"{report.resamples:,} bootstrap resamples of the test rows."
    )
    if len(report.models) == 1:
        return read
    shown = [f"{metric}@{k}" for group in METRICS.values() for metric in group for k in KS]
    clear = 0
    for metric in shown:
        best, *others = sorted(report.models, key=lambda model: -model.scores[metric])
        clear += best.intervals[metric].low > max(model.intervals[metric].high for model in others)
    return (
        f"{read} The best model of each line has a star. In {clear} of {len(shown)} lines its interval lies above all "
        "others; in the other lines the intervals overlap. (All models are evaluated on the same rows, so a "
        "difference can be significant although the intervals overlap: longtail compare tests it.)"
    )


def frequencies(report: Report) -> Caption:
    """Return the caption of the label frequencies."""
    read = (
        "Labels are ordered by their training rows, and both axes are logarithmic: a power law is a straight line. "
        "Dotted lines mark the ends of the head, which has 50 % of all label assignments, and of the torso, which has "
        "the next 40 %."
    )
    found = falling_frequencies(report.label_counts)
    single, missing = int((found == 1).sum()), len(report.label_counts) - len(found)
    says = (
        f"The most frequent of {len(found):,} labels has {found[0]:,} training rows, the median label "
        f"{np.median(found):,.0f}"
    )
    says += f"; {single:,} labels ({share(single / len(found))}) have a single one." if single else "."
    if missing:
        says += f" Not shown: {missing:,} without a training row."
    law = report.power_law
    if law is not None:
        near = "closely" if law.misfit < _STRAIGHT else "roughly" if law.misfit < _ROUGH else "hardly"
        says += (
            f" The fitted exponent is {-law.exponent:.2f}; frequencies typically differ from the fit by a factor of "
            f"{law.misfit:.2f}, so they {near} follow a power law."
        )
    return Caption(read, says)


def deciles(report: Report, metric: str) -> Caption:
    """Return the caption of a metric by deciles of the labels; `metric` is PSP or recall."""
    key = f"{metric}@{KS[-1]}"
    bars = (
        "The bars of a model add up to its PSP@5: each is the contribution of the labels of that decile."
        if metric == "PSP"
        else "Each bar is the share of the recorded labels of that decile that are among the five highest-ranked."
    )
    read = (
        "Each group of bars is a decile of the labels, the most frequent on the left; vertical lines are "
        f"{share(report.level)} bootstrap intervals. {bars}"
    )
    if metric != "PSP":
        return Caption(read, _ends(report, key))
    parts = [
        f"{as_percent(model.deciles[0].scores[key])} of {as_percent(model.scores[key])} with {model.name}"
        for model in report.models
    ]
    return Caption(read, f"The most frequent decile of the labels contributes {listing(parts)}.")


def _ends(report: Report, key: str) -> str:
    """Return the best model in the most frequent decile and in the rarest decile with any recall."""
    first = report.models[0].deciles
    present = [place for place, found in enumerate(first) if found.n_true]
    reached = [place for place in present if _most(report, place, key)[0] > 0]
    if not reached:
        return "No recorded label is found in any decile."
    says = []
    for place in dict.fromkeys((reached[0], reached[-1])):
        value, name = _most(report, place, key)
        where = f"the decile with {training_rows(first[place].counts)}"
        best = f"{name} finds the most, {percents(value)}"
        says.append(f"in {where} {best}" if len(report.models) > 1 else f"in {where} {percents(value)} are found")
    rest = " No label is found in rarer deciles." if reached[-1] < present[-1] else ""
    text = "; ".join(says)
    return f"{text[0].upper()}{text[1:]}.{rest}"


def _most(report: Report, place: int, key: str) -> tuple[float, str]:
    found = [(m.deciles[place].scores[key], m.name) for m in report.models if m.deciles[place].n_true]
    return max(found, key=lambda pair: pair[0], default=(0.0, ""))


def bins_table(report: Report) -> Caption:
    """Return the caption of the table of head, torso and tail."""
    read = (
        "P@5 and PSP@5 are the contributions of the labels of a bin and add up to the metric. Recall@5 is the "
        "share of the bin's recorded labels that are found, C@5 the share of its labels found at least once."
    )
    head, torso, tail = report.models[0].bins
    says = (
        f"The head is {_labels(head)}, the torso {_labels(torso)} and the tail {_labels(tail)}. The tail has "
        f"{percents(100 * tail.n_true / report.n_recorded)} of the recorded labels of the test rows."
    )
    found = [(model.bins[2].scores["recall@5"], model.name) for model in report.models if model.bins[2].n_true]
    if found:
        value, name = max(found, key=lambda pair: pair[0])
        most = f"{name} has the highest recall@5 there" if len(found) > 1 else "Recall@5 there is"
        says += f" {most}{':' if len(found) > 1 else ''} {percents(value)}."
    return Caption(read, says)


def _labels(found: FrequencyBin) -> str:
    if not found.n_labels:
        return "empty"
    return f"{found.n_labels:,} {'label' if found.n_labels == 1 else 'labels'} of {training_rows(found.counts)}"


def propensities(report: Report) -> Caption:
    """Return the caption of the propensity curve."""
    read = (
        "The propensity p of a label is the probability that it is recorded where it is true. Each dot represents the "
        "labels with one training count; its area grows with their number. In PSP and PSnDCG a hit counts 1/p."
    )
    first = report.models[0]
    p, counts = 1 / first.inverse_propensity, first.label_counts
    rare, frequent, median = int(counts.argmin()), int(counts.argmax()), float(np.median(p))
    says = (
        f"p is {p[rare]:.2f} for a label with {training_rows((int(counts[rare]),) * 2)} and {p[frequent]:.2f} for one "
        f"with {counts[frequent]:,}. The median is {median:.2f}: half of the labels are expected to be recorded in at "
        f"most {share(median)} of the rows where they are true, and a hit counts {1 / median:.1f} or more."
    )
    if not isinstance(first.propensity, FittedPropensity | GivenPropensity):
        says += (
            " The propensities come from a published model with constants for similar data; they are not estimated "
            "from these rows."
        )
    if len(report.propensities) > 1:
        says += f" The models have different propensities; these numbers are those of {first.name}."
    return Caption(read, says)


def norms(report: Report) -> Caption:
    """Return the caption of the norms of the classifiers."""
    read = (
        "A label's score is a weighted sum of features; the norm measures the size of its weights. Points are medians "
        "over labels of similar frequency, bands the interquartile range."
    )
    changes = [
        f"from {_median(model.norms[0])} to {_median(model.norms[-1])} with {model.name}"
        for model in report.models
        if model.norms
    ]
    return Caption(read, f"The median norm changes {listing(changes)}.")


def _median(found: CountBin) -> str:
    return f"{found.quartiles[1]:.2f} at {training_rows((found.low, found.high))}"


_SCORES_READ = (
    f"The {RANKED} highest-ranked labels of each row are binned by score, with about equally many recorded labels per "
    "bin; the height is the share of recorded labels in a bin. Where labels are missing, the share of true labels is "
    "higher."
)


def raw_scores(models: Sequence[ModelResults]) -> Caption:
    """Return the caption of the recorded labels by raw score."""
    changes, falls = [], []
    for model in models:
        bins = model.score_curve.bins
        changes.append(
            f"from {percents(bins[0].share)} at a mean score of {bins[0].mean:.2f} to {percents(bins[-1].share)} at "
            f"{bins[-1].mean:.2f} with {model.name}"
        )
        if any(after.share < before.share for before, after in pairwise(bins)):
            falls.append(model.name)
    way = f"not monotonically for {listing(falls)}" if falls else "increasing monotonically"
    read = f"{_SCORES_READ} These are raw scores, not probabilities: only their order matters."
    return Caption(read, f"The share changes {listing(changes)}, {way}.")


def probabilities(models: Sequence[ModelResults]) -> Caption:
    """Return the caption of the recorded labels by probability."""
    errors = [
        f"{as_percent(model.calibration_error)} points for {model.name}"
        for model in models
        if model.calibration_error is not None
    ]
    read = f"{_SCORES_READ} On the dashed line probabilities are calibrated, above it too low, below it too high."
    return Caption(read, f"The expected calibration error at 5, ECE@5, is {listing(errors)}.")


def label_map(found: LabelMap) -> Caption:
    """Return the caption of the label map."""
    read = (
        "Each point is a label; hover over it for its name. Labels whose embeddings have a large inner product are "
        "close together (t-SNE). Only neighbourhoods are meaningful, not large distances or directions. For "
        f"{share(found.kept)} of the labels the nearest label is among the {CLOSE} nearest points."
    )
    n = len(found.names)
    if n == found.n_embedded:
        says = f"All {n:,} labels that have an embedding are shown."
    else:
        says = (
            f"Shown are the {found.n_frequent:,} most frequent of the {found.n_embedded:,} labels with an embedding, "
            f"and a random sample of {n - found.n_frequent:,} of the others."
        )
    nearest = found.pairs[0]
    says += f" The nearest two are {nearest.label} and {nearest.other}, with an inner product of {nearest.product:.2f}."
    if found.company is not None:
        says += (
            f" Of the {found.company.n_labels:,} labels that occur in test rows, {share(found.company.nearest)} "
            f"co-occur with their nearest label; on average a label co-occurs with {share(found.company.any)} of the "
            "others."
        )
    return Caption(read, says)


def inside(report: Report) -> list[str]:
    """List the models that are missing from the figures of weights and scores, and those with probabilities."""
    sentences = []
    embedded = [model.name for model in report.models if not model.norms and model.has_embeddings]
    if embedded:
        verb = "has" if len(embedded) == 1 else "have"
        sentences.append(f"{listing(embedded)} {verb} label embeddings of length 1 instead of weights.")
    without = [model.name for model in report.models if not model.norms and not model.has_embeddings]
    if without:
        verb = "has no weights and is" if len(without) == 1 else "have no weights and are"
        sentences.append(f"{listing(without)} {verb} not in the figure of weights by label frequency.")
    silent = [model.name for model in report.models if not model.score_curve.bins]
    if silent:
        sentences.append(f"{listing(silent)} predicted no labels, so there are no scores to show.")
    calibrated = [model.name for model in report.models if model.probability_curve is not None]
    if calibrated:
        verb = "has" if len(calibrated) == 1 else "have"
        sentences.append(f"{listing(calibrated)} {verb} probabilities, which are in a separate figure.")
    else:
        sentences.append("No model here has probabilities: all scores are raw.")
    return sentences


def examples() -> str:
    """Explain the choice of documents."""
    return (
        "The best documents have the highest PSP@5, those with the rarest labels first. The worst have the "
        "lowest, mostly 0, those with the highest score first: some of their predictions may be true labels that were "
        "not recorded. ✓ marks labels that are both predicted and recorded; numbers in parentheses are training rows, "
        "the others are scores."
    )


def labels(model: ModelResults) -> str:
    """Explain the choice of labels of one model, and count those that are never found."""
    least = model.examples.least_rows
    present = model.labels.true > 0
    lost = int((present & (model.labels.hits == 0)).sum())
    return (
        f"{lost:,} of the {int(present.sum()):,} labels in the test rows are never among the five highest-ranked of a "
        f"row that has them. The tables show labels with at least {least} test {'row' if least == 1 else 'rows'}: the "
        "best have the highest recall@5, the rarest first; the worst have the lowest, those with the most rows first. "
        "Found are the test rows where the label is recorded and among the five highest-ranked; predicted are all test "
        "rows where it is among the five highest-ranked."
    )
