"""The report as a page: numbers as `longtail evaluate` gives them, one file that needs nothing else, clear errors."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from longtail import Dataset, Model, OneVsRest, Popularity, TextLearner, Tfidf, datasets, demo
from longtail.cli.program import program
from longtail.cli.report import report as command
from longtail.data import load, save
from longtail.metrics import bootstrap, bootstrap_by_frequency, by_frequency, calibration_error, evaluate
from longtail.report import captions, gather, load_models, render, write
from longtail.report.examples import shorten
from longtail.report.tables import bins_table, scores_tables
from tests.report.pages import Page
from tests.report.report_data import METRICS, N_LABELS, NAMES, RESAMPLES, make_data, texts_learner, train


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Three models of texts, two of features, and test rows for both."""
    folder = tmp_path_factory.mktemp("report")
    rows = make_data(400, 0)
    training = {"seconds": 1.5, "data": "toy:train"}
    train(texts_learner("dismec", n_jobs=1), rows, folder / "plain", recipe="dismec", training=training)
    train(texts_learner("pw-cb-dismec", n_jobs=1), rows, folder / "weighted", recipe="pw-cb-dismec")
    train(texts_learner("popularity"), rows, folder / "_popular$1$", recipe="popularity")
    save(make_data(150, 1, extra=["never seen"]), folder / "test.jsonl")
    features = Tfidf(min_df=1).fit(rows.texts)
    bare = Dataset(features.transform(rows.texts), rows.Y)
    train(OneVsRest(n_jobs=1), bare, folder / "bare")
    train(Popularity(), bare, folder / "bare-popular")
    save(Dataset(features.transform(rows.texts)[:100], rows.Y[:100]), folder / "test.txt")
    return folder


@pytest.fixture(scope="module")
def models(place):
    return [place / "plain", place / "weighted", place / "_popular$1$"]


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(command)

    def call(*arguments, code=0):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == code, result.output
        return result

    return call


@pytest.fixture(scope="module")
def results(place, models):
    loaded = load_models(models)
    dataset = load(place / "test.jsonl", label_names=NAMES)
    directories = dict(zip(loaded, models, strict=True))
    return gather(loaded, dataset, test="toy:test", directories=directories, resamples=RESAMPLES)


@pytest.fixture(scope="module")
def text(results):
    return render(results)


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


@pytest.fixture(scope="module")
def judged(place, models):
    """What the metrics say of each model, without the report's own code: ranking, labels, counts, 1/p."""
    found = {}
    for path in models:
        model = Model.load(path)
        dataset = load(place / "test.jsonl", label_names=model.label_names)
        counts = np.append(model.label_counts, 0)
        inverse = model.propensity.inverse(counts, model.n_rows)
        found[path.name] = model.predict_topk(dataset.texts, 5), dataset.Y, counts, inverse
    return found


