"""The commands as users type them: output, standard error and exit codes."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import longtail
from longtail import Model, Popularity
from longtail.cli import console
from longtail.cli.program import program

TRAIN = ["red fish blue fish", "red car", "blue car", "red fish", "green car"]
LABELS = [["animal", "two words"], ["vehicle"], ["vehicle", "a:b"], ["animal"], ["vehicle"]]
XC = "4 3 3\n0,1 0:1 1:0.5\n1 1:2\n1,2 2:1\n 0:1\n"


@pytest.fixture
def run():
    def call(*arguments, code=0, **options):
        result = CliRunner().invoke(program, [str(argument) for argument in arguments], **options)
        assert result.exit_code == code, result.output
        return result

    return call


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.txt").write_text(XC)
    with open("train.jsonl", "w") as file:
        for text, labels in zip(TRAIN, LABELS, strict=True):
            file.write(json.dumps({"text": text, "labels": labels}) + "\n")
    Path("new.jsonl").write_text('{"text": "a car"}\n{"text": ""}\n')
    return tmp_path


@pytest.fixture
def xc_model(files, run):
    run("train", "popularity", "train.txt", "--out", "model")
    return files / "model"


@pytest.fixture
def text_model(files, run):
    run("train", "popularity", "train.jsonl", "--out", "texts", "--set", "features.min_df=1")
    return files / "texts"


def only_error(result):
    """The one line on standard error; nothing on standard output."""
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("error: ")
    return result.stderr


class TestTrain:
    def test_summary(self, files, run):
        result = run("train", "popularity", "train.txt", "--out", "model")
        assert re.search(r"popularity on 4 rows, 3 features and 3 labels in 0\.\d s", result.stdout)
        model = longtail.load("model")
        assert model.recipe == "popularity"
        assert model.training["rows"] == 4

    def test_json_is_all_there_is_on_standard_output(self, files, run):
        result = run("train", "popularity", "train.txt", "--out", "model", "--json")
        figures = json.loads(result.stdout)
        assert set(figures) == {"seconds", "peak_memory_mb", "model_mb", "rows", "features", "labels"}
        assert (figures["rows"], figures["features"], figures["labels"]) == (4, 3, 3)
        size = sum(file.stat().st_size for file in Path("model").iterdir())
        assert figures["model_mb"] == pytest.approx(size / 1e6, abs=1e-3)
        assert 20 < figures["peak_memory_mb"] < 10_000

    def test_texts(self, text_model):
        model = longtail.load(text_model)
        assert model.takes_texts
        assert model.label_names == ["a:b", "animal", "two words", "vehicle"]
        assert model.learner.features.min_df == 1

    def test_threads_belong_to_the_run(self, files, run):
        run("train", "popularity", "train.jsonl", "--out", "m", "--threads", 1, "--set", "features.min_df=1")
        learner = longtail.load("m").learner
        assert learner.features.n_jobs is None
        assert learner.features_.n_jobs is None

    def test_propensity(self, files, run):
        run("train", "popularity", "train.txt", "--out", "m", "--propensity", "0.6,2.6")
        assert repr(longtail.load("m").propensity) == "JainPropensity(a=0.6, b=2.6)"
        run("train", "popularity", "train.txt", "--out", "m")
        assert repr(longtail.load("m").propensity) == "JainPropensity()"

    def test_settings_come_in_any_order(self, files, run):
        run("train", "dismec", "train.txt", "--out", "m", "--set", "weighting.beta=0.99", "--set", "weighting=pw-cb")
        assert longtail.load("m").learner.weighting.beta == 0.99

    def test_a_paper_from_text_to_scores(self, files, run):
        run(
            *("train", "pw-cb-dismec", "train.jsonl", "--out", "m", "--seed", 3, "--propensity", "0.6,2.6"),
            *("--set", "C=0.5", "--set", "weighting.beta=0.8", "--set", "features.min_df=1"),
        )
        learner = longtail.load("m").learner.learner
        assert (learner.C, learner.weighting.beta, learner.random_state) == (0.5, 0.8, 3)
        assert learner.weighting.propensity.b == 2.6
        assert json.loads(run("evaluate", "m", "train.jsonl", "--json").stdout)["P@1"] == 100
        assert run("predict", "m", "train.jsonl", "-k", 1).stdout.startswith("animal:")

    def test_replaces_a_model(self, xc_model, run):
        run("train", "popularity", "train.jsonl", "--out", xc_model)
        assert longtail.load(xc_model).takes_texts

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["dismek", "train.txt", "--out", "m"], "did you mean dismec?"),
            (["popularity", "nowhere.txt", "--out", "m"], "nowhere.txt"),
            (["dismec", "nowhere.txt", "--out", "m", "--set", "C=-1"], "C must be"),
            (["dismec", "nowhere.txt", "--out", "m", "--set", "prune_bellow=1"], "did you mean prune_below?"),
            (["dismec", "debian-tags:dev", "--out", "m"], "no split 'dev'"),
            (["popularity", "train.txt", "--out", "no/such/m"], "not a directory"),
            (["popularity", "train.txt", "--out", "train.txt"], "is a file"),
            (["popularity", "train.txt", "--out", "."], "not a longtail model"),
            (["popularity", "train.txt", "--out", "m", "--set", "x=1"], "x is not a parameter of this recipe"),
            (
                ["popularity", "train.txt", "--out", "m", "--set", "features.lowercas=1"],
                "did you mean features.lowercase?",
            ),
            (["popularity", "train.txt", "--out", "m", "--set", "features.ngram_range=0"], "ngram_range must be"),
            (
                ["popularity", "train.txt", "--out", "m", "--set", "features.min_df=2"],
                "features.min_df is a parameter for texts, and train.txt has features only.",
            ),
            (
                ["popularity", "train.txt", "--out", "m", "--set", "seed=1"],
                "--set seed isn't possible: give the option --seed.",
            ),
            (["popularity", "train.txt", "--out", "m", "--set", "n_jobs=1"], "give the option --threads."),
            (["dismec", "train.txt", "--out", "m", "--set", "c=1"], "not a parameter of this recipe (did you mean C?)"),
            (["dismec", "train.txt", "--out", "m", "--set", "min_df=1"], "of the features: give features.min_df."),
            (["dismek", "train.txt", "--out", "m"], "recipe 'dismek' doesn't exist (did you mean dismec?)"),
            (["popularity", "train.txt", "--out", "-"], "A model is a directory and can't go to standard output"),
            (["popularity", "train.txt", "--out", "m", "--set", "x"], "--set must be NAME=VALUE"),
            (["popularity", "train.txt", "--out", "m", "--propensity", "1"], "--propensity must be A,B"),
            (["popularity", "train.txt", "--out", "m", "--propensity", "1,2,3"], "A,B"),
            (["popularity", "train.txt", "--out", "m", "--propensity", "0.5,-1"], "B above 0"),
        ],
    )
    def test_mistakes(self, files, run, arguments, message):
        assert message in only_error(run("train", *arguments, code=2))
        assert not Path("m").exists()

    def test_bad_line(self, files, run):
        Path("train.txt").write_text("1 3 3\n0 0:x\n")
        assert "train.txt:2: " in only_error(run("train", "popularity", "train.txt", "--out", "m", code=2))

    @pytest.mark.parametrize(
        "arguments", [[], ["popularity"], ["popularity", "train.txt"], ["popularity", "t", "--no"]]
    )
    def test_usage(self, files, run, arguments):
        result = run("train", *arguments, code=2)
        assert result.stdout == ""
        assert "train" in result.stderr


class TestPredict:
    def test_ids_for_xc(self, xc_model, run):
        assert run("predict", xc_model, "train.txt", "-k", 2).stdout == "1:0.75 0:0.25\n" * 4

    def test_names_for_texts(self, text_model, run):
        line = 'vehicle:0.6 animal:0.4 a:b:0.2 "two words":0.2\n'
        assert run("predict", text_model, "train.jsonl").stdout == line * 5

    def test_texts_need_no_labels(self, text_model, run):
        assert run("predict", text_model, "new.jsonl", "-k", 1).stdout == "vehicle:0.6\n" * 2

    def test_standard_input(self, text_model, run):
        result = run("predict", text_model, "-", "-k", 1, input=Path("new.jsonl").read_text())
        assert result.stdout == "vehicle:0.6\n" * 2

    def test_standard_input_with_a_mistake(self, text_model, run):
        error = only_error(run("predict", text_model, "-", input='{"text": "fine"}\nnot json\n', code=2))
        assert "standard input:2: " in error

    def test_rows_without_predictions_are_empty_lines(self, files, run):
        Model(Popularity().fit([[1], [1]], [[0, 0], [0, 0]])).save("m")
        Path("empty.txt").write_text("2 1 2\n 0:1\n 0:1\n")
        assert run("predict", "m", "empty.txt").stdout == "\n\n"

    def test_to_a_file(self, xc_model, run):
        result = run("predict", xc_model, "train.txt", "-k", 1, "--out", "labels.txt")
        assert result.stdout == ""
        assert Path("labels.txt").read_text() == "1:0.75\n" * 4
        assert not list(Path().glob(".labels*"))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["nowhere", "train.txt"], "nowhere is not a model"),
            (["model", "nowhere.txt"], "nowhere.txt"),
            (["model", "train.jsonl"], "takes features"),
            (["model", "train.txt", "--names"], "no label names"),
            (["model", "train.txt", "--out", "no/such/file"], "not a directory"),
            (["model", "train.txt", "--out", "model"], "is a directory"),
            (["model", "wide.txt"], "features"),
        ],
    )
    def test_mistakes(self, xc_model, run, arguments, message):
        Path("wide.txt").write_text("1 9 3\n0 8:1\n")
        assert message in only_error(run("predict", *arguments, code=2))

    def test_k_above_the_number_of_labels_takes_no_memory(self, xc_model, run, monkeypatch):
        asked = []
        whole = longtail.Popularity.predict_topk
        monkeypatch.setattr(
            longtail.Popularity, "predict_topk", lambda self, X, k, **more: asked.append(k) or whole(self, X, k, **more)
        )
        expected = run("predict", xc_model, "train.txt", "-k", 3).stdout
        assert run("predict", xc_model, "train.txt", "-k", 3_000_000_000).stdout == expected
        assert asked == [3, 3]

    @pytest.mark.parametrize("k", ["0", "-3", "many", "1.5"])
    def test_wrong_k(self, xc_model, run, k):
        assert run("predict", xc_model, "train.txt", "-k", k, code=2).stdout == ""


class TestEvaluate:
    def test_table(self, xc_model, run):
        result = run("evaluate", xc_model, "train.txt", "-k", "1,2")
        assert re.search(r"^P +75\.00 +50\.00$", result.stdout, re.M)
        for metric in ("nDCG", "PSP", "PSnDCG", "R", "C"):
            assert re.search(rf"^{metric} ", result.stdout, re.M)

    def test_json(self, xc_model, run):
        scores = json.loads(run("evaluate", xc_model, "train.txt", "--json").stdout)
        assert {f"{name}@{k}" for name in ("P", "nDCG", "PSP", "PSnDCG", "R", "C") for k in (1, 3, 5)} <= set(scores)
        assert scores["P@1"] == 75

    def test_texts(self, text_model, run):
        Path("test.jsonl").write_text('{"text": "car", "labels": ["vehicle", "unheard of"]}\n')
        scores = json.loads(run("evaluate", text_model, "test.jsonl", "--json").stdout)
        assert (scores["P@1"], scores["R@5"]) == (100, 50)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["nowhere", "train.txt"], "nowhere is not a model"),
            (["model", "nowhere.txt"], "nowhere.txt"),
            (["model", "train.txt", "-k", "0"], "-k must be"),
            (["model", "train.txt", "-k", "1,x"], "-k must be"),
            (["model", "train.txt", "-k", ""], "-k must be"),
            (["model", "more.txt"], "9 labels"),
        ],
    )
    def test_mistakes(self, xc_model, run, arguments, message):
        Path("more.txt").write_text("1 3 9\n0 1:1\n")
        assert message in only_error(run("evaluate", *arguments, code=2))


class TestProgram:
    def test_help(self, run):
        text = run("--help").stdout
        for command in ("train", "predict", "evaluate", "recipes", "data"):
            assert re.search(rf"^\W*{command} +\w", text, re.M)
        assert run(code=2).output.strip()

    @pytest.mark.parametrize("command", ["train", "predict", "evaluate", "recipes", "data", "data list", "data verify"])
    def test_help_of_commands(self, run, command):
        assert "Usage" in run(*command.split(), "--help").stdout

    def test_version(self, run):
        assert run("--version").stdout == f"longtail {longtail.__version__}\n"

    def test_recipes(self, run):
        text = run("recipes").stdout
        for name in ("popularity", "dismec", "pw-dismec", "pw-cb-dismec", "WWW 2021"):
            assert name in text

    def test_unknown_command(self, run):
        assert run("trian", code=2).stdout == ""


class TestOurFaults:
    @pytest.fixture
    def broken(self, monkeypatch):
        def fail():
            raise KeyError("oops")

        monkeypatch.setattr("longtail.recipes.recipes", fail)
        monkeypatch.setattr(console, "debugging", False)

    @pytest.mark.usefixtures("broken")
    def test_short_message(self, run):
        error = only_error(run("recipes", code=1))
        assert "KeyError" in error
        assert "--debug" in error

    @pytest.mark.usefixtures("broken")
    def test_debug_shows_where(self, run):
        assert "Traceback" in run("--debug", "recipes", code=1).stderr

    def test_debug_shows_where_the_user_went_wrong_too(self, run, tmp_path, monkeypatch):
        monkeypatch.setattr(console, "debugging", False)
        result = run("--debug", "evaluate", tmp_path, "x", code=2)
        assert "Traceback" in result.stderr
        assert "error: " in result.stderr
