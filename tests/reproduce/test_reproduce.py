"""The papers' numbers, and measured ones beside them."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from typer.testing import CliRunner

from longtail import datasets
from longtail.cli.program import program
from longtail.data import save
from longtail.data.dataset import Dataset
from longtail.errors import ParameterError
from longtail.plots.papers import panels_beside
from longtail.propensity import JainPropensity
from longtail.recipes import find
from longtail.recipes.compose import plan_of
from longtail.reproduce import job
from longtail.reproduce.figures import figures
from longtail.reproduce.jobs import COSTS, METRICS, Job, JobResult, Runner
from longtail.reproduce.markdown import Panel, as_markdown, signs_of, signs_sentence
from longtail.reproduce.methods import RecipeSetup, base_method, recipe_for
from longtail.reproduce.page import all_signs, page
from longtail.reproduce.papers import find_table, tables
from longtail.reproduce.sets import AvailableSet, available_sets, published_name
from longtail.reproduce.tables import Gain, planned, printed_gains, reproduced

SHARED = Path(os.environ.get("LONGTAIL_SHARED", Path(__file__).resolve().parents[3] / "shared"))
TEXTS = {
    "pw": "propensity-weighted-surrogates", "ranknet": "ranknet-taug", "pfastrexml": "pfastrexml", "glas": "glas",
    "xgrank": "xgrank",
}  # fmt: skip
BROKEN = {91.77}  # in the text of table 1 of GLaS it is cut in two
WANTED = {
    "pw": ["3", "4", "5"],
    "ranknet": ["2", "3", "4", "5", "6", "figure-1", "figure-2", "figure-5"],
    "pfastrexml": ["3", "4", "figure-1", "figure-2", "figure-3", "figure-4"],
    "glas": ["1", "2", "3", "4", "6"],
    "xgrank": ["3", "4", "5", "6", "figure-3"],
}


def run(*arguments):
    return CliRunner().invoke(program, [str(argument) for argument in arguments])


def test_every_table_is_there():
    for paper, numbers in WANTED.items():
        for number in numbers:
            assert f"{paper}-{number}" in tables()
    assert sum(len(table.rows) for table in tables().values()) > 350


def numbers_of(text):
    text = re.sub(r"(\d) \. (\d)", r"\1.\2", text.replace("\u2212", "-"))
    return [float(number) for number in re.findall(r"-?(?:\d+(?:\.\d+)?|\.\d+)", text)]


@pytest.mark.skipif(not (SHARED / "papers").is_dir(), reason="the papers' texts are not here")
@pytest.mark.parametrize("paper", list(TEXTS))
def test_numbers_are_those_of_the_texts(paper):
    """Each number that was typed occurs in the text at least as often as in the tables."""
    text = (SHARED / "papers" / f"{TEXTS[paper]}.txt").read_text(encoding="utf-8")
    typed = Counter(
        abs(float(value))
        for table in tables().values()
        if table.name == paper
        for row in table.rows
        for value in row.values.values()
    )
    missing = typed - Counter(map(abs, numbers_of(re.sub(r"(?<=\d),(?=\d{3})", "", text))))
    assert set(missing) <= BROKEN


@pytest.mark.skipif(not (SHARED / "papers").is_dir(), reason="the papers' texts are not here")
def test_rows_are_those_of_the_texts():
    """Where a paper prints a row in a line, its numbers stand there in their order."""
    text = (SHARED / "papers" / f"{TEXTS['pw']}.txt").read_text(encoding="utf-8")
    lines = [numbers_of(line) for line in text.splitlines()]
    for key in ("pw-3", "pw-4", "pw-5"):
        for row in find_table(key).rows:
            assert any(_in_order(list(row.values.values()), line) for line in lines), row


def _in_order(wanted, line):
    place = iter(line)
    return all(value in place for value in wanted)


def printed_columns(paper, metric):
    """A table of a text whose columns are methods: numbers by data set, method and metric, in lower case."""
    plain = re.compile(r"<[^>]*>|\$|\[\d+\]")
    lines = (SHARED / "papers" / f"{TEXTS[paper]}.txt").read_text(encoding="utf-8").splitlines()
    rows = [[plain.sub("", cell).strip() for cell in line.split("\t")] for line in lines]
    (start,) = [
        at
        for at, (head, row) in enumerate(pairwise(rows))
        if head[0].startswith("Dataset")
        and len(head) > 6
        and head[1] in ("Metric", "Metrics", f"{metric}@k")
        and row[1] == f"{metric}@1"
    ]
    methods, found, at = rows[start], {}, start + 1
    while len(rows[at]) > 2 and rows[at][1].startswith(f"{metric}@"):
        group = rows[at : at + 3]
        (data,) = [row[0] for row in group if len(row[0]) > 1]
        for row in group:
            for method, cell in zip(methods[2:], row[2:], strict=False):
                if re.fullmatch(r"[\d.]+", cell):
                    found[_key(data), _key(method), row[1]] = float(cell)
        at += 3
    return found


def _key(name):
    key = re.sub(r"[^a-z0-9+]", "", name.lower())
    return {"ours": "glas", "eurlex": "eurlex4k", "wiki500k": "wikipedia500k"}.get(key, key)


@pytest.mark.skipif(not (SHARED / "papers").is_dir(), reason="the papers' texts are not here")
@pytest.mark.parametrize("key", ["glas-3", "glas-4", "glas-6", "xgrank-3", "xgrank-5", "ranknet-4"])
def test_numbers_stand_in_their_columns(key):
    table = find_table(key)
    metric = table.metrics[0].partition("@")[0]
    typed = {
        (_key(row.data), _key(row.method), name): value for row in table.rows for name, value in row.values.items()
    }
    assert typed == printed_columns(table.name, metric)


@pytest.mark.skipif(not (SHARED / "data" / "README.md").is_file(), reason="the list of published results is not here")
def test_numbers_of_the_repository():
    text = (SHARED / "data" / "README.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "@1/3/5" in line]
    (head,) = [line for line in text.splitlines() if line.startswith("| data set, measure")]
    methods = [cell.strip() for cell in head.strip("|").split("|")][1:]
    table = find_table("repository-1")
    for what, *cells in rows:
        data, metric = what.split(" ")
        for method, cell in zip(methods, cells, strict=True):
            numbers = [float(part) for part in cell.split("/")] if cell != "-" else [None] * 3
            typed = [table.value(data.capitalize(), method, f"{metric.partition('@')[0]}@{k}") for k in (1, 3, 5)]
            assert typed == numbers, (data, method)


def test_some_numbers_by_eye():
    """Typed a second time, from the papers."""
    pw = find_table("pw-3")
    assert pw.value("Amazon-670K", "DiSMEC", "P@1") == 44.7
    assert pw.value("Wikipedia-500K", "PW-cb-DiSMEC", "PS gain %") == -5.8
    assert find_table("repository-1").value("Bibtex", "FastXML", "PSP@5") == 58.3


def test_gains_are_added_to_the_base():
    table = find_table("ranknet-2")
    base, gain = (
        next(row.values for row in table.rows if (row.data, row.method) == ("EURLex-4K", method))
        for method in ("Bonsai", "RankNet-Bonsai")
    )
    found = table.value("EURLex-4K", "RankNet-Bonsai", "PSP@1", "Bonsai")
    assert found == pytest.approx(base["PSP@1"] + gain["PSP@1 gain pp"])
    assert printed_gains(table, "RankNet-Bonsai", "Bonsai", "PSP@1")["EURLex-4K"] == gain["PSP@1 gain pp"]


def test_every_method_that_is_ours_exists():
    for table in tables().values():
        for method in table.methods:
            mine = recipe_for(method)
            if mine is not None:
                assert find(mine.recipe).name == mine.recipe
                plan_of(mine.recipe, mine.settings, JainPropensity())
            base = base_method(method, table.methods)
            assert base is None or base in table.methods
    assert recipe_for("SLEEC") is None
    assert recipe_for("PW-AttentionXML") == RecipeSetup("pw-attentionxml")
    assert recipe_for("X-GRank").is_network
    assert not recipe_for("GLaS").is_network


def test_what_is_no_table_of_numbers_has_an_experiment():
    for key, table in tables().items():
        if not table.rows:
            assert key in figures(), key


def test_signs_are_counted_by_pair():
    gains = [
        Gain("a", "PW", "plain", "PSP@1", 1.0, 0.5, 2, {"x": 0.5, "y": 1.0}),
        Gain("a", "PW", "plain", "PSP@3", -0.5, -1, 0.1, {"x": 0.1, "y": 0.2}),
        Gain("a", "PW", "plain", "P@1", -5.0, -6, -4, {"x": 1.0}),
        Gain("b", "PW", "plain", "PSP@1", -1.0, -2, 0.1, {"x": 0.5, "y": 1.0}),
        Gain("y", "PW", "plain", "PSP@1", -1.0, -2, -0.5, {"x": 0.5, "z": 0.5, "y": -1.0}),
        Gain("c", "PW", "plain", "PSP@1", 0.0, 0, 0, {"x": 0.5}),
        Gain("b", "new", "plain", "PSP@1", -1.0, -2, 0, {}),
    ]
    signs = signs_of(gains)
    found = [(sign.data, sign.agrees, sign.is_sure) for sign in signs]
    assert found == [("a", True, False), ("b", False, False), ("y", True, True), ("c", False, False)]
    assert signs[0].measured == pytest.approx(0.25)
    assert signs[0].expected == pytest.approx((0.75 + 0.15) / 2)
    assert signs_sentence(signs).startswith("2 of 4 pairs")
    assert "of the 1 whose intervals all exclude 0, 1." in signs_sentence(signs)
    lines = "\n".join(all_signs([replace(gain, method="PW-DiSMEC") for gain in gains[:4]]))
    assert "| `pw-dismec` | a | +0.25 | +0.45 | yes |" in lines
    assert "| `pw-dismec` | b | -1.00 | +0.75 | **no** |" in lines


def test_every_table_with_numbers_has_a_column_of_measured_ones():
    for key, table in tables().items():
        if table.rows and key not in figures():
            assert set(table.metrics) & {*METRICS, *COSTS}, key


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with a small data set under a published name and under another one."""
    data, path = datasets.load("debian-tags:train"), tmp_path_factory.mktemp("sets")
    order = np.random.default_rng(0).permutation(data.n_rows)
    for name, rows in (("eurlex-4k", order[:700]), ("mine", order[700:1400])):
        (path / name).mkdir()
        for part, some in (("train", rows[:500]), ("test", rows[500:])):
            texts = [data.texts[row] for row in some]
            save(Dataset(None, data.Y[some], texts=texts, label_names=data.label_names), path / name / f"{part}.jsonl")
    (path / "empty").mkdir()
    return path


