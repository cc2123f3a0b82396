"""`longtail propensity`: its three commands, their output and files, and refused input."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from longtail import Model, Popularity
from longtail.cli.propensity import propensity
from longtail.data import Dataset, save
from longtail.propensity import JainPropensity, read_propensity
from tests.cli.test_cli import only_error
from tests.propensity.simulation import complete_rows, masked, random_forest

N_LABELS, N_ROWS = 900, 4000
KNOWN = JainPropensity(a=0.6, b=2.6)


@pytest.fixture
def run():
    def call(*arguments, code=0):
        result = CliRunner().invoke(propensity, [str(argument) for argument in arguments])
        assert result.exit_code == code, result.output
        return result

    return call


@pytest.fixture(scope="module")
def simulated():
    pairs = random_forest(N_LABELS, 0)
    complete = complete_rows(pairs, N_LABELS, N_ROWS, 4, 0)
    return pairs, complete, masked(complete, KNOWN, 0, exact=True)


@pytest.fixture(scope="module")
def originals(simulated, tmp_path_factory):
    """Texts with names (data.jsonl, complete.jsonl, names.tsv) and features with ids (data.txt, ids.tsv)."""
    folder = tmp_path_factory.mktemp("files")
    pairs, complete, observed = simulated
    names = [f"label {label}" for label in range(N_LABELS)]
    texts = [f"row {row}" for row in range(N_ROWS)]
    save(Dataset(None, observed, label_names=names, texts=texts), folder / "data.jsonl")
    part = Dataset(None, complete, label_names=names, texts=texts).take(np.arange(N_ROWS - 1, 0, -2))
    save(part, folder / "complete.jsonl")
    X = sp.csr_array((N_ROWS, 1), dtype=np.float32)
    save(Dataset(X, observed), folder / "data.txt")
    save(Dataset(X, complete), folder / "complete.txt")
    (folder / "ids.tsv").write_text("".join(f"{child}\t{parent}\n" for child, parent in pairs))
    (folder / "names.tsv").write_text("".join(f"label {child}\tlabel {parent}\n" for child, parent in pairs))
    return folder


@pytest.fixture
def files(originals, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(originals, tmp_path, dirs_exist_ok=True)
    return tmp_path


class TestFit:
    def test_the_level_is_named_as_its_option(self, files, run):
        result = run("fit", "data.jsonl", "--hierarchy", "names.tsv", "--min-descendants", 3, "--level", 1, code=2)
        assert only_error(result).startswith("error: --level must be a number between 0 and 1, got 1.0.")

    def test_a_hierarchy_by_names_and_by_ids(self, files, run):
        options = ("--min-descendants", 3, "--labels-per-bin", 10, "--resamples", 20, "--json")
        by_name = json.loads(run("fit", "data.jsonl", "--hierarchy", "names.tsv", *options).stdout)
        by_id = json.loads(run("fit", "data.txt", "--hierarchy", "ids.tsv", *options).stdout)
        # Labels are numbered by their sorted names in texts, so that labels of equal count may fall into other bins.
        assert (by_name["rows"], by_name["labels"], by_name["bins"]) == (4000, by_id["labels"], by_id["bins"])
        assert by_name["a"] == pytest.approx(by_id["a"], rel=0.1)
        assert by_name["a_interval"][0] < by_name["a"] < by_name["a_interval"][1]
        assert len(by_name["points"]["counts"]) == by_name["bins"]

    def test_the_table(self, files, run):
        result = run("fit", "data.txt", "--hierarchy", "ids.tsv", "--min-descendants", 2, "--labels-per-bin", 10)
        assert "4,000 rows" in result.stdout
        for part in ("fitted", "95 % interval", "published: Wikipedia", "0.4", "To use it: --propensity 0."):
            assert part in result.stdout

    def test_what_is_written(self, files, run):
        result = run(
            *("fit", "data.txt", "--hierarchy", "ids.tsv", "--min-descendants", 3, "--labels-per-bin", 10),
            *("--plot", "curve.png", "--save", "p.json", "--json", "--resamples", 10),
        )
        values = json.loads(result.stdout)
        assert json.loads(Path("p.json").read_text()) == values
        assert read_propensity("p.json").a == values["a"]
        assert Path("curve.png").read_bytes().startswith(b"\x89PNG")
        assert "curve.png" in result.stderr
        assert "p.json" in result.stderr

    def test_complete_rows_are_found_by_their_texts(self, files, run, simulated):
        """Half of the rows, backwards."""
        values = json.loads(run("fit", "data.jsonl", "--complete", "complete.jsonl", "--json").stdout)
        _, complete, observed = simulated
        rows = np.arange(N_ROWS - 1, 0, -2)
        recorded = np.bincount(observed.indices, minlength=N_LABELS) > 0
        cases = np.bincount(complete[rows].indices, minlength=N_LABELS)[recorded].sum()
        assert sum(values["points"]["support"]) == cases
        assert values["rows"] == N_ROWS
        assert values["a"] == pytest.approx(0.6, rel=0.2)

    def test_complete_rows_by_position(self, files, run):
        values = json.loads(run("fit", "data.txt", "--complete", "complete.txt", "--json").stdout)
        assert values["a"] == pytest.approx(0.6, rel=0.1)
        assert values["b"] == pytest.approx(2.6, rel=0.5)

    def test_complete_rows_that_are_not_in_the_data(self, files, run, simulated):
        _, complete, observed = simulated
        X = sp.csr_array((1000, 1), dtype=np.float32)
        save(Dataset(X, observed[:1000]), "seen.txt")
        save(Dataset(X, complete[:1000]), "all.txt")
        arguments = ("fit", "data.txt", "--complete", "all.txt", "--observed", "seen.txt", "--json")
        values = json.loads(run(*arguments).stdout)
        recorded = np.bincount(observed.indices, minlength=N_LABELS) > 0
        assert values["rows"] == N_ROWS
        assert sum(values["points"]["support"]) == recorded[complete[:1000].indices].sum()

    def test_substitutes_where_the_rows_are_the_items(self, tmp_path, monkeypatch, run):
        """Ten groups of six substitutable rows; labels were bought with the first 1 to 5 of a group."""
        monkeypatch.chdir(tmp_path)
        Y = np.zeros((60, 50))
        for label in range(50):
            start = 6 * (label % 10)
            Y[start : start + 1 + label // 10, label] = 1
        save(Dataset(sp.csr_array((60, 1), dtype=np.float32), Y), "data.txt")
        viewed = [(row, row - row % 6 + step) for row in range(60) for step in range(6) if step != row % 6]
        Path("viewed.tsv").write_text("".join(f"{row}\t{other}\n" for row, other in viewed))
        arguments = ("fit", "data.txt", "--substitutes", "viewed.tsv", "--labels-per-bin", 10, "--json")
        points = json.loads(run(*arguments, "--resamples", 5).stdout)["points"]
        assert points["counts"] == pytest.approx([1, 2, 3, 4, 5])
        assert points["propensities"] == pytest.approx([1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6])

    def test_substitutes_with_what_was_bought_together(self, tmp_path, monkeypatch, run):
        """Label l, in 30 - l rows, was bought with items 0 to l, which stand for 0 to l + 1."""
        monkeypatch.chdir(tmp_path)
        Y = np.arange(30)[:, None] + np.arange(30) < 30
        save(Dataset(sp.csr_array((30, 1), dtype=np.float32), Y), "data.txt")
        bought = [(label, f"item {step}") for label in range(30) for step in range(label + 1)]
        Path("bought.tsv").write_text("".join(f"{label}\t{item}\n" for label, item in bought))
        Path("viewed.tsv").write_text("0\titem 0\n" + "".join(f"item {i}\titem {i + 1}\n" for i in range(30)))
        arguments = ("--substitutes", "viewed.tsv", "--bought", "bought.tsv", "--labels-per-bin", 1, "--json")
        points = json.loads(run("fit", "data.txt", *arguments, "--resamples", 5).stdout)["points"]
        assert points["counts"] == pytest.approx(np.arange(1, 31))
        assert points["propensities"] == pytest.approx([(label + 1) / (label + 2) for label in range(29, -1, -1)])

    def test_terms_that_are_no_labels(self, files, run):
        text = Path("names.tsv").read_text()
        Path("more.tsv").write_text(text + "label 0\teverything\n")
        result = run("fit", "data.jsonl", "--hierarchy", "more.tsv", "--min-descendants", 3, "--resamples", 2)
        assert "1 concepts of more.tsv are not labels of the data." in result.stderr

    def test_rows_with_inner_terms_that_the_data_lacks(self, files, run):
        rows = [{"labels": [f"label {row % 8}"], "labels_all": [f"label {row % 8}", "top"]} for row in range(80)]
        Path("all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        error = run("fit", "data.jsonl", "--hierarchy", "all.jsonl", code=2).stderr
        assert "No row has any of the 1 labels with 5 or more descendants" in error

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["data.txt"], "must be one of --hierarchy, --complete and --substitutes, got 'none of them'"),
            (["data.txt", "--hierarchy", "ids.tsv", "--complete", "complete.txt"], "--hierarchy and --complete"),
            (["data.txt", "--hierarchy", "ids.tsv", "--observed", "data.txt"], "--observed goes with --complete"),
            (["data.txt", "--hierarchy", "ids.tsv", "--bought", "ids.tsv"], "--bought goes with --substitutes"),
            (["data.txt", "--hierarchy", "none.tsv"], "none.tsv"),
            (["none.txt", "--hierarchy", "ids.tsv"], "none.txt"),
            (["data.txt", "--hierarchy", "names.tsv"], "such as 'label 1' is one of the 900 labels, such as '0'"),
            (["data.txt", "--hierarchy", "ids.tsv", "--plot", "curve.gif"], "must end in .png"),
            (["data.txt", "--hierarchy", "ids.tsv", "--save", "no/p.json"], "not a directory"),
            (["data.txt", "--hierarchy", "ids.tsv", "--level", "95"], "level must be"),
            (["data.jsonl", "--hierarchy", "circle.tsv"], "'label 0' under 'label 1' under 'label 0'"),
            (["data.txt", "--complete", "short.txt"], "give those as recorded with --observed"),
            (["data.txt", "--complete", "wide.txt"], "use the same ids"),
            (["data.jsonl", "--complete", "other.jsonl"], "other.jsonl:1: has a text that is not among"),
        ],
    )
    def test_mistakes(self, files, run, arguments, message):
        Path("circle.tsv").write_text("label 0\tlabel 1\nlabel 1\tlabel 0\n")
        Path("short.txt").write_text(f"1 1 {N_LABELS}\n0 0:1\n")
        Path("wide.txt").write_text(f"1 1 {N_LABELS + 1}\n0 0:1\n")
        Path("other.jsonl").write_text('{"text": "something else", "labels": []}\n')
        error = run("fit", *arguments, code=2).stderr
        assert message in " ".join(error.split())
        assert not list(Path().glob("curve*"))
        assert not list(Path().glob("p.json"))


class TestShow:
    def test_the_counts_of_a_data_set(self, files, run):
        Path("small.txt").write_text("4 1 3\n0,1 0:1\n0 0:1\n0 0:1\n 0:1\n")
        result = run("show", "small.txt", "--propensity", "0.6,2.6", "--json")
        values = json.loads(result.stdout)
        assert (values["a"], values["b"], values["rows"]) == (0.6, 2.6, 4)
        assert [row["training_rows"] for row in values["table"]] == [0, 1, 2, 3]
        assert [row["labels_up_to"] for row in values["table"]] == [1, 2, 2, 3]
        p = JainPropensity(a=0.6, b=2.6).propensities([0, 1, 2, 3], 4)
        assert [row["propensity"] for row in values["table"]] == pytest.approx(p)
        assert [row["pw_cost"] for row in values["table"]] == pytest.approx(2 / p - 1)

    def test_the_table(self, run):
        text = run("show", "--propensity", "0.55,1.5", "--rows", 23_186).stdout
        assert "A = 0.55, B = 1.5, 23,186 rows" in text
        assert " 0.459 " in text  # at 100 rows, as docs/explanation/propensity.md has it
        assert "labels up to here" not in text

    def test_a_data_set_by_name_brings_its_rows_and_constants(self, run):
        assert "A = 0.6, B = 2.6, 490,449 rows" in run("show", "--propensity", "Amazon-670K").stdout

    def test_a_file_that_fit_wrote_and_a_plot(self, files, run):
        Path("p.json").write_text('{"a": 0.3, "b": 0.7}')
        text = run("show", "data.txt", "--propensity", "p.json", "--plot", "curve.svg").stdout
        assert "data.txt: A = 0.3, B = 0.7" in text
        assert "<svg" in Path("curve.svg").read_text()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([], "give TRAIN or --rows"),
            (["data.txt", "--rows", "50"], "can't be given with TRAIN"),
            (["--propensity", "0.5", "--rows", "50"], "--propensity must be A,B"),
            (["data.txt", "--plot", "x.gif"], "must end in"),
            (["none.txt"], "none.txt"),
        ],
    )
    def test_mistakes(self, files, run, arguments, message):
        assert message in only_error(run("show", *arguments, code=2))


@pytest.fixture
def models(tmp_path, monkeypatch):
    """One model that ranks frequent labels first, one that ranks rare ones first, and one of other rows."""
    monkeypatch.chdir(tmp_path)
    Y = np.zeros((40, 3))
    Y[:30, 0], Y[:4, 1], Y[4:6, 2] = 1, 1, 1
    X = np.ones((40, 1))
    head, tail = Popularity().fit(X, Y), Popularity().fit(X, Y)
    tail.ranking_ = tail.ranking_[::-1].copy()
    Model(head).save("head")
    Model(tail, propensity=JainPropensity(a=0.6, b=2.6)).save("tail")
    Model(Popularity().fit(X[:20], Y[:20])).save("other")
    save(Dataset(sp.csr_array(np.ones((3, 1))), [[1, 1, 0], [1, 0, 0], [0, 0, 1]]), "test.txt")
    return tmp_path


class TestSensitivity:
    def test_values(self, models, run):
        """The first label of "head" is right in two rows, that of "tail" in one, where it is the rarest label."""
        arguments = ("sensitivity", "head", "tail", "test.txt", "--a", "0,0.7", "--b", "0.5,2.6", "-k", "1", "--json")
        values = json.loads(run(*arguments).stdout)
        assert (values["base"], values["models"], len(values["rows"])) == ([0.55, 1.5], ["head", "tail"], 4)
        for row in values["rows"]:
            frequent, rare, rarest = JainPropensity(a=row["a"], b=row["b"]).inverse([30, 4, 2], 40)
            best = rare + frequent + rarest
            expected = {"head": 200 * frequent / best, "tail": 100 * rarest / best}
            assert row["psp"] == pytest.approx(expected)
            assert row["order"] == sorted(expected, key=lambda name: -expected[name])
            assert row["changed"] == (row["order"] != ["head", "tail"])
        assert [row["changed"] for row in values["rows"]] == [False, False, True, True]

    def test_the_table_and_the_plot(self, models, run):
        result = run("sensitivity", "tail", "test.txt", "--a", "0,0.5", "--b", "1", "-k", "1,2", "--plot", "s.png")
        assert "PSP@1 on test.txt, percent; with A = 0.6, B = 2.6: tail" in result.stdout
        assert "PSP@2" in result.stdout
        assert Path("s.png").read_bytes().startswith(b"\x89PNG")
        text = run("sensitivity", "head", "tail", "test.txt", "--propensity", "0.7,0.5", "-k", "1").stdout
        assert "with A = 0.7, B = 0.5: tail > head" in text
        assert text.count("*") >= 1

    def test_test_rows_with_their_labels_in_another_order(self, tmp_path, monkeypatch, run):
        monkeypatch.chdir(tmp_path)
        X, Y = sp.csr_array(np.ones((4, 1))), np.array([[1, 1, 0], [1, 0, 0], [1, 0, 1], [1, 0, 0]])
        Model(Popularity().fit(X, Y), label_names=["a", "b", "c"]).save("model")
        save(Dataset(X, Y, label_names=["a", "b", "c"]), "test.txt")
        save(Dataset(X, Y[:, [2, 0, 1]], label_names=["c", "a", "b"]), "turned.txt")
        same, turned = (
            json.loads(run("sensitivity", "model", f"{name}.txt", "--json").stdout) for name in ("test", "turned")
        )
        assert same == turned
        assert same["rows"][0]["psp"]["model"] > 0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["head", "other", "test.txt"], "other and head were not trained on the same rows"),
            (["head", "head", "test.txt"], "must be a different directory each time"),
            (["none", "test.txt"], "none"),
            (["head", "none.txt"], "none.txt"),
            (["head", "wide.txt"], "wide.txt: The data set has 4 labels instead of 3"),
            (["head", "test.txt", "--a", "-1"], "--a must be numbers of at least 0"),
            (["head", "test.txt", "--b", "1,0"], "--b must be numbers above 0"),
            (["head", "test.txt", "--a", "x"], "--a must be"),
            (["head", "test.txt", "-k", "0"], "-k must be"),
            (["head", "test.txt", "--plot", "s.gif"], "must end in"),
        ],
    )
    def test_mistakes(self, models, run, arguments, message):
        Path("wide.txt").write_text("1 1 4\n0 0:1\n")
        assert message in only_error(run("sensitivity", *arguments, code=2))