class TestNumbers:
    def test_scores_are_those_of_evaluate(self, place, models, run, tmp_path):
        run(*models, place / "test.jsonl", "--out", tmp_path / "r.html", "--resamples", RESAMPLES)
        tables = Page((tmp_path / "r.html").read_text()).tables
        for path in models:
            said = CliRunner().invoke(program, ["evaluate", str(path), str(place / "test.jsonl"), "--json"])
            scores = json.loads(said.stdout)
            exact = Model.load(path).evaluate(load(place / "test.jsonl", label_names=NAMES))
            for name, metrics in METRICS.items():
                shown = {row.title: tables[name].column(path.name)[at] for at, row in enumerate(tables[name].rows)}
                assert set(shown) == {f"{metric}@{k}" for metric in metrics for k in (1, 3, 5)}
                for metric, cell in shown.items():
                    assert cell.value == exact[metric]
                    assert round(cell.value, 4) == scores[metric]
                    assert cell.text == f"{cell.value:.2f}"

    def test_intervals_are_those_of_bootstrap(self, page, judged):
        for model, (top, Y, _, inverse) in judged.items():
            intervals = bootstrap(top, Y, inverse_propensity=inverse, resamples=RESAMPLES)
            for name in METRICS:
                table = page.tables[name]
                for row, cell in zip(table.rows, table.column(model), strict=True):
                    interval = intervals[row.title]
                    assert cell.note == f"{interval.low:.2f}–{interval.high:.2f}"

    def test_the_best_is_marked(self, page):
        for name in METRICS:
            for row in page.tables[name].rows:
                highest = max(cell.value for cell in row.cells)
                assert [cell.best for cell in row.cells] == [cell.text == f"{highest:.2f}" for cell in row.cells]

    def test_a_single_model_is_not_the_best(self, results):
        alone = replace(results, models=results.models[:1])
        for table in (*scores_tables(alone), bins_table(alone)):
            assert not any(cell.best for _, rows in table.groups for row in rows for cell in row)

    @pytest.mark.parametrize("metric", ["PSP", "recall"])
    def test_deciles(self, page, judged, metric):
        table, key = page.tables[f"deciles-{metric}"], f"{metric}@5"
        for model, (top, Y, counts, inverse) in judged.items():
            bins = by_frequency(top, Y, counts, bins="deciles", inverse_propensity=inverse)
            intervals = bootstrap_by_frequency(
                top, Y, counts, bins="deciles", inverse_propensity=inverse, resamples=RESAMPLES
            )
            assert [cell.value for cell in table.column("in test rows")] == [found.n_true for found in bins]
            for cell, found in zip(table.column(model), bins, strict=True):
                assert cell.value == pytest.approx(found.scores[key], abs=1e-9)
                interval = intervals[found.name][key]
                assert cell.note == f"{interval.low:.2f}–{interval.high:.2f}"

    def test_head_torso_and_tail(self, page, judged):
        table = page.tables["bins"]
        for at, (model, (top, Y, counts, inverse)) in enumerate(judged.items()):
            for group, found in zip(
                table.groups, by_frequency(top, Y, counts, inverse_propensity=inverse), strict=True
            ):
                title, *rows = group
                assert title.title.startswith(f"{found.name}: {found.n_labels} labels of ")
                assert title.title.endswith(f", {found.n_true:,} in test rows")
                assert rows[at].title == model
                for column, cell in zip(table.columns[1:], rows[at].cells, strict=True):
                    assert cell.value == pytest.approx(found.scores[column], abs=1e-9)

    def test_bins_add_up_to_the_whole(self, page):
        for at, psp in enumerate(row for row in page.tables["tail-scores"].rows if row.title == "PSP@5"):
            column = page.tables["bins"].columns.index("PSP@5") - 1
            parts = [group[1 + at].cells[column].value for group in page.tables["bins"].groups]
            assert sum(parts) == pytest.approx(psp.cells[at].value)

    def test_calibration_counts_every_prediction(self, page, place, models):
        for number, path in enumerate(models[:2], 1):
            model = Model.load(path)
            dataset = load(place / "test.jsonl", label_names=NAMES)
            top = model.predict_topk(dataset.texts, 20)
            hits = [label in dataset.Y[[row]].indices for row in range(150) for label in top.labels[row] if label >= 0]
            table = page.tables[f"score-{number}"]
            assert sum(cell.value for cell in table.column("predictions")) == len(hits)
            assert sum(cell.value for cell in table.column("recorded")) == sum(hits)
            lowest, highest = table.rows[0].title.split(" to ")[0], table.rows[-1].title.split(" to ")[1]
            finite = top.scores[np.isfinite(top.scores)]
            assert (lowest, highest) == (f"{finite.min():.3f}", f"{finite.max():.3f}")

    def test_training_and_size(self, page, models):
        table = page.tables["models"]
        shown = {row.title: row.cells for row in table.rows}
        assert [cell.text for cell in shown["recipe"]] == ["dismec", "pw-cb-dismec", "popularity"]
        assert [cell.text for cell in shown["training time"]] == ["1.5 s", "not recorded", "not recorded"]
        assert [cell.text for cell in shown["trained on"]] == ["toy:train", "–", "–"]
        assert {cell.value for cell in shown["training rows"]} == {400}
        assert {cell.value for cell in shown["labels"]} == {N_LABELS}
        sizes = [sum(file.stat().st_size for file in path.iterdir()) / 1e6 for path in models]
        assert [cell.value for cell in shown["size"]] == sizes

    def test_frequencies(self, page):
        frequencies = np.sort(make_data(400, 0).label_counts)[::-1]
        for rank, cell in zip(
            page.tables["frequencies"].column("rank"), page.tables["frequencies"].column("training rows"), strict=True
        ):
            assert cell.value == frequencies[int(rank.text) - 1]

    def test_each_model_predicts_once(self, place, models, monkeypatch):
        calls = []
        predict = TextLearner.predict_topk

        def counted(self, X, *args, **options):
            calls.append(len(X))
            return predict(self, X, *args, **options)

        monkeypatch.setattr(TextLearner, "predict_topk", counted)
        gather(load_models(models), load(place / "test.jsonl", label_names=NAMES), resamples=2)
        assert calls == [150] * 3


