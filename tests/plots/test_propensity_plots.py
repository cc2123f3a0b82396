"""Plots of propensities."""

from __future__ import annotations

import numpy as np

from longtail.metrics.propensity_sensitivity import sensitivity
from longtail.plots.by_frequency import PUBLISHED, fitted_curve
from longtail.plots.comparisons import sensitivity_curves
from longtail.propensity import JainPropensity, PropensityPoints


def test_the_points_the_curve_and_the_published_ones():
    counts = np.array([1.0, 3, 9, 40, 200])
    ones = np.ones(5, np.int64)
    known = JainPropensity(a=0.7, b=3.0).propensities(counts, 900)
    fitted = PropensityPoints(counts, known, 20 * ones, ones, 900).fit(resamples=5)
    (axes,) = fitted_curve(fitted).axes
    np.testing.assert_allclose(axes.collections[-1].get_offsets(), np.column_stack([counts, known]))
    assert len(axes.lines) == 1 + len(PUBLISHED)
    curve = axes.lines[-1]
    np.testing.assert_allclose(curve.get_ydata(), fitted.propensities(curve.get_xdata(), 900))
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert "fitted: A = 0.7, B = 3" in labels
    assert "bins of 20 labels" in labels


def test_a_plot_for_each_b_and_marks_where_the_order_changes():
    tops = {"head": [[0], [0]], "tail": [[1], [2]]}
    result = sensitivity(tops, [[1, 1, 0], [1, 0, 0]], [90, 2, 1], 100, a=[0.6, 0.0], b=[0.5, 1.5], ks=[1, 2])
    plots = sensitivity_curves(result, 1).axes
    assert [axes.get_title(loc="left") for axes in plots] == ["B = 0.5", "B = 1.5"]
    for column, axes in enumerate(plots):
        head, tail, marks = axes.lines
        np.testing.assert_array_equal(head.get_xdata(), [0, 0.6])  # sorted, whatever the order of the grid
        np.testing.assert_allclose(head.get_ydata(), result.psp[::-1, column, 0, 0])
        np.testing.assert_allclose(tail.get_ydata(), result.psp[::-1, column, 1, 0])
        assert list(marks.get_xdata()) == [a for a, b in result.changes(1) if b == result.b[column]]


def test_of_many_values_of_b_four_are_plotted():
    result = sensitivity({"m": [[0]]}, [[1, 0]], [3, 1], 10, b=range(1, 10))
    assert [axes.get_title(loc="left") for axes in sensitivity_curves(result).axes] == [
        "B = 1",
        "B = 4",
        "B = 6",
        "B = 9",
    ]
