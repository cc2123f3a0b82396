"""The map of the labels in a report: which labels, where they lie, what is near, and how it is plotted."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail import Model, Popularity, TextLearner, Tfidf
from longtail.plots import label_points as maps
from longtail.plots.label_map import label_map, point_titles
from longtail.plots.label_points import Company, map_labels
from longtail.plots.placement import place_names
from longtail.plots.style import COLOURS, MARKERS, svg
from longtail.report import captions, gather, render
from tests.report.pages import Page
from tests.report.report_data import N_LABELS, make_data, texts_learner

ODD = 'url(#x) id="y" #22262b'  # what the page's own code looks for in tags, as a label's name


def on_circle(degrees):
    """Embeddings in the plane, so that inner products are cosines of differences."""
    angles = np.radians(degrees)
    return np.column_stack([np.cos(angles), np.sin(angles)]).astype(np.float32)


@pytest.fixture
def flat(monkeypatch):
    """Lay labels out by their first coordinates, which takes no time."""
    monkeypatch.setattr(maps, "_positions", lambda vectors: vectors[:, :2])


class TestPositions:
    def test_labels_of_one_kind_are_together(self):
        rng = np.random.default_rng(0)
        vectors = np.repeat(np.eye(3, 20), 12, axis=0) + 0.02 * rng.normal(size=(36, 20))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        found = map_labels(vectors.astype(np.float32), np.arange(36, 0, -1))
        apart = np.linalg.norm(found.positions[:, None] - found.positions[None], axis=2)
        kinds = np.repeat(np.arange(3), 12)
        same = kinds[:, None] == kinds
        assert (apart[same].reshape(36, -1).max(axis=1) < np.where(same, np.inf, apart).min(axis=1)).all()

    def test_the_same_each_time(self):
        vectors = np.random.default_rng(1).normal(size=(40, 8)).astype(np.float32)
        first, second = (map_labels(vectors, np.ones(40, np.int64)) for _ in range(2))
        assert np.array_equal(first.positions, second.positions)
        assert np.isfinite(first.positions).all()

    @pytest.mark.parametrize(
        ("vectors", "drawn"),
        [(on_circle(np.arange(9)), False), (on_circle(np.arange(10)), True), (on_circle(np.zeros(30)), False)],
    )
    def test_needs_ten_labels_that_differ(self, vectors, drawn):
        assert (map_labels(vectors, np.ones(len(vectors), np.int64)) is not None) == drawn

    def test_labels_without_an_embedding_do_not_count(self):
        vectors = on_circle(np.arange(12))
        vectors[:3] = 0
        assert map_labels(vectors, np.arange(12)) is None


@pytest.mark.usefixtures("flat")
class TestWhatIsShown:
    def test_the_most_frequent_and_some_of_the_others(self):
        rng = np.random.default_rng(2)
        counts, vectors = rng.permutation(1000), on_circle(rng.random(1000) * 360)
        counts[counts == 0] = 5000
        vectors[counts % 10 == 0] = 0
        names = [str(count) for count in counts]
        found = map_labels(vectors, counts, None, names.__getitem__)
        known = sorted((count for count in counts.tolist() if count % 10), reverse=True)
        assert (len(found.names), found.n_frequent, found.n_embedded) == (600, 400, len(known)) == (600, 400, 900)
        assert found.counts[:400].tolist() == known[:400]
        drawn = found.counts[400:].tolist()
        assert drawn == sorted(set(drawn), reverse=True)
        assert set(drawn) < set(known[400:])
        assert min(drawn) < known[-20], "drawn from all of the others"
        assert list(found.names) == [str(count) for count in found.counts]
        assert map_labels(vectors, counts, None, names.__getitem__).names == found.names

    def test_bins_are_those_of_all_labels(self):
        counts = np.array([60, 30, *[1] * 10])
        found = map_labels(on_circle(np.arange(12)), counts)
        assert found.bins.tolist() == [0, 1, *[2] * 10]

    def test_what_is_near(self):
        """At 0, 1, 3, 6, 10, ... degrees a label is nearest to the one before it."""
        found = map_labels(on_circle(np.cumsum(np.arange(12))), np.arange(12, 0, -1))
        near = [(pair.label, pair.other, pair.product) for pair in found.pairs]
        assert near[:2] == [
            ("0", "1", pytest.approx(np.cos(np.radians(1)), abs=1e-6)),
            ("1", "2", pytest.approx(np.cos(np.radians(2)), abs=1e-6)),
        ]
        assert [(pair.label, pair.other) for pair in found.nearest] == [
            ("0", "1"),
            *((str(label), str(label - 1)) for label in range(1, 10)),
        ]
        assert len(near) == 10

    def test_nearest_is_among_all_labels(self, monkeypatch):
        """The label that is nearest to the first one is not on the map."""
        monkeypatch.setattr(maps, "_FREQUENT", 12)
        monkeypatch.setattr(maps, "_OTHERS", 0)
        found = map_labels(on_circle([*range(12), 0.1]), np.arange(13, 0, -1))
        assert (len(found.names), found.n_embedded) == (12, 13)
        assert found.nearest[0].other == "12"
        assert "12" not in {name for pair in found.pairs for name in (pair.label, pair.other)}

    def test_how_much_the_map_keeps(self, monkeypatch):
        """Of labels on a line whose nearest is the next, half are moved away from it."""
        degrees = np.repeat(np.arange(10) * 20.0, 2) + np.tile([0, 1], 10)
        line = np.column_stack([np.arange(20.0), np.zeros(20)])
        line[1:10:2] += 1000  # the second of the first five pairs: neither of the two is near the other now
        monkeypatch.setattr(maps, "_positions", lambda vectors: line)
        assert map_labels(on_circle(degrees), np.ones(20, np.int64)).kept == 0.5

    def test_nearest_labels_of_the_same_rows(self):
        """Pairs of nearest labels: (0, 1) in a row together, (2, 3) in rows apart, 4 without its own, others unseen."""
        degrees = np.repeat(np.arange(6) * 30.0, 2) + np.tile([0, 1], 6)
        Y = np.zeros((5, 13), np.int8)
        Y[0, [0, 1]] = Y[1, [2, 4]] = Y[2, [3, 12]] = 1
        found = map_labels(on_circle(degrees), np.arange(12, 0, -1), sp.csr_array(Y))
        assert found.company == Company(5, 0.4, pytest.approx(4 / (5 * 11)))
        assert map_labels(on_circle(degrees), np.arange(12, 0, -1), sp.csr_array(Y[4:])).company is None


class TestPlaces:
    @given(st.integers(0, 2**32 - 1), st.integers(0, 5))
    def test_nothing_is_covered(self, seed, needed):
        rng = np.random.default_rng(seed)
        points = rng.random((60, 2)) * 100
        sizes = [(float(width), 5.0) for width in rng.integers(10, 40, 40)]
        found = list(place_names(points, sizes, (0, 0, 100, 100), [2.0, 6.0], clear=1.0, needed=needed, most=12))
        assert len(found) <= 12
        assert [place.point for place in found] == sorted({place.point for place in found})
        for at, place in enumerate(found):
            left, bottom, right, top = place.box
            assert (right - left, top - bottom) == pytest.approx(sizes[place.point])
            assert min(left, bottom) >= 0
            assert max(right, top) <= 100
            inside = (points > place.box[:2]).all(axis=1) & (points < place.box[2:]).all(axis=1)
            assert place.point < needed or not inside.any()
            for other in found[:at]:
                across = max(left, other.box[0]) < min(right, other.box[2])
                assert not (across and max(bottom, other.box[1]) < min(top, other.box[3]))
            end = points[place.point] + place.move
            assert (end >= place.box[:2] - 1e-9).all()
            assert (end <= place.box[2:] + 1e-9).all()

    def test_the_first_come_first(self):
        alone = list(place_names(np.array([[5.0, 5.0], [5.0, 5.5]]), [(4.0, 1.0)] * 2, (0, 4.4, 10, 6.1), [0.5]))
        assert [place.point for place in alone] == [0, 1]
        narrow = list(place_names(np.array([[5.0, 5.0], [5.0, 5.0]]), [(4.0, 1.0)] * 2, (5, 4.4, 10, 5.6), [0.5]))
        assert [place.point for place in narrow] == [0]

    def test_what_must_be_named_costs_the_least(self):
        """There is room on the left and on the right only, and a point on either side."""
        points = np.array([[50.0, 5.0], [40.0, 5.0], [60.0, 5.0]])
        room, sizes = (0, 2, 100, 8), [(20.0, 6.0)]
        assert list(place_names(points, sizes, room, [2.0])) == []
        for costs, side in (([1.0, 1.0, 5.0], -1), ([1.0, 5.0, 1.0], 1)):
            (place,) = place_names(points, sizes, room, [2.0], costs=np.array(costs), needed=1)
            assert np.sign(place.move[0]) == side

    def test_lines_stay_away_from_points(self):
        """The way to the right leads past a point, that to the left does not; near names are in nobody's way."""
        points = np.array([[50.0, 5.0], [54.0, 5.2]])
        (place,) = place_names(points, [(20.0, 2.0)], (0, 4, 100, 6), [10.0], clear=1.0)
        assert place.move == (-10.0, 0.0)
        assert list(place_names(points, [(20.0, 2.0)], (50, 4, 100, 6), [10.0], clear=1.0)) == []