class TestExamples:
    def test_documents(self, results, judged):
        """The score of a document is PSP@5 of its row alone, and the lists are the best and worst of all rows."""
        for model in results.models:
            top, Y, _, inverse = judged[model.name]
            alone = np.array(
                [evaluate(top.labels[[row]], Y[[row]], inverse_propensity=inverse)["PSP@5"] for row in range(len(top))]
            )
            for document in (*model.examples.best_documents, *model.examples.worst_documents):
                assert document.score == pytest.approx(alone[document.row - 1])
            assert model.examples.best_documents[0].score == pytest.approx(alone.max())
            assert model.examples.worst_documents[0].score == pytest.approx(alone.min())

    def test_labels_of_a_document(self, results):
        dataset = make_data(150, 1, extra=["never seen"])
        for document in results.models[0].examples.best_documents:
            recorded = {dataset.label_names[label] for label in dataset.Y[[document.row - 1]].indices}
            assert {label.name for label in document.recorded} == recorded
            assert [label.count for label in document.recorded] == sorted(label.count for label in document.recorded)
            assert document.text == dataset.texts[document.row - 1]
            for label in document.predicted:
                assert label.recorded == (label.name in recorded)

    def test_labels(self, results, judged):
        model = results.models[0]
        top, Y, counts, _ = judged["plain"]
        for label in (*model.examples.best_labels, *model.examples.worst_labels):
            number = [*NAMES, "never seen"].index(label.name)
            true = set(Y[:, [number]].nonzero()[0])
            predicted = {row for row in range(len(top)) if number in top.labels[row]}
            assert (label.n_true, label.n_found, label.n_predicted) == (
                len(true),
                len(true & predicted),
                len(predicted),
            )
            assert label.count == counts[number]
        recalls = [label.recall for label in model.examples.best_labels]
        assert recalls == sorted(recalls, reverse=True)
        recalls = [label.recall for label in model.examples.worst_labels]
        assert recalls == sorted(recalls)

    def test_no_document_stands_twice(self, results):
        for model in results.models:
            rows = [one.row for one in (*model.examples.best_documents, *model.examples.worst_documents)]
            assert len(rows) == len(set(rows)) == 6

    @pytest.mark.parametrize(
        ("text", "longest", "short"),
        [
            ("a  b\n\tc", 10, "a b c"),
            ("bell\x07 nul\x00 \ud800half", 30, "bell nul half"),
            ("word " * 100, 12, "word word …"),
            ("x" * 100, 10, "x" * 9 + "…"),
            ("", 10, ""),
        ],
    )
    def test_shortened(self, text, longest, short):
        assert shorten(text, longest) == short