def test_data_sets_are_found(place):
    sets = available_sets(place)
    assert list(sets) == ["debian-tags", "debian-depends", "EURLex-4K", "mine"]
    assert sets["mine"].has_texts
    assert published_name("Wiki10_31K") == "Wiki10-31K"
    assert sets["mine"].digest != sets["EURLex-4K"].digest


def test_a_table_from_the_command_line(place, tmp_path):
    options = ["--data", place, "--stand-ins", "mine", "--results", tmp_path / "kept", "--threads", 2]
    done = run("reproduce", "pw-3", *options, "--out", tmp_path / "pw-3.md", "--plot", tmp_path / "pw-3.svg")
    assert done.exit_code == 0, done.output
    text = (tmp_path / "pw-3.md").read_text()
    assert "| EURLex-4K (another split) | PW-DiSMEC | `pw-dismec` | " in text
    assert re.search(r"\| Amazon-670K \| DiSMEC \| .*44\.7 ", text)  # the paper's, where nothing was measured
    assert "| mine | `pw-cb-dismec` |" in text
    assert "Amazon-670K: " in text
    assert "pairs of method and data set have the paper's sign" in text
    assert "EURLex-4K: not the published split. It has 500 training rows" in text
    assert "tf-idf features of the texts" in text
    assert (tmp_path / "pw-3.svg").exists()
    before = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "kept").iterdir()}
    assert len(before) == 12  # two data sets, three recipes, figures and ranking
    again = run("reproduce", "pw-3", *options)
    assert again.exit_code == 0
    assert "are new" not in again.output
    assert {file.name: file.stat().st_mtime_ns for file in (tmp_path / "kept").iterdir()} == before