@pytest.fixture(scope="module")
def found():
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(60, 6)).astype(np.float32)
    names = ["<b>bold & brash</b>", "$x$ and $y$", "_hidden", ODD, "n" * 60, *(f"name {n}" for n in range(5, 60))]
    return map_labels(vectors, np.arange(60, 0, -1) ** 3, None, names.__getitem__)


class TestPlot:
    def test_a_point_for_each_label(self, found):
        (axes,) = label_map(found).axes
        points = {line.get_gid(): line for line in axes.lines}
        assert len(points) == 60
        for number, (position, part) in enumerate(zip(found.positions, found.bins, strict=True)):
            line = points[f"label-{number}"]
            assert np.array_equal(line.get_xydata(), [position])
            assert (line.get_color(), line.get_marker()) == (COLOURS[part], MARKERS[part])
        left, right = axes.get_xlim()
        assert left < found.positions[:, 0].min() < found.positions[:, 0].max() < right

    def test_bins_are_named(self, found):
        assert set(found.bins) == {0, 1, 2}
        assert [text.get_text() for text in label_map(found).legends[0].get_texts()] == ["head", "torso", "tail"]

    def test_names_do_not_overlap(self, found):
        """As matplotlib measures the plotted text."""
        drawn = label_map(found)
        drawn.draw_without_rendering()
        texts = drawn.axes[0].texts
        assert 15 < len(texts) <= 28
        assert [text.get_text() for text in texts[:4]] == list(found.names[:4])
        assert texts[4].get_text() == "n" * 12 + "…" + "n" * 13
        renderer = drawn.canvas.get_renderer()
        boxes = [super(type(text), text).get_window_extent(renderer).padded(-1) for text in texts]
        for at, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[:at]), texts[at].get_text()

    def test_points_tell_their_names(self, found):
        text = svg(label_map(found), "a map", point_titles(found))
        titles = re.findall(r'<g id="label-(\d+)"><title>(.*?)</title>', text)
        assert sorted(int(number) for number, _ in titles) == list(range(60))
        said = dict(titles)
        assert said["0"] == "&lt;b&gt;bold &amp; brash&lt;/b&gt; (216,000 training rows)"
        assert said["3"] == f"{ODD.replace(chr(34), '&quot;')} (185,193 training rows)"
        assert said["59"] == "name 59 (1 training row)"
        assert "<b>" not in text

    def test_colours_are_changed_in_tags_alone(self, found):
        text = svg(label_map(found), "a map", point_titles(found))
        assert text.count("#22262b") == 2, "the name beside the point and its title"
        assert "fill: var(--series-1)" in text
        assert text == svg(label_map(found), "a map", point_titles(found))


