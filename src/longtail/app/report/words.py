"""The sentences of a report: how to read each picture, and what this one says."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from longtail.app.report.curves import CountBin, falling_frequencies
from longtail.app.report.formats import listing, percent, percents, share, span, training_rows
from longtail.app.report.gather import KS, METRICS, RANKED, ModelResults, Report
from longtail.app.report.label_map import CLOSE, LabelMap
from longtail.metrics import FrequencyBin
from longtail.propensity import FittedPropensity, GivenPropensity

GLOSSARY = (
    ("P@k", "Precision: recorded labels among the first k places, over k; mean over rows."),
    ("nDCG@k", "The same with earlier places counting more, over what a perfect ranking would have."),
    ("R@k", "Recall: the share of a row's recorded labels that stand in its first k places; mean over rows."),
    ("PSP@k", "Precision in which a label of propensity p counts 1/p, over what a perfect ranking would have."),
    ("PSnDCG@k", "nDCG in which a label of propensity p counts 1/p."),
    ("C@k", "Coverage: different labels found at least once, over the different labels of the test rows."),
    ("propensity", "How likely a label is recorded where it is true, as a model has it."),
    (
        "head, torso, tail",
        "From the most frequent label on: those that hold the first half of all assignments of training rows, those up "
        "to nine tenths, and the rest.",
    ),
    (
        "interval",
        "Where the value would lie with other test rows of the same kind, judged by drawing from these rows with "
        "replacement. It says nothing of how another training would turn out.",
    ),
)
"""Terms of the report and what they mean."""

_HEADLINES = (
    ("P@1", "puts a recorded label first most often", "the share of rows whose first label is recorded"),
    ("PSP@5", "does best where rare labels count more", "precision in five places with rare labels counting more"),
    ("C@5", "finds the most different labels", "the share of the test labels that are found at least once"),
)
_STRAIGHT, _ROUGH = 1.15, 1.6  # typical factors between frequencies and the power law


class Caption(NamedTuple):
    """What stands under a picture: how to read it, and what this one says."""

    read: str
    says: str


def summary(report: Report) -> list[str]:
    """What the main tables come to, in a few sentences."""
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
            sentences.append(f"{listing(level)} are level in {metric}: {value}.")
            continue
        ours, theirs = best.intervals[metric], second.intervals[metric]
        doubt = ", and the intervals overlap" if ours.low <= theirs.high else ""
        sentences.append(
            f"{best.name} {praise}: {metric} is {value} ({span(ours)}); {second.name} comes next with {other} "
            f"({span(theirs)}){doubt}."
        )
    return sentences


def caution(report: Report) -> str | None:
    """Say when the models' propensity-scored values are not on one scale."""
    if report.same_training:
        return None
    return (
        "The models had different training rows or use different propensities, so their PSP and PSnDCG are not on one "
        "scale, and their head, torso, tail and tenths need not hold the same labels."
    )


def scores_tables(report: Report) -> str:
    """How to read the main tables, and how clear they are."""
    read = (
        f"All values are in percent; the small numbers are {share(report.level)} intervals from "
        f"{report.resamples:,} draws of the test rows."
    )
    if len(report.models) == 1:
        return read
    shown = [f"{metric}@{k}" for group in METRICS.values() for metric in group for k in KS]
    clear = 0
    for metric in shown:
        best, *others = sorted(report.models, key=lambda model: -model.scores[metric])
        clear += best.intervals[metric].low > max(model.intervals[metric].high for model in others)
    return (
        f"{read} The best of each line has a star. In {clear} of {len(shown)} lines its interval lies above all "
        "others; in the rest the intervals alone don't tell the order from chance. (Every model is measured on the "
        "same rows, so a difference can be surer than overlapping intervals suggest.)"
    )


def frequencies(report: Report) -> Caption:
    """Caption of the label frequencies."""
    read = (
        "Labels are ordered by their training rows, and both axes are logarithmic: a power law is a straight line. "
        "Dotted lines end the head, whose labels hold the first half of all assignments, and the torso, which reaches "
        "to nine tenths."
    )
    found = falling_frequencies(report.label_counts)
    single, missing = int((found == 1).sum()), len(report.label_counts) - len(found)
    says = (
        f"The most frequent of {len(found):,} labels has {found[0]:,} training rows, the median label "
        f"{np.median(found):,.0f}"
    )
    says += f"; {single:,} labels ({share(single / len(found))}) have a single one." if single else "."
    if missing:
        says += f" Not drawn: {missing:,} without a training row."
    law = report.power_law
    if law is not None:
        near = "close to" if law.misfit < _STRAIGHT else "roughly" if law.misfit < _ROUGH else "not well described by"
        says += (
            f" The fitted line falls with rank to the power of {-law.exponent:.2f}; frequencies are typically a factor "
            f"of {law.misfit:.2f} off it, so they are {near} a power law."
        )
    return Caption(read, says)


