"""The backend inside Annif itself: its commands, its registry, its vocabulary."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

annif = pytest.importorskip("annif", reason="runs in Annif's own environment: make annif-test")

from longtail import datasets  # noqa: E402

PROJECT = """[tags]
name=Tags
language=en
backend=longtail
vocab=tags
recipe=dismec
limit=10
allow_learn=True
transform=limit(5000)
longtail_C=0.5
longtail_features__min_df=1
"""


def uri(name):
    return f"http://example.org/{name.replace('::', '/')}"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a vocabulary, documents and a project, and Annif's own files in it."""
    folder = tmp_path_factory.mktemp("annif")
    train, test = datasets.load("debian-tags:train"), datasets.load("debian-tags:test")
    names = train.label_names
    lines = [f"<{uri(name)}>\t{name}" for name in names]
    (folder / "vocab.tsv").write_text("\n".join(lines) + "\n")
    (folder / "projects.cfg").write_text(PROJECT)
    order = {id(part): np.random.default_rng(0).permutation(part.n_rows) for part in (train, test)}  # files are sorted
    for part, dataset, rows in (
        ("train", train, range(2500)),
        ("late", train, range(2500, 2800)),
        ("test", test, range(400)),
    ):
        with (folder / f"{part}.tsv").open("w") as file:
            for row in order[id(dataset)][rows].tolist():
                found = dataset.Y.indices[dataset.Y.indptr[row] : dataset.Y.indptr[row + 1]]
                subjects = " ".join(f"<{uri(dataset.label_names[label])}>" for label in found)
                text = " ".join(dataset.texts[row].split())
                file.write(f"{text}\t{subjects}\n")
    run(folder, "load-vocab", "--language", "en", "tags", "vocab.tsv")
    run(folder, "train", "tags", "train.tsv")
    return folder


def run(folder, *arguments, stdin=None):
    environment = {
        **os.environ,
        "ANNIF_CONFIG": "longtail.annif.Config",
        "ANNIF_PROJECTS": str(folder / "projects.cfg"),
        "ANNIF_DATADIR": str(folder / "data"),
    }
    command = [Path(sys.executable).with_name("annif"), *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, input=stdin, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def metrics(folder):
    run(folder, "eval", "tags", "test.tsv", "--metrics-file", "metrics.json")
    return json.loads((folder / "metrics.json").read_text())


def test_annif_lists_the_project_as_trained(place):
    listed = run(place, "show-project", "tags")
    assert "longtail" in listed
    trained = next(line for line in listed.splitlines() if "rained" in line)
    assert "True" in trained


def test_annif_suggests_with_its_own_command(place):
    lines = run(
        place, "suggest", "tags", stdin="a library of functions in C, with headers for development"
    ).splitlines()
    assert len(lines) == 10
    first, name, score = lines[0].split("\t")
    assert first.startswith("<http://example.org/")
    assert "devel" in name
    scores = [float(line.split("\t")[2]) for line in lines]
    assert scores == sorted(scores, reverse=True)
    assert 0 < float(score) <= 1


def test_annif_measures_what_longtail_measures(place):
    found = metrics(place)
    assert found["Precision@1"] > 0.7
    assert found["NDCG@5"] > 0.65


def test_annif_lets_the_model_learn_on(place):
    before = metrics(place)
    run(place, "learn", "tags", "late.tsv")
    model = json.loads((place / "data/projects/tags/longtail-model/model.json").read_text())
    assert '"updates"' in json.dumps(model)
    assert metrics(place)["NDCG@5"] > before["NDCG@5"] - 0.01


def test_batches_give_what_single_documents_give(place, monkeypatch):
    monkeypatch.setenv("ANNIF_PROJECTS", str(place / "projects.cfg"))
    monkeypatch.setenv("ANNIF_DATADIR", str(place / "data"))
    from annif.corpus import Document
    from annif.registry import AnnifRegistry

    import longtail.annif

    registry = AnnifRegistry(str(place / "projects.cfg"), str(place / "data"), False)
    project = registry.get_project("tags")
    assert isinstance(project.backend, longtail.annif.LongtailBackend)
    texts = [line.split("\t")[0] for line in (place / "test.tsv").read_text().splitlines()[:20]]
    together = project.suggest([Document(text=text) for text in texts])
    for row, text in enumerate(texts):
        alone = project.suggest([Document(text=text)])
        assert abs(together.array[[row]] - alone.array[[0]]).max() < 1e-6


def test_an_untrained_project_says_so(place):
    (place / "projects.cfg").write_text(PROJECT + PROJECT.replace("[tags]", "[other]"))
    with pytest.raises(AssertionError, match="is not trained"):
        run(place, "suggest", "other", stdin="text")