class TestPage:
    def test_needs_nothing_else(self, text, page):
        assert not {"script", "link", "img", "iframe", "object", "embed"} & set(page.tags)
        for tag, name, value in page.attributes:
            assert name not in ("src", "srcset", "action", "data") or tag == "data", (tag, name)
            assert not name.startswith("on")
            if name in ("href", "xlink:href"):
                assert value.startswith("#")
        assert not re.search(r"@import|url\((?!#)|//[a-z]", re.sub(r'xmlns(:\w+)?="[^"]*"', "", text))

    def test_ids_are_unique_and_references_lead_somewhere(self, text, page):
        assert len(page.ids) == len(set(page.ids))
        used = re.findall(r'(?:href="|url\()#([^")]+)', text)
        assert len(used) > 50
        assert set(used) | set(page.references) <= set(page.ids)

    def test_every_colour_is_defined_for_light_and_dark(self, text):
        light, dark = re.search(
            r":root \{(.*?)\n\}.*?prefers-color-scheme: dark\) \{(.*?)\n\}", text, re.DOTALL
        ).groups()
        for name in set(re.findall(r"var\((--[\w-]+)\)", text)):
            assert f"{name}: #" in light
            assert f"{name}: #" in dark
        drawn = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
        assert not re.findall(r"#[0-9a-f]{6}", drawn), "a colour that no page can change"

    def test_plots_are_described_and_have_their_numbers(self, page):
        plots = [value for tag, name, value in page.attributes if (tag, name) == ("svg", "aria-label")]
        assert len(plots) == len(set(plots)) == 7
        assert page.tags.count("figcaption") == page.tags.count("figure") == 7
        assert page.text.count("Numbers") == 7

    def test_names_and_texts_are_escaped(self, text, page):
        assert "<b>bold" not in text
        assert "<b>bold & brash</b>" in page.text
        assert "_popular$1$" in page.text

    def test_the_same_report_gives_the_same_page(self, results, text, tmp_path):
        write(results, tmp_path / "r.html")
        assert (tmp_path / "r.html").read_text() == text


class TestKinds:
    def test_features_without_names(self, place, recwarn):
        models = {"模型 \U0001f600": Model.load(place / "bare"), "popular": Model.load(place / "bare-popular")}
        page = Page(render(gather(models, load(place / "test.txt"), resamples=5)))
        assert "popular has no weights" in page.text
        assert "popular has probabilities" in page.text
        assert page.tables["best-labels-1"].rows[0].title.isdecimal()
        assert "blockquote" not in page.tags
        assert page.tables["models"].columns[1] == "模型 \U0001f600"
        assert not recwarn.list, "letters that matplotlib has no shapes for are the browser's business"

    def test_a_learner_that_knows_nothing(self):
        data = Dataset([[1.0], [2.0]], [[0, 1], [1, 0]])
        none = Model(Popularity().fit([[1.0]], [[0, 0]]))
        some = Model(Popularity().fit([[1.0]], [[0, 1]]))
        page = Page(render(gather({"some": some}, data, resamples=2)))
        assert "some has no weights" in page.text
        with pytest.raises(ValueError, match="no label that the models were trained on"):
            gather({"none": none}, data, resamples=2)

    def test_calibrated_models_show_probabilities(self, place):
        model = Model.load(place / "plain")
        dataset = load(place / "test.jsonl", label_names=NAMES)
        report = gather({"plain": model.calibrate(dataset, bins=None)}, dataset, resamples=2)
        (result,) = report.models
        probable = model.predict_topk(dataset, 5, probabilities=True)
        assert result.calibration_error == calibration_error(probable, dataset.Y) < 5  # learned from the same rows
        assert result.probability_curve.within_one
        assert not result.score_curve.within_one
        page = Page(render(report))
        assert f"ECE@5, is {result.calibration_error:.2f} points" in page.text
        assert "plain has probabilities" in page.text
        assert {"score-1", "probability-1"} <= set(page.tables)

    def test_models_of_different_rows_are_distinguished(self, place):
        rows = make_data(200, 2)
        learner = texts_learner("dismec", n_jobs=1).fit(rows.texts, rows.Y)
        models = {"all": Model.load(place / "plain"), "half": Model(learner, label_names=rows.label_names)}
        report = gather(models, load(place / "test.jsonl", label_names=NAMES), resamples=2)
        assert not report.same_training
        assert "not on one scale" in captions.caution(report)
        page = Page(render(report))
        assert "not on one scale" in page.text
        assert [curve.names for curve in report.propensities] == [("all",), ("half",)]
        assert page.tables["bins"].columns[1:4] == ["labels", "training rows", "in test rows"]

    def test_the_same_rows_are_on_one_scale(self, results):
        assert results.same_training
        assert captions.caution(results) is None