def deciles(report: Report, metric: str) -> Caption:
    """Caption of a picture by tenths of the labels; `metric` is PSP or recall."""
    key = f"{metric}@{KS[-1]}"
    bars = (
        "The bars of a model add up to its PSP@5: each is what the labels of that tenth contribute."
        if metric == "PSP"
        else "Each bar is the share of the recorded labels of that tenth that stand in the first five places."
    )
    read = (
        "Each group of bars is a tenth of the labels, the most frequent on the left; lines are "
        f"{share(report.level)} intervals. {bars}"
    )
    return Caption(read, _first_tenth(report, key) if metric == "PSP" else _ends(report, key))


def _first_tenth(report: Report, key: str) -> str:
    parts = [
        f"{percent(model.deciles[0].scores[key])} of {percent(model.scores[key])} with {model.name}"
        for model in report.models
    ]
    return f"The most frequent tenth of the labels contributes {listing(parts)}."


def _ends(report: Report, key: str) -> str:
    """Who finds the most in the most frequent tenth and in the rarest where anything is found."""
    first = report.models[0].deciles
    present = [place for place, found in enumerate(first) if found.n_true]
    reached = [place for place in present if _most(report, place, key)[0] > 0]
    if not reached:
        return "Nothing is found in any tenth."
    says = []
    for place in dict.fromkeys((reached[0], reached[-1])):
        value, name = _most(report, place, key)
        where = f"the tenth with {training_rows(first[place].counts)}"
        best = f"{name} finds the most, {percents(value)}"
        says.append(f"in {where} {best}" if len(report.models) > 1 else f"in {where} {percents(value)} are found")
    rest = " Nothing is found in rarer tenths." if reached[-1] < present[-1] else ""
    text = "; ".join(says)
    return f"{text[0].upper()}{text[1:]}.{rest}"


def _most(report: Report, place: int, key: str) -> tuple[float, str]:
    found = [(m.deciles[place].scores[key], m.name) for m in report.models if m.deciles[place].n_true]
    return max(found, key=lambda pair: pair[0], default=(0.0, ""))


def parts_table(report: Report) -> Caption:
    """Caption of the table of head, torso and tail."""
    read = (
        "P@5 and PSP@5 are what the labels of a part contribute, so that the three parts add up to the whole; recall@5 "
        "is the share of the part's recorded labels that were found, C@5 the share of its labels found at least once."
    )
    head, torso, tail = report.models[0].parts
    says = (
        f"The head is {_labels(head)}, the torso {_labels(torso)} and the tail {_labels(tail)}. The tail holds "
        f"{percents(100 * tail.n_true / report.n_recorded)} of the labels recorded in the test rows."
    )
    found = [(model.parts[2].scores["recall@5"], model.name) for model in report.models if model.parts[2].n_true]
    if found:
        value, name = max(found, key=lambda pair: pair[0])
        most = f"{name} finds the most of them" if len(found) > 1 else "Found are"
        says += f" {most}: {percents(value)}."
    return Caption(read, says)


def _labels(found: FrequencyBin) -> str:
    if not found.n_labels:
        return "empty"
    return f"{found.n_labels:,} {'label' if found.n_labels == 1 else 'labels'} of {training_rows(found.counts)}"


def propensities(report: Report) -> Caption:
    """Caption of the propensity curve."""
    read = (
        "The propensity p of a label is how likely it is recorded where it is true. A dot stands for the labels of one "
        "training count: the larger, the more of them. In PSP and PSnDCG a hit counts 1/p."
    )
    first = report.models[0]
    p, counts = 1 / first.inverse_propensity, first.label_counts
    rare, frequent, median = int(counts.argmin()), int(counts.argmax()), float(np.median(p))
    says = (
        f"p is {p[rare]:.2f} for a label with {training_rows((int(counts[rare]),) * 2)} and {p[frequent]:.2f} for one "
        f"with {counts[frequent]:,}. Half of the labels have a p of at most {median:.2f}: where such a label is true, "
        f"it is expected to be recorded in at most {share(median)} of the rows, and a hit counts {1 / median:.1f}-fold "
        "or more."
    )
    if not isinstance(first.propensity, FittedPropensity | GivenPropensity):
        says += (
            " The propensities are a model's, with constants for data of its kind; they are not measured on these rows."
        )
    if len(report.propensities) > 1:
        says += f" The models have different ones; these figures are those of {first.name}."
    return Caption(read, says)


def norms(report: Report) -> Caption:
    """Caption of the classifiers' norms."""
    read = (
        "A label's score is a weighted sum of features; the norm says how large its weights are. Points are medians of "
        "labels of like frequency, bands hold the middle half."
    )
    changes = [_norm_change(model.name, model.norms) for model in report.models if model.norms]
    return Caption(read, f"The median norm goes {listing(changes)}.")


def _norm_change(name: str, bins: Sequence[CountBin]) -> str:
    ends = [f"{found.quartiles[1]:.2f} at {training_rows((found.low, found.high))}" for found in (bins[0], bins[-1])]
    return f"from {ends[0]} to {ends[1]} with {name}"