def test_failures_are_named_and_retried(place, tmp_path):
    runner = Runner(tmp_path / "kept", threads=1, limit=0.01)
    job = Job(available_sets(place)["mine"], RecipeSetup("dismec"))
    assert runner.run([job], lambda what: None) == {}
    assert "longer than" in runner.failed[job]
    broken = Runner(tmp_path / "kept", threads=1)
    wrong = Job(AvailableSet("mine", "nowhere.txt", "nowhere.txt"), RecipeSetup("dismec"))
    assert broken.run([wrong], lambda what: None) == {}
    assert "nowhere.txt" in broken.failed[wrong]
    table = find_table("pw-3")
    text = as_markdown(reproduced(table, {}, {}, False, []), broken.failed)
    assert "- dismec on mine: " in text


def test_what_has_not_run_is_named_where_nothing_is_to_be_trained(place, tmp_path):
    job = Job(available_sets(place)["mine"], RecipeSetup("popularity"))
    known = Runner(tmp_path / "kept", threads=1, cached_only=True)
    assert known.run([job], lambda name: None) == {}
    assert known.failed == {job: "has not been run"}
    assert set(Runner(tmp_path / "kept", threads=1).run([job], lambda name: None)) == {job}
    assert set(Runner(tmp_path / "kept", threads=1, cached_only=True).run([job], lambda name: None)) == {job}
    others = Runner(tmp_path / "kept", threads=2, cached_only=True)
    assert others.run([job], lambda name: None) == {}
    assert others.failed == {job: "has been run with --threads 1 only"}


