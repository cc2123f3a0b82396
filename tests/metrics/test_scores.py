from __future__ import annotations

import json

import pytest

from longtail.errors import InputError
from longtail.metrics import Scores, evaluate, relative_change

NAMES = ("PSP@1", "PSP@3", "PSP@5", "PSnDCG@3", "PSnDCG@5", "P@1", "P@3", "P@5", "nDCG@3", "nDCG@5")


def published(*values: float) -> dict[str, float]:
    """Turn a row of the paper's tables, which leave out nDCG@1 (it is P@1) and PSnDCG@1 (it is PSP@1), into scores."""
    scores = dict(zip(NAMES, values, strict=True))
    return scores | {"nDCG@1": scores["P@1"], "PSnDCG@1": scores["PSP@1"]}


EURLEX = published(41.20, 45.40, 49.30, 44.30, 46.90, 82.40, 68.50, 57.70, 72.50, 66.70)
WIKILSHTC = published(29.10, 35.60, 39.50, 35.90, 39.40, 64.40, 42.50, 31.50, 58.50, 58.40)


@pytest.mark.parametrize(
    ("base", "method", "ps", "vanilla"),
    [
        (EURLEX, published(43.05, 47.39, 50.58, 46.19, 48.37, 82.17, 70.01, 58.77, 73.18, 67.65), 3.89, 0.98),
        (EURLEX, published(43.48, 48.81, 51.25, 47.36, 49.15, 82.25, 68.80, 57.18, 72.26, 66.32), 5.71, -0.29),
        (WIKILSHTC, published(34.24, 37.22, 40.78, 38.44, 41.57, 64.60, 42.73, 31.64, 58.83, 58.74), 9.28, 0.46),
        (WIKILSHTC, published(37.12, 40.36, 43.57, 41.61, 44.61, 65.27, 42.68, 31.48, 59.11, 58.96), 17.99, 0.84),
    ],
)
def test_equation_30_on_the_published_table_3(
    base: dict[str, float], method: dict[str, float], ps: float, vanilla: float
) -> None:
    assert relative_change(method, base) == pytest.approx({"PS": ps, "vanilla": vanilla}, abs=0.005)
    assert relative_change(base, base) == {"vanilla": 0, "PS": 0}


def test_a_metric_that_was_not_evaluated_is_named() -> None:
    scores = evaluate([[0]], [[1, 0]], ks=[1])
    assert "P@5" not in scores
    with pytest.raises(KeyError, match="P@5 was not evaluated: there are P@1, nDCG@1"):
        scores["P@5"]
    with pytest.raises(KeyError, match="metrics with propensities need inverse_propensity"):
        scores["PSP@1"]


def test_a_group_that_neither_side_has_is_left_out() -> None:
    scores = evaluate([[0, 1]], [[1, 1]])
    assert list(relative_change(scores, scores)) == ["vanilla"]


def test_refuses_what_it_cannot_compare() -> None:
    with pytest.raises(InputError, match=r"P@3, P@5, nDCG@1.* missing in scores"):
        relative_change({"P@1": 1.0}, EURLEX)
    with pytest.raises(InputError, match=r"PSP@1.* missing in base"):
        relative_change(EURLEX, {key: value for key, value in EURLEX.items() if not key.startswith("PS")})
    with pytest.raises(InputError, match="P@1 of the base is 0"):
        relative_change({"P@1": 1.0}, {"P@1": 0.0}, metrics={"one": ["P@1"]})


def test_scores_are_a_mapping_ready_for_json() -> None:
    scores = evaluate([[0]], [[1]], inverse_propensity=[2.0], ks=[1, 3])
    assert json.loads(json.dumps(dict(scores))) == dict(scores)
    first = ("P", "nDCG", "PSP", "PSnDCG", "PSnDCG_ratio", "R", "C")
    others = ("PSR", "MRR", "ADG", "PSADG", "microF1", "macroF1", "Hamming")
    assert list(scores) == [f"{name}@{k}" for name in first + others for k in (1, 3)]
    assert scores == dict(scores)
    assert len(scores) == 28
    assert "P@2" not in scores


def test_table_with_holes() -> None:
    table = Scores({"P@1": 50.0, "MRR@10": 7.5}, n_rows=1).table()
    assert table.splitlines() == ["        @1   @10", "P    50.00", "MRR         7.50"]


def test_small_hamming_losses_show_their_digits() -> None:
    assert Scores({"Hamming@1": 0.00123456, "P@1": 0.00123456}, n_rows=1).table().splitlines()[1:] == [
        "Hamming  0.0012",
        "P          0.00",
    ]


def test_repr_names_the_rerank() -> None:
    assert "in percent, propensity-scored after x\n" in repr(Scores({"P@1": 1.0}, n_rows=1, rerank="x"))