class TestWords:
    def test_who_is_best(self, results):
        for sentence, metric in zip(captions.summary(results), ("P@1", "PSP@5", "C@5"), strict=True):
            best, second = sorted(results.models, key=lambda model: -model.scores[metric])[:2]
            if f"{best.scores[metric]:.2f}" == f"{second.scores[metric]:.2f}":
                assert "tied" in sentence
                continue
            assert sentence.startswith(f"{best.name} ")
            assert f"{second.name} comes next" in sentence
            overlap = best.intervals[metric].low <= second.intervals[metric].high
            assert ("overlap" in sentence) == overlap

    def test_how_many_lines_are_clear(self, results):
        clear = 0
        for metric in (name for group in METRICS.values() for name in group):
            for k in (1, 3, 5):
                best, *others = sorted(results.models, key=lambda model: -model.scores[f"{metric}@{k}"])
                low = best.intervals[f"{metric}@{k}"].low
                clear += all(low > other.intervals[f"{metric}@{k}"].high for other in others)
        assert f"In {clear} of 18 lines" in captions.scores_tables(results)

    def test_frequencies(self, results):
        counts = make_data(400, 0).label_counts
        says = captions.frequencies(results).says
        assert f"has {counts.max():,} training rows" in says
        assert f"the median label {np.median(counts[counts > 0]):.0f}" in says
        assert "have a single one" not in says
        assert f"Not shown: {(counts == 0).sum() + 1} without a training row" in says
        few = replace(results, label_counts=np.array([9, 1, 1, 0]))
        assert "; 2 labels (67\N{NO-BREAK SPACE}%) have a single one" in captions.frequencies(few).says

    def test_tenths(self, results):
        says = captions.deciles(results, "recall").says
        first = [model.deciles[0].scores["recall@5"] for model in results.models]
        best = results.models[int(np.argmax(first))].name
        assert f"{best} finds the most, {max(first):.2f}" in says

    def test_labels_never_found(self, results):
        model = results.models[0]
        lost = sum(true > 0 and not hits for true, hits in zip(model.labels.true, model.labels.hits, strict=True))
        assert captions.labels(model).startswith(f"{lost} of the ")


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["plain", "nowhere", "test.jsonl"], "nowhere is not a model"),
            (["plain", "nowhere.jsonl"], "nowhere.jsonl: there is no such file"),
            (["plain", "plain"], "plain: is a model, and rows are wanted here"),
            (["plain", "broken.jsonl"], "broken.jsonl:1: "),
            (["plain", "unlabelled.jsonl"], "its rows have no labels"),
            (["plain", "foreign.jsonl"], "foreign.jsonl: No row has a label of the training data"),
            (["plain", "test.txt"], "plain: The model takes texts"),
            (["bare", "narrow.txt"], "bare: X has 2 features"),
            (["bare", "test.jsonl"], "bare: The model takes features"),
            (["plain", "fewer", "test.jsonl"], "plain knows 40 labels and fewer 3"),
            (["plain", "renamed", "test.jsonl"], "label 1 is 'quoted \"name\"' in plain and 'other' in renamed"),
            (["plain", "plain", "test.jsonl"], "must be a different directory each time"),
            (["plain", *(f"m{number}" for number in range(6)), "test.jsonl"], "between one and 6 times, got 7"),
        ],
    )
    def test_one_sentence_and_no_page(self, place, run, monkeypatch, arguments, message):
        monkeypatch.chdir(place)
        Path("broken.jsonl").write_text("nothing\n")
        Path("unlabelled.jsonl").write_text('{"text": "word1", "labels": []}\n')
        Path("foreign.jsonl").write_text('{"text": "word1", "labels": ["elsewhere"]}\n')
        Path("narrow.txt").write_text("1 2 40\n0 0:1\n")
        small = Dataset([[1.0]], [[1, 0, 1]], label_names=["a", "b", "c"])
        train(Popularity(), small, "fewer")
        other = Dataset([[1.0]], np.eye(1, N_LABELS), label_names=[NAMES[0], "other", *NAMES[2:]])
        train(Popularity(), other, "renamed")
        result = run(*arguments, "--out", "page.html", code=2)
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        assert message in result.stderr
        assert not Path("page.html").exists()

    @pytest.mark.parametrize(
        ("out", "message"),
        [
            ("page.txt", "--out must end in .html"),
            ("plain", "--out must end in .html"),
            ("folder.html", "is a directory"),
            ("no/such/page.html", "not a directory"),
        ],
    )
    def test_where_it_goes(self, place, run, monkeypatch, out, message):
        monkeypatch.chdir(place)
        Path("folder.html").mkdir(exist_ok=True)
        assert message in run("plain", "test.jsonl", "--out", out, code=2).stderr

    def test_what_is_read_is_not_overwritten(self, place, run, monkeypatch):
        monkeypatch.chdir(place)
        text = Path("test.jsonl").read_text()
        Path("rows.html").write_text(text)
        assert "both the input and the output" in run("plain", "rows.html", "--out", "rows.html", code=2).stderr
        assert Path("rows.html").read_text() == text

    def test_a_model_is_needed(self, place, run):
        assert run("test.jsonl", "--out", place / "page.html", code=2).stdout == ""