def test_other_data_gives_other_keys(place, tmp_path):
    sets = available_sets(place)
    job = Job(sets["mine"], RecipeSetup("dismec"))
    assert job.key == Job(available_sets(place)["mine"], RecipeSetup("dismec", {})).key
    assert job.key != Job(sets["EURLex-4K"], RecipeSetup("dismec")).key
    assert job.key != Job(sets["mine"], RecipeSetup("dismec", {"C": 2})).key
    assert job.key != replace(job, task="recall").key
    elsewhere = replace(sets["mine"], name="Amazon-670K")
    assert elsewhere.digest == sets["mine"].digest
    assert job.key != Job(elsewhere, RecipeSetup("dismec")).key  # other propensities
    assert Runner(tmp_path, 1)._place(job) != Runner(tmp_path, 2)._place(job)


def test_tables_without_rankings_are_reported_too(place):
    """P@1 by another name, and what models take."""
    sets = {"mine": available_sets(place)["mine"]}
    for key, column in (("glas-1", "test accuracy %"), ("glas-2", "generalization gap %"), ("xgrank-6", "model GB")):
        table = find_table(key)
        mine = [recipe_for(method) for method in table.methods]
        results = {
            Job(sets["mine"], one): fake_result(Job(sets["mine"], one), place, column)
            for one in mine
            if one is not None
        }
        found = reproduced(table, sets, results, True, ["mine"])
        assert f" {column} " in as_markdown(found, {}), key
        assert "12.50" in as_markdown(found, {})


def fake_result(job, place, column):
    ranking = place / "ranking.npy"
    np.save(ranking, np.tile(np.arange(5, dtype=np.int32), (200, 1)))
    return JobResult(job, {column: 12.5, "labels": 10}, ranking)


def test_networks_run_only_where_they_are_wanted(place):
    sets, table = available_sets(place), find_table("xgrank-3")
    plain = {job.recipe.recipe for job in planned(table, sets, False, ["mine"])}
    assert plain == {"dismec", "parabel", "bonsai"}
    assert "xgrank" in {job.recipe.recipe for job in planned(table, sets, True, ["mine"])}
    assert "add --networks" in reproduced(table, sets, {}, False, ["mine"]).left_out["X-GRank"]


def test_the_discussion_of_a_page_is_kept():
    text = page([], [], {}, ["## more"], "<!-- discussion -->\nwhat I think\n<!-- end of discussion -->")
    assert "what I think" in text
    assert text.endswith("## more")


def test_figures_from_the_command_line(place, tmp_path):
    done = run("reproduce", "pfastrexml-figure-1", "--data", place, "--stand-ins", "mine", "--plot", tmp_path / "1.svg")
    assert done.exit_code == 0, done.output
    assert "have fewer than 5 rows" in done.stdout
    assert (tmp_path / "1.svg").exists()


def test_hidden_labels_and_recall_are_jobs_too(place, tmp_path):
    options = ["--data", place, "--stand-ins", "mine", "--results", tmp_path / "kept", "--threads", 2]
    hidden = run("reproduce", "pfastrexml-figure-3", *options)
    assert hidden.exit_code == 0, hidden.output
    assert "| % of the labels kept | `fastxml` | `pfastxml` |" in hidden.stdout
    assert "pfastxml with other propensities" in hidden.stdout
    retrieved = run("reproduce", "xgrank-figure-3", *options)
    assert retrieved.exit_code == 0, retrieved.output
    rows = re.findall(r"^\| (\d+) \| ([\d.]+) \| ([\d.]+) \|$", retrieved.stdout, re.MULTILINE)
    assert [int(row[0]) for row in rows] == [16, 32, 64, 128]
    for column in (1, 2):
        found = [float(row[column]) for row in rows]
        assert found == sorted(found)
        assert 20 < found[0] <= found[-1] <= 100


def test_a_data_set_has_its_published_propensities():
    published = AvailableSet("LF-Amazon-131K", "train.txt", "test.txt").propensity
    assert (published.a, published.b) == (0.6, 2.6)
    mine = AvailableSet("mine", "train.txt", "test.txt").propensity
    assert (mine.a, mine.b) == (0.55, 1.5)


