from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.errors import InputError, ParameterError
from longtail.metrics import by_frequency, evaluate, frequency_bins
from tests.metrics.reference import cases, indicator, padded


def test_head_torso_tail_by_hand() -> None:
    """100 assignments. Above the labels stand 0, 30, 50, 70 (twice), 90, 96 and 100 of them: head below 50, torso
    below 90, tail the rest; the two labels with 10 stay together, and the unseen label is in the tail."""
    bins, names = frequency_bins([4, 30, 20, 20, 10, 10, 6, 0])
    assert names == ["head", "torso", "tail"]
    assert bins.tolist() == [2, 0, 0, 0, 1, 1, 2, 2]


def test_head_torso_tail_of_odd_counts() -> None:
    assert frequency_bins([5, 5, 5])[0].tolist() == [0, 0, 0]
    assert frequency_bins([0, 0])[0].tolist() == [2, 2]
    assert frequency_bins([1000, 1])[0].tolist() == [0, 2]


def test_deciles_have_equal_numbers_of_labels() -> None:
    counts = np.random.default_rng(0).integers(0, 20, 137)
    bins, names = frequency_bins(counts, "deciles")
    sizes = np.bincount(bins, minlength=10)
    assert len(names) == 10
    assert sizes.max() - sizes.min() <= 1
    for rarer in range(1, 10):
        assert counts[bins == rarer].max() <= counts[bins == rarer - 1].min()


def test_deciles_split_equal_counts_by_label_id() -> None:
    assert frequency_bins(np.ones(20, int), "deciles")[0].tolist() == [label // 2 for label in range(20)]


def test_edges() -> None:
    bins, names = frequency_bins([0, 1, 5, 6, 100], [1, 2, 6])
    assert names == ["6 or more", "2-5", "1", "0"]
    assert bins.tolist() == [3, 2, 1, 0, 0]


@pytest.mark.parametrize("bins", ["quartiles", [], [0, 5], [5, 5], [5, 2], [1.5]])
def test_refused_bins(bins) -> None:
    with pytest.raises(ParameterError, match="bins"):
        frequency_bins([1, 2], bins)


@pytest.mark.parametrize("counts", [[[1, 2]], [0.5, 1.0], [-1, 2]])
def test_refused_counts(counts) -> None:
    with pytest.raises(InputError, match="label_counts"):
        frequency_bins(counts)
    with pytest.raises(InputError, match="for each label"):
        by_frequency([[0]], [[1, 0]], [5])


def test_scores_by_hand() -> None:
    """Two rows, k = 2, 1/p = 1, 2, 4, 8; labels 0 and 1 are the head, 2 and 3 the tail.

    Row 0 has {0, 2} and the ranking 0, 3: a hit in the head. Row 1 has {1, 3} and the ranking 3, 0: a hit in the tail.
    The best gains at 2 are (4 + 1) + (8 + 2) = 15.
    """
    Y = [[1, 0, 1, 0], [0, 1, 0, 1]]
    head, torso, tail = by_frequency([[0, 3], [3, 0]], Y, [50, 50, 1, 0], inverse_propensity=[1, 2, 4, 8], ks=[2])
    assert (head.name, head.n_labels, head.counts, head.n_true) == ("head", 2, (50, 50), 2)
    assert (tail.name, tail.n_labels, tail.counts, tail.n_true) == ("tail", 2, (0, 1), 2)
    assert (torso.n_labels, torso.n_true) == (0, 0)
    assert head.scores == pytest.approx({"P@2": 25, "PSP@2": 100 / 15, "recall@2": 50, "C@2": 50})
    assert tail.scores == pytest.approx({"P@2": 25, "PSP@2": 800 / 15, "recall@2": 50, "C@2": 50})
    assert (torso.scores["P@2"], torso.scores["PSP@2"]) == (0, 0)
    assert np.isnan([torso.scores["recall@2"], torso.scores["C@2"]]).all()


@given(cases(), st.sampled_from(["head-torso-tail", "deciles", [2, 4]]), st.data())
@settings(max_examples=60, deadline=None)
def test_bins_add_up_to_the_whole(case: tuple[list[list[int]], list[set[int]], list[float]], bins, data) -> None:
    ranking, truth, weights = case
    counts = data.draw(st.lists(st.integers(0, 9), min_size=len(weights), max_size=len(weights)))
    top, Y = padded(ranking, 6), indicator(truth, len(weights))
    table = by_frequency(top, Y, counts, bins=bins, inverse_propensity=weights)
    whole = evaluate(top, Y, inverse_propensity=weights)
    assert sum(item.n_labels for item in table) == len(weights)
    assert sum(item.n_true for item in table) == Y.sum()
    for key in ("P@1", "P@5", "PSP@1", "PSP@3", "PSP@5"):
        assert sum(item.scores[key] for item in table) == pytest.approx(whole[key], abs=1e-9)
    found = sum(np.nan_to_num(item.scores["recall@5"]) * item.n_true for item in table) / 100
    assert found == pytest.approx(whole["P@5"] * 5 * len(truth) / 100)


def test_table_reads_well() -> None:
    table = by_frequency([[0], [2]], [[1, 0, 0], [0, 0, 0]], [9, 1, 0], ks=[1])
    assert len(table) == 3
    assert [item.name for item in table[1:]] == ["torso", "tail"]
    assert table.table().splitlines() == [
        "       labels  training rows  true    P@1  recall@1     C@1",
        "head        1              9     1  50.00    100.00  100.00",
        "torso       0                    0   0.00",
        "tail        2            0-1     0   0.00",
    ]