class TestCommand:
    def test_says_what_it_wrote(self, place, models, run, tmp_path):
        out = tmp_path / "page.html"
        result = run(*models, place / "test.jsonl", "--out", out, "--resamples", 2)
        assert result.stdout == ""
        assert f"Wrote {out}: 3 models, 150 rows, " in result.stderr
        page = Page(out.read_text())
        assert f"{place.name}/test.jsonl" in page.text
        assert str(place) not in out.read_text(), "a report tells nothing of the machine"

    def test_directories_of_one_name(self, place, run, tmp_path):
        for folder in ("one", "two"):
            (tmp_path / folder).mkdir()
            Model.load(place / "plain").save(tmp_path / folder / "model")
        names = list(load_models([tmp_path / "one" / "model", tmp_path / "two" / "model"]))
        assert names == [str(tmp_path / "one" / "model"), str(tmp_path / "two" / "model")]


class TestDemo:
    def test_writes_a_report_with_the_numbers_of_its_table(self, monkeypatch, capsys, tmp_path):
        sets = {"train": make_data(400, 0), "test": make_data(60, 1)}
        monkeypatch.setattr(datasets, "load", lambda name, split: sets[split])
        assert demo.main(["--out", str(tmp_path / "demo"), "--threads", "1"]) == 0
        shown = capsys.readouterr().out
        page = tmp_path / "demo" / "report.html"
        assert f"results are in {page}: open it" in " ".join(shown.split())
        table = Page(page.read_text()).tables["plain-scores"]
        assert table.columns[1:] == ["dismec", "pw-dismec", "pw-cb-dismec"]
        for row in table.rows[:6]:
            assert re.search(rf"^ ?{row.title} +{' +'.join(cell.text for cell in row.cells)} *$", shown, re.M)