class Embedded(Popularity):
    """Random labels on a sphere, those without a training row at 0."""

    def _fit(self, X, Y):
        super()._fit(X, Y)
        vectors = np.random.default_rng(4).normal(size=(Y.shape[1], 8))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        self.label_embeddings_ = (vectors * (self.label_counts_ > 0)[:, None]).astype(np.float32)


@pytest.fixture(scope="module")
def report():
    rows, test = make_data(400, 0), make_data(150, 1, extra=["never seen"])
    rows.label_names[3] = test.label_names[3] = ODD
    Y = rows.Y.toarray()
    Y[:, [5, 6]] = 0
    learner = TextLearner(features=Tfidf(min_df=1), learner=Embedded()).fit(rows.texts, Y)
    models = {
        "plain": Model(texts_learner("dismec", n_jobs=1).fit(rows.texts, Y), label_names=rows.label_names),
        "embedded & bold": Model(learner, label_names=rows.label_names),
    }
    return gather(models, test, resamples=5)


class TestPage:
    def test_the_plot_and_its_numbers(self, report):
        plain, embedded = report.models
        assert plain.label_map is None
        assert len(embedded.label_map.names) == N_LABELS - 2
        text = render(report)
        page = Page(text)
        described = [value for tag, name, value in page.attributes if (tag, name) == ("svg", "aria-label")]
        assert described[-1] == "map of the labels of embedded & bold by their embeddings"
        assert "Labels by their embeddings: embedded & bold" in page.text
        assert len(described) == len(set(described)) == page.text.count("Numbers")
        pairs = page.tables["nearest-pairs-2"]
        assert [row.title for row in pairs.rows] == [near.label for near in embedded.label_map.pairs]
        assert [cell.text for cell in pairs.column("other label")] == [near.other for near in embedded.label_map.pairs]
        assert [cell.value for cell in pairs.column("inner product")] == [
            near.product for near in embedded.label_map.pairs
        ]
        assert [cell.text for cell in page.tables["nearest-labels-2"].column("inner product")] == [
            f"{near.product:.3f}" for near in embedded.label_map.nearest
        ]
        assert "nearest-pairs-1" not in page.tables
        assert render(report) == text

    def test_names_are_as_they_were_given(self, report):
        text = render(report)
        drawn = re.findall(r"<svg.*?</svg>", text, re.DOTALL)[-1]
        assert "<b>bold" not in text
        assert drawn.count("<title>") == N_LABELS - 2
        assert ODD.replace('"', "&quot;") + " (" in drawn
        assert ODD in Page(text).text
        without_names = re.sub(r">[^<]*<", "><", drawn)
        assert not re.findall(r"#[0-9a-f]{6}", without_names), "a colour that no page can change"
        ids = Page(text).ids
        assert len(ids) == len(set(ids))
        assert set(re.findall(r'(?:href="|url\()#([^")]+)', without_names)) <= set(ids)

    def test_what_the_page_says(self, report):
        sentences = captions.inside(report)
        assert sentences[0] == "embedded & bold has label embeddings of length 1 instead of weights."
        assert not any("has no weights" in sentence for sentence in sentences)
        found = report.models[1].label_map
        caption = captions.label_map(found)
        assert caption.says.startswith("All 38 labels that have an embedding are shown. The nearest two are ")
        assert f"with an inner product of {found.pairs[0].product:.2f}." in caption.says
        share = f"{100 * found.company.nearest:.0f}\N{NO-BREAK SPACE}% co-occur with their nearest"
        assert f"Of the {found.company.n_labels} labels that occur in test rows, {share}" in caption.says
        assert f"For {100 * found.kept:.0f}\N{NO-BREAK SPACE}% of the labels" in caption.read

    @pytest.mark.usefixtures("flat")
    def test_what_it_says_of_many_labels(self):
        found = map_labels(on_circle(np.linspace(0, 300, 1500)), np.arange(1500, 0, -1))
        says = captions.label_map(found).says
        assert says.startswith("Shown are the 400 most frequent of the 1,500 labels with an embedding, and a random ")
        assert "test rows" not in says

    def test_too_few_labels(self):
        rows = make_data(50, 0)
        rows.Y = rows.Y[:, :8]
        rows.label_names = rows.label_names[:8]
        learner = TextLearner(features=Tfidf(min_df=1), learner=Embedded()).fit(rows.texts, rows.Y)
        report = gather({"few": Model(learner, label_names=rows.label_names)}, rows, resamples=2)
        assert report.models[0].label_map is None
        page = Page(render(report))
        assert "few has label embeddings of length 1" in page.text
        assert "nearest-pairs-1" not in page.tables
