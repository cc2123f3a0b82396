"""`longtail update`, and rankings as runs for other tools."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from longtail import Dataset, Model, Popularity
from longtail.cli.program import program
from longtail.data import load, save
from longtail.errors import InputError

ROWS = [("a red ship", ["ship"]), ("a blue ship", ["ship"]), ("a red tree", ["tree"]), ("a blue tree", ["tree"])] * 10


def write(path, rows):
    path.write_text("".join(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in rows))
    return str(path)


def run(*arguments):
    return CliRunner().invoke(program, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("update")
    train = write(folder / "train.jsonl", [(f"{text} {number}x", labels) for number, (text, labels) in enumerate(ROWS)])
    done = run("train", "dismec", train, "--out", folder / "model", "--threads", 1)
    assert done.exit_code == 0, done.output
    return folder


def test_new_rows_and_labels_go_into_another_model(files):
    late = write(files / "late.jsonl", [("a green boat", ["boat"]), ("a red boat", ["boat", "ship"])] * 3)
    done = run("update", files / "model", late, "--out", files / "second", "--json")
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    wanted = {"rows": 6, "replaced": 0, "new_labels": 1, "with_training_rows": False, "all_rows": 46, "all_labels": 3}
    assert {name: figures[name] for name in wanted} == wanted
    model, first = Model.load(files / "second", verify=True), Model.load(files / "model")
    assert (model.label_names, first.label_names) == (["ship", "tree", "boat"], ["ship", "tree"])
    assert model.training["updates"] == [
        {
            "rows": 6,
            "replaced": 0,
            "new_labels": 1,
            "forgotten_labels": 0,
            "unknown_rejections": [],
            "with_training_rows": False,
        }
    ]
    assert (model.training["rows"], first.training.get("updates")) == (46, None)
    again = run("update", files / "second", late)
    assert "update 2" in again.stdout
    assert len(Model.load(files / "second").training["updates"]) == 2


def test_labels_are_matched_by_the_names_beside_a_file(tmp_path):
    X, Y, names = np.eye(4), np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 0]]), ["a", "b", "c"]
    Model(Popularity().fit(X, Y), label_names=names).save(tmp_path / "model")
    save(Dataset(X[:2], [[0, 0, 1], [0, 0, 1]], label_names=["b", "c", "a"]), tmp_path / "late.txt")
    done = run("update", tmp_path / "model", tmp_path / "late.txt")
    assert done.exit_code == 0, done.output
    assert Model.load(tmp_path / "model").label_counts.tolist() == [4, 2, 1]


def test_corrected_rows_replace_those_with_the_same_text(files):
    corrected = write(files / "corrected.jsonl", [("a red ship 0x", ["tree"]), ("a blue ship 1x", ["tree"])])
    done = run(
        "update", files / "model", corrected, "--train", files / "train.jsonl", "--out", files / "third", "--json"
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["replaced"] == 2
    model = Model.load(files / "third")
    assert (model.n_rows, model.label_counts.tolist()) == (40, [18, 22])


def lines(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


@pytest.fixture
def three(tmp_path):
    """A model over rows with ids, the files, and a function that updates it and returns the output."""
    rows = [
        {"id": number, "text": f"{text} {number}x", "labels": [*labels, *(["old"] if number == 3 else [])]}
        for number, (text, labels) in enumerate(ROWS)
    ]
    train = lines(tmp_path / "train.jsonl", *rows)
    assert run("train", "dismec", train, "--out", tmp_path / "model", "--threads", 1).exit_code == 0

    def updated(*records, with_train=True):
        late = lines(tmp_path / "late.jsonl", *records)
        more = ("--train", train) if with_train else ()
        done = run("update", tmp_path / "model", late, *more, "--out", tmp_path / "new", "--json")
        assert done.exit_code == 0, done.output
        model = Model.load(tmp_path / "new")
        return json.loads(done.stdout), dict(zip(model.label_names, model.label_counts.tolist(), strict=True)), model

    return updated


def test_a_row_replaces_the_earlier_one_with_its_id(three):
    figures, counts, model = three(
        {"id": "0", "text": "another text, a tree", "labels": ["tree"]},
        {"id": 99, "text": "a blue ship 1x", "labels": ["tree"]},
        {"id": 5, "text": "a red ship 4x", "labels": ["ship"]},
    )
    assert figures["replaced"] == 3, "by id with another text; by text where the id is unknown; by id where both are"
    assert (model.n_rows, counts) == (40, {"old": 1, "ship": 18, "tree": 22})


def test_an_id_may_stand_in_the_earlier_rows_as_often_as_it_was_corrected(files, tmp_path):
    rows = [{"id": 0, "text": "a red ship", "labels": ["tree"]}, {"id": 0, "text": "a red ship", "labels": ["ship"]}]
    earlier = lines(tmp_path / "earlier.jsonl", *rows, {"id": 1, "text": "a blue tree", "labels": ["tree"]})
    late = lines(tmp_path / "late.jsonl", {"id": 0, "text": "a ship", "labels": ["ship"]})
    done = run("update", files / "model", late, "--train", earlier, "--out", tmp_path / "new", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["replaced"] == 2


@pytest.mark.parametrize("with_train", [False, True])
def test_an_id_twice_is_refused_in_python_too(files, with_train):
    model, train = Model.load(files / "model"), load(files / "train.jsonl")
    twice = Dataset(None, [[1, 0]] * 3, label_names=["ship", "tree"], texts=["a", "b", "c"], row_ids=["x", "", "x"])
    with pytest.raises(InputError, match="Two of the rows have the id 'x': remove one of them"):
        model.update(twice, train=train if with_train else None)
    model.update(twice.take([0, 1]), train=train if with_train else None)
    assert model.n_rows == 42


def test_earlier_rows_without_replacements_are_not_copied(files, monkeypatch):
    model, train = Model.load(files / "model"), load(files / "train.jsonl")
    late = Dataset(None, [[1, 0]], label_names=["ship", "tree"], texts=["a ship that is new"])
    monkeypatch.setattr(Dataset, "take", lambda *_: pytest.fail("there is nothing to leave out"))
    model.update(late, train=train)
    assert (model.n_rows, model.training["updates"][-1]["replaced"]) == (41, 0)


def test_what_is_rejected_goes_and_the_rest_of_the_row_stays(three):
    figures, counts, model = three({"id": 3, "text": "a blue tree 3x", "labels": [], "rejected": ["old", "unheard of"]})
    assert (figures["replaced"], figures["new_labels"], figures["forgotten_labels"]) == (1, 0, 1)
    assert counts == {"old": 0, "ship": 20, "tree": 20}, "tree stays, of which nothing was said"
    assert figures["unknown_rejections"] == ["unheard of"]
    assert "old" not in dict(model.names(model.predict_topk(["a blue tree 3x"], 3))[0])


def test_rejected_names_without_a_label_are_reported(files, tmp_path):
    row = {"text": "a red ship", "labels": ["ship", "new"], "rejected": ["shp", "tree", "a", "b", "c"]}
    late = lines(tmp_path / "late.jsonl", row, {**row, "rejected": ["new one"]})
    done = run("update", files / "model", late, "--out", tmp_path / "new")
    assert done.exit_code == 0, done.output
    told = " ".join(done.stderr.split())
    assert "Rejected labels that the model doesn't have, which changes nothing: 'shp', 'a', 'b' and 2 more." in told
    one = lines(tmp_path / "one.jsonl", {"text": "a red ship", "labels": ["ship"]})
    done = run("update", files / "model", one, "--out", tmp_path / "new")
    assert "Learned from 1 row in" in done.stdout
    assert "Rejected" not in done.stderr


def test_what_rows_reject_needs_names(files):
    model = Model.load(files / "model")
    model.label_names = None
    rows = Dataset(None, [[1, 0]], texts=["a ship"], rejected=[["tree"]])
    with pytest.raises(InputError, match="labels have no names, so what rows reject can't be matched"):
        model.update(rows)


def test_features_for_a_model_of_texts_are_refused(files, tmp_path):
    late = tmp_path / "late.txt"
    late.write_text("1 5 3\n0 0:1.0 4:2.0\n")
    done = run("update", files / "model", late, "--out", tmp_path / "new")
    assert done.exit_code == 2, done.output
    assert "late.txt: The model takes texts, and the data set has features only" in " ".join(done.stderr.split())
    row = lines(tmp_path / "row.jsonl", {"text": "a red ship", "labels": ["ship"]})
    done = run("update", files / "model", row, "--train", late, "--out", tmp_path / "new")
    assert "late.txt: The model takes texts" in " ".join(done.stderr.split())


def test_a_row_that_only_rejects_has_what_the_model_decides_besides(three):
    _, counts, _ = three({"text": "a blue tree", "labels": [], "rejected": ["ship"]}, with_train=False)
    assert counts == {"old": 1, "ship": 20, "tree": 21}
    _, counts, _ = three({"text": "a blue tree", "labels": [], "rejected": ["tree"]}, with_train=False)
    assert counts == {"old": 1, "ship": 20, "tree": 20}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"id": [1], "labels": []}, "'id' must be a string or an integer, got a list"),
        ({"labels": ["ship"], "rejected": ["ship"]}, "label 'ship' is in 'labels' and in 'rejected'"),
        ({"labels": ["ship"], "rejected": "tree"}, "'rejected' must be a list of names, got a string"),
        ({"labels": ["ship"], "id": "twice"}, "late.jsonl:2: has the id 'twice' of line 1 again: remove one"),
    ],
)
@pytest.mark.parametrize("with_train", [False, True])
def test_corrections_that_make_no_sense_are_refused(files, tmp_path, record, message, with_train):
    late = lines(tmp_path / "late.jsonl", *[{"text": "a", **record}] * 2)
    more = ("--train", files / "train.jsonl") if with_train else ()
    done = run("update", files / "model", late, *more, "--out", tmp_path / "never")
    assert done.exit_code == 2
    assert message in done.stderr
    assert str(files / "model") not in done.stderr
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a"}\n', "has no 'labels'"),
        ('{"text": "a", "labels": []}\n', "has no labels: there is nothing to learn"),
        ("ship, a red one\n", "is not valid JSON"),
    ],
)
def test_rows_that_teach_nothing_are_refused_and_nothing_is_written(files, content, message):
    (files / "wrong.jsonl").write_text(content)
    before = (files / "model" / "model.json").read_bytes()
    done = run("update", files / "model", files / "wrong.jsonl")
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert (files / "model" / "model.json").read_bytes() == before


def test_a_model_that_can_not_be_updated_says_so(files):
    pytest.importorskip("torch", reason="needs the extra for embeddings")
    done = run("train", "glas", files / "train.jsonl", "--out", files / "glas", "--set", "epochs=1")
    assert done.exit_code == 0, done.output
    done = run("update", files / "glas", files / "train.jsonl")
    assert done.exit_code == 2
    assert "EmbeddingClassifier does not support incremental updates: refit on all rows." in done.stderr


def test_runs_for_other_tools(files):
    done = run("predict", files / "model", files / "train.jsonl", "-k", 2, "--format", "ranx")
    assert done.exit_code == 0, done.output
    ranked = json.loads(done.stdout)
    assert list(ranked) == [str(row) for row in range(40)]
    assert list(ranked["0"]) == ["ship", "tree"]
    lines = run("predict", files / "model", files / "train.jsonl", "-k", 2, "--format", "trec").stdout.splitlines()
    assert len(lines) == 80
    query, constant, label, place, score, tag = lines[0].split()
    assert (query, constant, label, place, tag) == ("0", "Q0", "ship", "1", "model")
    assert float(score) == ranked["0"]["ship"]
    refused = run("predict", files / "model", files / "train.jsonl", "--format", "x")
    assert refused.exit_code == 2
    assert "--format must be one of lines, ranx, trec, got 'x'." in refused.stderr