_SCORES_READ = (
    f"The {RANKED} best labels of each row are put into bins of like score with about equally many recorded labels; "
    "the height is the share of a bin that is recorded. Recorded is not the same as true: where labels are missing, "
    "the real share is higher."
)


def raw_scores(models: Sequence[ModelResults]) -> Caption:
    """Caption of the recorded labels by raw score."""
    changes, falls = [], []
    for model in models:
        bins = model.score_curve.bins
        changes.append(
            f"from {percents(bins[0].share)} at a mean score of {bins[0].mean:.2f} to {percents(bins[-1].share)} at "
            f"{bins[-1].mean:.2f} with {model.name}"
        )
        if any(after.share < before.share for before, after in pairwise(bins)):
            falls.append(model.name)
    way = f"not rising all the way with {listing(falls)}" if falls else "rising all the way"
    read = f"{_SCORES_READ} These scores are raw and no probabilities: only their order decides."
    return Caption(read, f"The share goes {listing(changes)}, {way}.")


def probabilities(models: Sequence[ModelResults]) -> Caption:
    """Caption of the recorded labels by probability."""
    errors = [
        f"{percent(model.calibration_error)} points with {model.name}"
        for model in models
        if model.calibration_error is not None
    ]
    read = f"{_SCORES_READ} On the broken line probabilities hold; above it they are too low, below it too high."
    return Caption(read, f"The expected calibration error in five places, ECE@5, is {listing(errors)}.")


def label_map(found: LabelMap) -> Caption:
    """Caption of the map of the labels."""
    read = (
        "A point is a label; rest the mouse on it for its name. Labels whose embeddings have a large inner product are "
        "put close together (t-SNE). Only what is close says something: a plane can't keep all distances, and neither "
        "directions nor gaps have a meaning. For "
        f"{share(found.kept)} of the labels the nearest one is among the {CLOSE} nearest points."
    )
    n = len(found.names)
    if n == found.n_embedded:
        says = f"All {n:,} labels that have an embedding are shown."
    else:
        says = (
            f"Shown are the {found.n_frequent:,} most frequent of the {found.n_embedded:,} labels with an embedding, "
            f"and {n - found.n_frequent:,} drawn from the others."
        )
    nearest = found.pairs[0]
    says += f" The nearest two are {nearest.label} and {nearest.other}, with an inner product of {nearest.product:.2f}."
    if found.company is not None:
        says += (
            f" Of the {found.company.n_labels:,} labels that test rows have, {share(found.company.nearest)} stand in a "
            f"row together with their nearest label; with any other label it is {share(found.company.any)}."
        )
    return Caption(read, says)


def inside(report: Report) -> list[str]:
    """Say which models are missing from the pictures of weights and scores, and which have probabilities."""
    sentences = []
    embedded = [model.name for model in report.models if not model.norms and model.has_embeddings]
    if embedded:
        verb = "has" if len(embedded) == 1 else "have"
        sentences.append(f"{listing(embedded)} {verb} embeddings of the labels, all of length 1, in place of weights.")
    without = [model.name for model in report.models if not model.norms and not model.has_embeddings]
    if without:
        verb = "has no weights and is" if len(without) == 1 else "have no weights and are"
        sentences.append(f"{listing(without)} {verb} not in the picture of weights by label frequency.")
    silent = [model.name for model in report.models if not model.score_curve.bins]
    if silent:
        sentences.append(f"{listing(silent)} predicted nothing, so there are no scores to look at.")
    calibrated = [model.name for model in report.models if model.probability_curve is not None]
    if calibrated:
        verb = "has" if len(calibrated) == 1 else "have"
        sentences.append(f"{listing(calibrated)} {verb} probabilities; they are in a picture of their own.")
    else:
        sentences.append("No model here has probabilities: all scores are raw.")
    return sentences


def examples() -> str:
    """How the documents were chosen."""
    return (
        "The best documents have everything that five places could find, those with the rarest labels first. The worst "
        "have the least, mostly nothing, of what is recorded, those with the highest score first: some of these "
        "predictions may be true and were never recorded. ✓ marks labels that are both predicted and recorded; numbers "
        "in brackets are training rows, the others scores."
    )


def labels(model: ModelResults) -> str:
    """How the labels of one model were chosen, and how many are never found."""
    least = model.examples.least_rows
    present = model.labels.true > 0
    lost = int((present & (model.labels.hits == 0)).sum())
    return (
        f"{lost:,} of the {int(present.sum()):,} labels in the test rows never stand in the first five places of a row "
        f"that has them. The tables look at labels with at least {least} test {'row' if least == 1 else 'rows'}: best, "
        "those found in the largest share of their rows, the rarest first; worst, in the smallest, those with the most "
        "rows first. Found are the rows where a label is recorded and among the first five, predicted all where it is "
        "among them."
    )