@pytest.mark.parametrize("recipe", ["word-bag", "ranknet+word-bag"])
def test_a_network_inside_a_wrapper_counts_its_own_epochs(recipe, place):
    pytest.importorskip("torch")
    data = available_sets(place)["mine"]
    train, test = (part.take(range(60)) for part in data.read())
    settings = {"learner.epochs" if "+" in recipe else "epochs": 3}
    order = {"recipe": recipe, "settings": settings, "seed": 0, "threads": 1}
    figures, _ = job.ranking(order, data, train, test)
    assert figures["train ms/sample"] == pytest.approx(1e3 * figures["train_seconds"] / 60 / 3)


def test_the_markdown_appears_only_when_it_is_complete(place, tmp_path, monkeypatch):
    out = tmp_path / "page.md"
    out.write_text("before")
    monkeypatch.setattr("os.replace", Mock(side_effect=KeyboardInterrupt))
    arguments = ["reproduce", "pfastrexml-figure-1", "--data", place, "--stand-ins", "mine", "--out", out]
    assert run(*arguments).exit_code == 130
    assert out.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["page.md"]


def test_a_panel_is_a_table_and_a_plot():
    curves = {"a": [(1.0, 0.5), None], "b": [(1200.0, None), (0.25, None)]}
    panel = Panel("mine, many", "place", ["x", "y"], "%", curves)
    assert panel.lines()[2:6] == [
        "| place | a | b |",
        "|---|---|---|",
        "| x | 1.00 ± 0.50 | 1,200 |",
        "| y | - | 0.25 |",
    ]
    drawn = panels_beside([panel] * 4)
    assert len(drawn.axes) == 4


def test_sweeps_stay_away_from_large_data_sets_that_nobody_named(place):
    sets, table = available_sets(place), find_table("glas-1")
    assert sets["mine"].n_rows == 500
    assert sets["debian-depends"].n_rows == 40_015
    jobs = planned(table, sets, False, ["mine", "debian-depends"], ["mine"])
    assert {job.data.name for job in jobs if job.is_sweep} == {"mine"}
    assert "debian-depends" in {job.data.name for job in jobs}
    named = planned(table, sets, False, ["debian-depends"])
    assert any(job.is_sweep for job in named)


def test_what_was_typed_wrong_in_a_paper_is_no_gain():
    gains = printed_gains(find_table("pw-3"), "PW-DiSMEC", "DiSMEC", "nDCG@3")
    assert "Wikipedia-500K" not in gains
    assert max(gains.values()) < 5
    assert "Wikipedia-500K" in printed_gains(find_table("pw-3"), "PW-DiSMEC", "DiSMEC", "PSP@1")


def test_nothing_that_runs_is_a_mistake(tmp_path):
    for part in ("train", "test"):
        (tmp_path / "sets" / "bad").mkdir(parents=True, exist_ok=True)
        (tmp_path / "sets" / "bad" / f"{part}.jsonl").write_text("")
    options = ["--stand-ins", "bad", "--results", tmp_path / "kept"]
    done = run("reproduce", "pw-3", "--data", tmp_path / "sets", *options)
    assert done.exit_code == 2, done.output
    assert "dismec on bad: " in done.stdout
    flat = run("reproduce", "pw-3", "--data", tmp_path / "sets" / "bad", *options)
    assert flat.exit_code == 2
    assert "into a folder" in flat.output


def test_figures_say_what_is_missing(place):
    done = run("reproduce", "xgrank-figure-3", "--data", place, "--stand-ins", "mine", "--limit", "0.01s")
    assert "xgrank: a network: add --networks." in done.stdout
    assert "Wikipedia-500K: " in done.stdout
    assert "| Wikipedia-500K | X-GRank | 92.18 |" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["PW-33"], "pw-3"),
        (["pw-33"], "pw-3"),
        (["pw-3", "--stand-ins", "nothing"], "must be available"),
        (["pw-3", "--data", "nowhere"], "nowhere: is not a directory"),
        (["pw-3", "--limit", "long"], "90s, 10m or 2h"),
    ],
)
def test_wrong_options_are_a_sentence(arguments, message):
    done = run("reproduce", *arguments)
    assert done.exit_code == 2, done.output
    assert message in done.output


def test_all_tables_are_listed():
    done = run("reproduce", "--list")
    assert all(key in done.stdout for key in tables())
    with pytest.raises(ParameterError, match="pw-3"):
        find_table("pw3")
