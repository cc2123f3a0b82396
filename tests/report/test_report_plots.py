"""The curves of a report, and the plots that show them: plotted values are the given ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail import OneVsRest, Popularity, TextLearner, Tfidf
from longtail.metrics import Interval
from longtail.plots.by_frequency import by_decile, label_frequencies, propensities
from longtail.plots.by_frequency import weight_norms as draw_norms
from longtail.plots.comparisons import score_curves
from longtail.plots.curves import PowerLaw, by_count, falling_frequencies, fit_power_law, propensity_curve, score_curve
from longtail.plots.style import COLOURS, MARKERS, svg
from longtail.propensity import GivenPropensity, JainPropensity
from longtail.rerank import label_norms

COUNTS = st.lists(st.integers(0, 3000), min_size=1, max_size=60)


class TestPowerLaw:
    @given(st.floats(0.2, 2.0), st.integers(2, 3000))
    def test_finds_the_law_that_made_the_frequencies(self, exponent, labels):
        frequencies = 1e9 * np.arange(1, labels + 1) ** -exponent
        law = fit_power_law(frequencies.astype(np.int64))
        assert law.exponent == pytest.approx(exponent, abs=0.01)
        assert law.scale == pytest.approx(1e9, rel=0.05)
        assert law.misfit == pytest.approx(1, abs=0.01)
        assert law.at([1, 10]) == pytest.approx([law.scale, law.scale * 10**-law.exponent])

    def test_misfit_is_a_factor(self):
        """Frequencies alternately twice and half of a line have a misfit factor of 2."""
        ranks = np.arange(1, 201)
        wobble = np.where(ranks % 2, 2.0, 0.5)
        law = fit_power_law(np.sort(1e8 / ranks * wobble)[::-1].astype(np.int64))
        assert 1.0 < law.misfit < 2.0

    @pytest.mark.parametrize("counts", [[], [0, 0], [5]])
    def test_needs_two_labels(self, counts):
        assert fit_power_law(counts) is None

    @given(COUNTS)
    def test_frequencies_fall_and_keep_every_seen_label(self, counts):
        found = falling_frequencies(counts)
        assert sorted(found, reverse=True) == list(found)
        assert sorted(found) == sorted(count for count in counts if count)


class TestByCount:
    @given(COUNTS)
    def test_every_seen_label_is_in_one_bin(self, counts):
        values = np.arange(len(counts), dtype=float)
        bins = by_count(values, counts)
        assert sum(found.n_labels for found in bins) == sum(count > 0 for count in counts)
        for found in bins:
            inside = [value for value, count in zip(values, counts, strict=True) if found.low <= count <= found.high]
            assert len(inside) == found.n_labels
            assert found.quartiles == pytest.approx(np.percentile(inside, [25, 50, 75]))
            assert found.low <= found.mean_count * (1 + 1e-9)
            assert found.mean_count <= found.high * (1 + 1e-9)

    def test_edges(self):
        bins = by_count(np.ones(7), [1, 2, 4, 5, 9, 10, 1000])
        assert [found.name for found in bins] == ["1", "2–4", "5–9", "10–19", "1,000–1,999"]

    def test_leaves_out_what_has_no_value(self):
        assert by_count([np.nan, 3.0], [5, 5])[0].n_labels == 1


class TestScoreCurve:
    predictions = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=80)

    @given(predictions, st.integers(1, 20))
    def test_every_prediction_is_in_one_bin(self, predictions, bins):
        scores, hits = np.array(predictions, float).T
        curve = score_curve(scores, hits, bins)
        assert 1 <= len(curve.bins) <= bins
        for found in curve.bins:
            inside = [hit for score, hit in predictions if found.low <= score <= found.high]
            assert (found.n_predictions, found.n_recorded) == (len(inside), sum(inside))
            assert found.low <= found.mean <= found.high
        for before, after in zip(curve.bins, curve.bins[1:], strict=False):
            assert before.high < after.low, "equal scores are never parted"
        assert sum(found.n_predictions for found in curve.bins) == len(predictions)

    def test_bins_hold_equally_many_recorded_labels(self):
        scores = np.linspace(0, 1, 10_000)
        hits = np.random.default_rng(0).random(10_000) < scores
        curve = score_curve(scores, hits, 15)
        recorded = [found.n_recorded for found in curve.bins]
        assert len(recorded) == 15
        assert max(recorded) - min(recorded) <= 15

    def test_true_probabilities_lie_on_the_diagonal(self):
        scores = np.random.default_rng(1).random(50_000)
        hits = np.random.default_rng(2).random(50_000) < scores
        curve = score_curve(scores, hits)
        assert curve.within_one
        assert [found.share for found in curve.bins] == pytest.approx([100 * found.mean for found in curve.bins], abs=3)
        assert not score_curve(scores * 2, hits).within_one

    def test_padding_is_left_out(self):
        curve = score_curve([[1.0, -np.inf]], [[True, False]])
        assert [found.n_predictions for found in curve.bins] == [1]
        assert score_curve([-np.inf], [False]).bins == ()
        assert not score_curve([-np.inf], [False]).within_one


class TestPropensityCurve:
    def test_values_of_the_model(self):
        counts = [0, 1, 1, 7, 50]
        curve = propensity_curve(["one"], JainPropensity(), counts, 50)
        assert curve.label_counts.tolist() == [0, 1, 7, 50]
        assert curve.n_labels.tolist() == [1, 2, 1, 1]
        assert curve.label_propensities == pytest.approx(JainPropensity().propensities([0, 1, 7, 50], 50))
        assert curve.counts[0] == 0
        assert curve.counts[-1] == 50
        assert (np.diff(curve.propensities) >= 0).all()

    @pytest.mark.parametrize("labels", [3, 200])
    def test_known_propensities_have_no_curve(self, labels):
        values = np.linspace(0.1, 1, labels)
        curve = propensity_curve(["one"], GivenPropensity(values=values), np.arange(labels) % 3 + 1, 10)
        assert not len(curve.counts)
        assert curve.label_propensities[0] == pytest.approx(np.median(values[::3]))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    Y = rng.random((300, 90)) < 0.02
    Y[:, 7] = False
    return rng.random((300, 40)) * (rng.random((300, 40)) < 0.3), Y


class TestWeightNorms:
    @pytest.mark.parametrize("precision", ["bfloat16", "float32"])
    def test_rows_of_coef(self, data, precision):
        learner = OneVsRest(n_jobs=1, precision=precision).fit(*data)
        norms, coef = label_norms(learner), learner.coef_.toarray()
        seen = learner.label_counts_ > 0
        assert norms[seen] == pytest.approx(np.linalg.norm(coef[seen], axis=1), rel=1e-5)
        assert np.isnan(norms[~seen]).all()
        assert not seen[7]

    def test_of_the_learner_inside(self, data):
        texts = [" ".join(f"w{word}" for word in np.flatnonzero(row)) or "none" for row in data[0]]
        learner = TextLearner(features=Tfidf(min_df=1), learner=OneVsRest(n_jobs=1)).fit(texts, data[1])
        assert np.array_equal(label_norms(learner), label_norms(learner.learner_), equal_nan=True)

    def test_of_a_matrix(self, data):
        learner = Popularity().fit(*data)
        assert label_norms(learner) is None
        learner.coef_ = np.arange(180.0).reshape(90, 2)
        assert label_norms(learner) == pytest.approx(np.hypot(learner.coef_[:, 0], learner.coef_[:, 1]))


def legend_names(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()] if figure.legends else []


class TestPlot:
    def test_frequencies(self):
        frequencies = np.array([100, 30, 30, 30, 2, 1, 1])
        figure = label_frequencies(frequencies, PowerLaw(90.0, 1.5, 1.1), {"head": 1, "torso": 4, "tail": 7})
        curve, law, *ends = figure.axes[0].lines
        shown = dict(zip(curve.get_xdata(), curve.get_ydata(), strict=True))
        assert shown == {1: 100, 2: 30, 4: 30, 5: 2, 6: 1, 7: 1}  # corners alone: what is between is level
        assert law.get_ydata() == pytest.approx([90, 90 * 7**-1.5])
        assert [line.get_xdata()[0] for line in ends] == [1, 4]
        assert "-1.50" in figure.axes[0].get_legend().get_texts()[1].get_text()
        assert [text.get_text() for text in figure.axes[0].texts] == ["head", "torso", "tail"]

    def test_frequencies_of_one_label(self):
        figure = label_frequencies(np.array([3]))
        assert figure.axes[0].lines[0].get_ydata().tolist() == [3]

    def test_deciles(self):
        nothing = Interval(np.nan, np.nan, np.nan)
        results = {"a": [Interval(5.0, 4.0, 7.0), nothing], "b": [Interval(6.0, 5.5, 6.5), Interval(1.0, 0.0, 2.0)]}
        figure = by_decile("recall@5", results)
        bars = {
            (round(bar.get_x() + bar.get_width() / 2), bar.get_facecolor()): bar.get_height()
            for bar in figure.axes[0].patches
        }
        assert sorted(bars.values()) == [1.0, 5.0, 6.0]
        lines = [tuple(part[:, 1]) for drawn in figure.axes[0].collections for part in drawn.get_segments()]
        assert lines == [(4.0, 7.0), (5.5, 6.5), (0.0, 2.0)]
        assert legend_names(figure) == ["a", "b"]
        assert "recall@5" in figure.axes[0].get_ylabel()

    def test_norms(self):
        bins = by_count([1.0, 2.0, 3.0], [1, 3, 30])
        axes = draw_norms({"second": bins}, [1]).axes[0]
        assert axes.lines[0].get_ydata() == pytest.approx([1, 2, 3])
        assert axes.lines[0].get_xdata() == pytest.approx([1, 3, 30])
        assert axes.lines[0].get_color() == COLOURS[1]
        assert axes.lines[0].get_marker() == MARKERS[1]
        assert axes.get_yscale() == "log"

    def test_norms_of_zero(self):
        assert draw_norms({"a": by_count([0.0, 2.0], [1, 3])}).axes[0].get_yscale() == "linear"

    @pytest.mark.parametrize("probabilities", [False, True])
    def test_calibration(self, probabilities):
        curve = score_curve([0.1, 0.2, 0.8, 0.9], [False, True, True, True], 2)
        axes = score_curves({"a": curve}, probabilities=probabilities).axes[0]
        assert axes.lines[0].get_xdata() == pytest.approx([found.mean for found in curve.bins])
        assert axes.lines[0].get_ydata() == pytest.approx([found.share for found in curve.bins])
        assert len(axes.lines) == 1 + probabilities
        assert axes.get_xlabel() == ("probability" if probabilities else "score")

    def test_propensities(self):
        curve = propensity_curve(["one"], JainPropensity(), [0, 1, 1, 40], 50)
        axes = propensities([curve]).axes[0]
        assert axes.lines[0].get_ydata() == pytest.approx(curve.propensities)
        dots = axes.collections[0]
        assert dots.get_offsets()[:, 0].tolist() == [0, 1, 40]
        assert dots.get_sizes().argmax() == 1
        left, right = axes.get_xlim()
        assert left < 0 < 40 < right

    def test_several_propensities_are_named(self):
        curves = [propensity_curve([name], JainPropensity(b=b), [1, 9], 50) for name, b in (("a", 1.5), ("b", 0.4))]
        assert legend_names(propensities(curves)) == ["a", "b"]
        assert legend_names(propensities(curves[:1])) == []

    def test_the_plot_grows_with_its_legend(self):
        bins = by_count([1.0, 2.0], [1, 3])
        few, many = (draw_norms({f"{'name' * 6}{n}": bins for n in range(models)}) for models in (1, 6))
        assert many.get_figheight() > few.get_figheight()

    def test_names_that_matplotlib_would_change(self):
        bins = by_count([1.0, 2.0], [1, 3])
        figure = draw_norms({"_hidden": bins, "$x$ & $y$": bins, "n" * 60 + "-1": bins})
        text = svg(figure, "three")
        assert legend_names(figure) == ["_hidden", "$x$ & $y$", "n" * 12 + "…" + "n" * 11 + "-1"]
        for name in ("_hidden", "$x$ &amp; $y$", "nnn-1"):
            assert f"{name}</text>" in text
