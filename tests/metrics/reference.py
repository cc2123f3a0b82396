"""The metrics written out row by row in plain Python, independent of the library, and random cases for them."""

from __future__ import annotations

from math import log2

import numpy as np
from hypothesis import strategies as st

Ranking = list[list[int]]
Truth = list[set[int]]


def metrics(ranking: Ranking, truth: Truth, weights: list[float], k: int) -> dict[str, float]:
    precision = recall = ndcg = 0.0
    gain = best_gain = norm_gain = norm_best = ratio_gain = ratio_best = 0.0
    share_gain = share_best = share_dcg = share_best_dcg = reciprocal = adg = 0.0
    all_hits = all_decided = all_true = wrong = 0
    covered: set[int] = set()
    for predicted, true in zip(ranking, truth, strict=True):
        first = predicted[:k]
        hits = [label in true for label in first]
        covered |= {label for label in first if label in true}
        ideal = sorted((weights[label] for label in true), reverse=True)[:k]
        mass = sum(1 / log2(place + 2) for place in range(len(ideal)))
        precision += sum(hits) / k
        gain += sum(weights[label] for label, hit in zip(first, hits, strict=True) if hit)
        best_gain += sum(ideal)
        dcg = sum(weights[label] / log2(p + 2) for p, label in enumerate(first) if label in true)
        best = sum(weight / log2(p + 2) for p, weight in enumerate(ideal))
        ratio_gain += dcg
        ratio_best += best
        if any(hits):
            reciprocal += 1 / (hits.index(True) + 1)
        decided = {label for label in first if 0 <= label < len(weights)}
        all_hits, all_decided, all_true = all_hits + sum(hits), all_decided + len(decided), all_true + len(true)
        wrong += len(decided ^ true)
        if true:
            share_gain += sum(weights[label] for label in first if label in true) / len(true)
            share_best += sum(ideal) / len(true)
            share_dcg += dcg / len(true)
            share_best_dcg += best / len(true)
            adg += sum(hit / log2(place + 2) for place, hit in enumerate(hits)) / len(true)
            recall += sum(hits) / len(true)
            ndcg += sum(hit / log2(place + 2) for place, hit in enumerate(hits)) / mass
            norm_gain += dcg / mass
            norm_best += best / mass
    n, seen = len(truth), set().union(*truth)
    f1 = []
    for label in range(len(weights)):
        chosen = [label in row[:k] for row in ranking]
        both = sum(chosen) + sum(label in row for row in truth)
        if both:
            f1.append(2 * sum(c and label in row for c, row in zip(chosen, truth, strict=True)) / both)
    shares = {
        "P": (precision, n),
        "nDCG": (ndcg, n),
        "PSP": (gain, best_gain),
        "PSnDCG": (norm_gain, norm_best),
        "PSnDCG_ratio": (ratio_gain, ratio_best),
        "R": (recall, n),
        "C": (len(covered), len(seen)),
        "PSR": (share_gain, share_best),
        "MRR": (reciprocal, n),
        "ADG": (adg, n),
        "PSADG": (share_dcg, share_best_dcg),
        "microF1": (2 * all_hits, all_decided + all_true),
        "macroF1": (sum(f1), len(f1)),
        "Hamming": (wrong, n * len(weights)),
    }
    return {f"{name}@{k}": 100 * part / whole if whole else 0.0 for name, (part, whole) in shares.items()}


def indicator(truth: Truth, n_labels: int) -> np.ndarray:
    Y = np.zeros((len(truth), n_labels), np.float32)
    for row, labels in enumerate(truth):
        Y[row, list(labels)] = 1
    return Y


def padded(ranking: Ranking, places: int) -> np.ndarray:
    return np.array([row + [-1] * (places - len(row)) for row in ranking]).reshape(len(ranking), places)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Ranking, Truth, list[float]]:
    """Rankings of up to 6 of up to 9 labels, some of them unknown, beside true labels and inverse propensities."""
    n_labels = draw(st.integers(1, 9))
    n_rows = draw(st.integers(1, 12))
    known, any_label = st.integers(0, n_labels - 1), st.integers(0, n_labels + 1)
    ranking = draw(st.lists(st.lists(any_label, max_size=6, unique=True), min_size=n_rows, max_size=n_rows))
    truth = draw(st.lists(st.sets(known), min_size=n_rows, max_size=n_rows))
    weights = draw(st.lists(st.floats(1, 50), min_size=n_labels, max_size=n_labels))
    return ranking, truth, weights
