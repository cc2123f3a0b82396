"""`longtail tree`: the same trees as text, JSON, a graph and a page, and names that try to break out of each."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import longtail.learners
from longtail.cli.tree import tree
from longtail.data.label_index import LabelIndex
from longtail.errors import InputError, ModelError, ParameterError
from longtail.features import Tfidf
from longtail.learners import Popularity, TextLearner
from longtail.learners.label_trees.forest import Branches, LabelForest
from longtail.store import Model, register
from longtail.store.registry import name_of
from longtail.tree_view import Outline, as_json, dot, leading_to, lines, outline, page, top_of
from longtail.tree_view.page import contents
from longtail.tree_view.text import plain

NAMES = ["ship", "tree", "bird & bee", "</script><b>", 'a "quoted\\N" one', "[red]\x1b[31m\n", "été", "unseen"]
COUNTS = [50, 40, 40, 30, 20, 10, 5, 0]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

program = typer.Typer()
program.command()(tree)


@register
class HandMadeTree(Popularity):
    """A learner with explicit trees."""

    _stored = ("forest_",)


try:
    name_of(LabelForest)
except ModelError:
    register(LabelForest)


def two_trees():
    """Numbered level by level: 0 over 2 and 3, 3 over 6; and 1 over 4 and 5. The ship stands under 2, 3 and 4."""
    first = Branches(np.array([-1, 0, 0, 2]), np.array([1, 1, 1, 2, 3, 3, 3, 3]), np.array([0, 1, 2, 0, 3, 4, 5, 6]))
    second = Branches(np.array([-1, 0, 0]), np.array([1, 1, 1, 1, 2, 2, 2]), np.arange(7))
    return LabelForest.from_branches([first, second])


def hand_made(forest, counts):
    Y = sp.csc_array((np.ones(sum(counts)), np.concatenate([np.arange(n) for n in counts]), np.cumsum([0, *counts])))
    Y.resize(max(counts), len(counts))
    learner = HandMadeTree().fit(np.ones((max(counts), 1)), Y.tocsr())
    learner.forest_ = forest
    return learner


@pytest.fixture(scope="module")
def seen():
    return Outline(two_trees(), np.array(COUNTS), LabelIndex(NAMES))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "<model>"
    Model(hand_made(two_trees(), COUNTS), label_names=NAMES).save(path)
    return path


def run(*arguments):
    return CliRunner().invoke(program, [str(argument) for argument in arguments])


def shown(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


class TestOutline:
    def test_numbers_by_hand(self, seen):
        assert seen.sizes.tolist() == [7, 7, 3, 5, 4, 3, 4]
        assert seen.recorded.tolist() == [195, 195, 130, 115, 160, 35, 65]
        assert seen.leading.tolist()[:4] == [[0, 1, 2], [0, 1, 2], [0, 1, 2], [0, 3, 4]]
        assert seen.forest.trees.tolist() == [0, 1, 0, 0, 1, 1, 0]
        assert seen.holders(0) == [2, 3, 4]
        assert seen.path(6) == [0, 3, 6]
        assert str(seen.summary) == (
            "2 trees, 7 nodes, 3 levels, 7 labels, 1 more than once in a tree, 1 not in any tree, "
            "3 to 4 labels per leaf, median 3.5"
        )

    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def test_any_forest(self, data):
        n_labels = data.draw(st.integers(1, 12))
        trees = []
        for _ in range(data.draw(st.integers(1, 3))):
            size = data.draw(st.integers(1, 9))
            parents = [-1, *(data.draw(st.integers(0, node - 1)) for node in range(1, size))]
            places = data.draw(st.sets(st.tuples(st.integers(0, size - 1), st.integers(0, n_labels - 1)), min_size=1))
            nodes, labels = zip(*sorted(places), strict=True)
            trees.append(Branches(np.array(parents), np.array(nodes), np.array(labels)))
        forest = LabelForest.from_branches(trees)
        counts = np.array(data.draw(st.lists(st.integers(0, 5), min_size=n_labels, max_size=n_labels)))
        seen = Outline(forest, counts, LabelIndex(n_labels=len(counts)))
        starts = forest.level_starts.tolist()
        for first, last in pairwise(starts):
            members = forest.members(n_labels, first, last).toarray().astype(bool)
            for node in range(first, last):
                under = np.flatnonzero(members[:, node - first]).tolist()
                assert seen.sizes[node] == len(under)
                assert seen.recorded[node] == counts[under].sum()
                best = sorted(under, key=lambda label: (-counts[label], label))[:3]
                assert [label for label in seen.leading[node] if label >= 0] == best
        whole = [as_json(seen, top_of(seen, root)) for root in range(forest.n_trees_)]
        assert sorted(held(whole)) == sorted(zip(forest.holders.tolist(), forest.labels_.tolist(), strict=True))
        assert sorted(held_on_the_page(contents(seen, range(forest.n_trees_)))) == sorted(
            (node, str(label)) for node, label in held(whole)
        )


def held(branches):
    """Node and label of every place in nested JSON, whose sums are checked on the way."""
    for branch in branches:
        assert branch["labels_left_out"] == branch["children_left_out"] == 0
        yield from ((branch["node"], one["label"]) for one in branch["labels"])
        yield from held(branch["children"])


def held_on_the_page(found):
    """The same from the flat lists of the page, read as the page reads them."""
    starts = np.cumsum([0, *found["holds"]])
    for at, node in enumerate(found["nodes"]):
        for label in found["labels"][starts[at] : starts[at + 1]]:
            yield node, found["names"][label]


class TestText:
    def test_one_tree(self, model):
        assert shown(model, "--tree", 0, "--labels", 2).splitlines()[2:] == [
            "node 0: ship · tree · bird & bee (7 labels, recorded 195 times)",
            "├── node 2: ship · tree · bird & bee (3 labels, recorded 130 times)",
            "│   ├── ship 50",
            "│   ├── tree 40",
            "│   └── ... 1 more",
            '└── node 3: ship · </script><b> · a "quoted\\N" one (5 labels, recorded 115 times)',
            "    ├── ship 50",
            '    └── node 6: </script><b> · a "quoted\\N" one · [red]\\x1b[31m\\n (4 labels, recorded 65 times)',
            "        ├── </script><b> 30",
            '        ├── a "quoted\\N" one 20',
            "        └── ... 2 more",
        ]

    def test_depth_and_nodes_cut(self, model):
        assert shown(model, "--depth", 0).splitlines()[2:] == [
            "node 0: ship · tree · bird & bee (7 labels, recorded 195 times, 2 nodes below)",
            "",
            "node 1: ship · tree · bird & bee (7 labels, recorded 195 times, 2 nodes below)",
        ]
        assert shown(model, "--node", 1, "--nodes", 1, "--labels", 0).splitlines()[3:] == [
            "├── node 4: ship · tree · bird & bee (4 labels, recorded 160 times)",
            "└── ... 1 node more",
        ]

    def test_ways_to_a_label(self, model, seen):
        drawn = shown(model, "--label", "ship").splitlines()
        assert [line for line in drawn if "node " in line and "trees" not in line] == [
            "node 0: ship · tree · bird & bee (7 labels, recorded 195 times)",
            "├── node 2: ship · tree · bird & bee (3 labels, recorded 130 times)",
            '└── node 3: ship · </script><b> · a "quoted\\N" one (5 labels, recorded 115 times, 1 node below)',
            "node 1: ship · tree · bird & bee (7 labels, recorded 195 times)",
            "└── node 4: ship · tree · bird & bee (4 labels, recorded 160 times)",
        ]
        assert shown(model, "--label", "3", "--node", 3).count("node 6") == 1
        assert leading_to(seen, 5, [0]) is None

    def test_names_stay_on_their_line_and_harmless(self, seen):
        assert plain("a\x1b[2J\u202eb\u2028c\ud800") == "a\\x1b[2J\\u202eb\\u2028c\\ud800"
        assert plain("été 東京 \u200d") == "été 東京 \u200d"
        for line in lines(seen, top_of(seen, 0)):
            assert line.isprintable()


class TestJson:
    def test_is_whole_unless_cut(self, model):
        found = json.loads(shown(model, "--json"))
        assert found["summary"]["trees"] == 2
        assert found["summary"]["median_leaf"] == 3.5
        root = found["trees"][0]
        assert (root["node"], root["name"], root["n_labels"]) == (0, "ship · tree · bird & bee", 7)
        assert root["children"][0]["labels"][1] == {"label": 1, "name": "tree", "training_rows": 40}
        assert [one["name"] for one in root["children"][1]["children"][0]["labels"]] == NAMES[3:7]
        cut = json.loads(shown(model, "--json", "--depth", 1, "--labels", 1))["trees"][0]
        assert [child["labels_left_out"] for child in cut["children"]] == [2, 0]
        assert [child["children_left_out"] for child in cut["children"]] == [0, 1]

    def test_ways_and_files_beside_it(self, model, tmp_path):
        found = json.loads(shown(model, "--json", "--label", "été", "--html", tmp_path / "a.html"))
        assert [way["node"] for way in found["trees"]] == [0, 1]
        assert (tmp_path / "a.html").exists()


STRING = r'"((?:[^"\\]|\\.)*)"'
GRAPH = re.compile(rf"\s*(?:(\w+) \[label={STRING}(?:, [\w]+=(?:{STRING}|\w+))*\];|(\w+) -> (\w+);)")


def read_graph(text):
    """Boxes with their lines, as Graphviz would read them, and edges."""
    inside = re.fullmatch(r"digraph labels \{\n(?:  (?:graph|node|edge) \[[^\]]*\];\n)+(.*)\}\n", text, re.DOTALL)[1]
    boxes, edges, at = {}, set(), 0
    while at < len(inside.rstrip()):
        found = GRAPH.match(inside, at)
        assert found, inside[at : at + 80]
        at = found.end()
        if found[1]:
            rows = re.findall(r"((?:[^\\]|\\[\\\"])*)\\[nl]", found[2])
            boxes[found[1]] = [re.sub(r"\\(.)", r"\1", row).replace("&amp;", "&") for row in rows]
        else:
            edges.add((found[4], found[5]))
    return boxes, edges


class TestDot:
    def test_reads_back(self, seen):
        boxes, edges = read_graph(dot(seen, [top_of(seen, 0), top_of(seen, 1)]))
        assert boxes["n6_labels"] == [
            "</script><b> (30)",
            'a "quoted\\N" one (20)',
            "[red]\\x1b[31m\\n (10)",
            "été (5)",
        ]
        assert boxes["n2"] == ["ship · tree · bird & bee", "node 2: 3 labels, recorded 130 times"]
        nodes = {(f"n{parent}", f"n{child}") for parent, child in [(0, 2), (0, 3), (1, 4), (1, 5), (3, 6)]}
        assert edges == nodes | {(f"n{node}", f"n{node}_labels") for node in (2, 3, 4, 5, 6)}

    def test_is_written_and_cut(self, model, tmp_path):
        result = run(model, "--dot", tmp_path / "a.dot", "--depth", 1)
        assert result.exit_code == 0
        assert result.stdout.startswith("2 trees")
        assert "node" not in result.stdout.split("\n", 1)[1]
        boxes, _ = read_graph((tmp_path / "a.dot").read_text())
        assert "n6" not in boxes
        assert boxes["n3"][1].endswith("1 node below")


class Scripts(HTMLParser):
    """Tags and attributes of a page, and what stands in its scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.scripts = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *attribute) for attribute in attrs]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.tags and self.tags[-1] == "script":
            self.scripts[-1] += data


class TestPage:
    def test_names_stay_data(self, seen):
        read = Scripts(page(seen, "<i>model</i>"))
        assert read.tags.count("script") == 2
        assert "i" not in read.tags
        found = json.loads(read.scripts[0])
        assert found["names"] == NAMES[:7]
        assert found["counts"] == COUNTS[:7]
        assert sorted(held_on_the_page(found)) == sorted(
            (node, NAMES[label]) for node, label in zip(seen.forest.holders, seen.forest.labels_, strict=True)
        )

    def test_needs_nothing_else(self, seen):
        read = Scripts(page(seen, "model"))
        assert not [one for one in read.attributes if one[1] in ("src", "href", "action")]
        assert not re.search(r"@import|url\(|fetch\(|innerHTML", page(seen, "model"))

    def test_part_of_a_tree(self, model, seen, tmp_path):
        result = run(model, "--node", 3, "--label", "été", "--html", tmp_path / "a.html")
        assert result.exit_code == 0
        assert "Wrote" in result.stderr
        assert "<title>longtail label tree: &lt;model&gt;</title>" in (tmp_path / "a.html").read_text()
        found = json.loads(Scripts((tmp_path / "a.html").read_text()).scripts[0])
        assert (found["nodes"], found["begins"], found["children"], found["holds"]) == ([3, 6], 1, [1, 0], [1, 4])
        assert [found["names"][label] for label in found["open"]] == ["été"]
        with pytest.raises(ParameterError, match="one level"):
            page(seen, "model", nodes=[0, 3])

    @pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: chromium")
    def test_in_a_browser(self, tmp_path):
        """A wide tree as well: 1 root, 450 leaves of one label and one of 650."""
        n_labels = 1100
        parents = np.array([-1, *[0] * 451])
        holders = np.concatenate([np.arange(1, 451), np.full(650, 451)])
        wide = Branches(parents, holders, np.arange(n_labels))
        forest = LabelForest.from_branches([*trees_of_two(), wide])
        names = [*NAMES[:7], *(f"label {number}" for number in range(7, n_labels))]
        text = page(Outline(forest, np.arange(n_labels)[::-1], LabelIndex(names)), "wide")
        path = tmp_path / "page.html"
        path.write_text(text.replace("</body>", f"<script>{DRIVER}</script></body>"))
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--dump-dom"]
        command += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=20000", path.as_uri()]
        dumped = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        found = json.loads(re.search(r'<pre id="found">(.*?)</pre>', dumped, re.DOTALL)[1])
        assert found == {
            "at first": ["node 0", "node 3", "node 4", "node 1", "node 2"],
            "right opens": "true",
            "right goes in": "ship (1,099)",
            "down": "tree (1,098)",
            "left goes up": "node 3",
            "left closes": "false",
            "elements before search": True,
            "results": ["label 1099 (0)"],
            "found": "label 1099 (0)",
            "focused": "label 1099 (0)",
            "open ways": ["node 0", "node 2", "node 457"],
            "few elements": True,
            "accents": ["été (1,093)", "tree 0, node 458", "tree 1, node 6", "tree 2, node 13"],
            "places": ["ship (1,099)", "tree 0, node 3", "tree 0, node 4", "tree 1, node 5", "tree 2, node 7"],
            "none": "No label has this in its name.",
        }


def trees_of_two():
    """The two trees of `two_trees` once more, to stand beside a third: their nodes are renumbered."""
    first = Branches(np.array([-1, 0, 0, 2]), np.array([1, 1, 1, 2, 3, 3, 3, 3]), np.array([0, 1, 2, 0, 3, 4, 5, 6]))
    second = Branches(np.array([-1, 0, 0]), np.array([1, 1, 1, 1, 2, 2, 2]), np.arange(7))
    return [first, second]


DRIVER = """
setTimeout(async () => {
  const found = {}, tree = document.getElementById("tree"), wanted = document.getElementById("wanted");
  const key = name => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: name, bubbles: true}));
  const number = row => row.querySelector(".facts span").textContent.replace(/^tree \\\\d+, /, "");
  const said = line => line.classList.contains("row") ? number(line) : line.textContent;
  const type = async text => {
    wanted.value = text;
    wanted.dispatchEvent(new Event("input"));
    await new Promise(done => setTimeout(done, 300));
    return [...document.querySelectorAll("#results button")].map(one => one.textContent);
  };
  found["at first"] = [...tree.querySelectorAll(".row")].map(number);
  const row = [...tree.querySelectorAll(".row")][1];
  row.focus();
  key("ArrowRight"); found["right opens"] = row.getAttribute("aria-expanded");
  key("ArrowRight"); found["right goes in"] = said(document.activeElement);
  key("ArrowDown"); found["down"] = said(document.activeElement);
  key("ArrowLeft"); found["left goes up"] = said(document.activeElement);
  key("ArrowLeft"); found["left closes"] = row.getAttribute("aria-expanded");
  found["elements before search"] = document.querySelectorAll("*").length < 200;
  found["results"] = await type("LABEL 1099");
  wanted.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", bubbles: true}));
  found["found"] = [...document.querySelectorAll(".found")].map(one => one.textContent).join();
  found["focused"] = document.activeElement.textContent;
  found["open ways"] = [...tree.querySelectorAll('.row[aria-expanded="true"]')].map(number);
  found["few elements"] = document.querySelectorAll("*").length < 6000;
  found["accents"] = await type("ete");
  found["places"] = await type("ship");
  await type("nothing like it");
  found["none"] = document.getElementById("said").textContent;
  const shown = document.createElement("pre");
  shown.id = "found";
  shown.textContent = JSON.stringify(found);
  document.body.append(shown);
}, 100);
""".replace("\\\\", "\\")


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--tree", "2"], "0 to 1"),
            (["--node", "7"], "0 to 6"),
            (["--tree", "1", "--node", "3"], "is in tree 0"),
            (["--label", "shp"], "did you mean ship?"),
            (["--label", "unseen"], "is not in any tree"),
            (["--label", "été", "--node", "2"], "is not under that node"),
            (["--label", "ship", "--depth", "1"], "leave --depth"),
            (["--html", "tree.txt"], "must end in .html"),
            (["--dot", "tree.html"], "must end in .dot"),
            (["--dot", "nowhere/tree.dot"], "is not a directory"),
        ],
    )
    def test_are_named(self, model, arguments, message, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        result = run(model, *arguments)
        assert result.exit_code == 2
        assert message in " ".join(result.stderr.split())
        assert not result.stdout
        assert not list(tmp_path.iterdir())

    def test_a_model_without_a_tree(self, tmp_path):
        Model(Popularity().fit([[1], [2]], [[1], [1]])).save(tmp_path / "model")
        result = run(tmp_path / "model")
        assert result.exit_code == 2
        said = " ".join(result.stderr.split())
        assert "Popularity has no label tree to show: give a model of LabelTree" in said

    def test_an_older_page_stays_when_a_new_one_fails(self, model, tmp_path):
        (tmp_path / "a.html").write_text("old")
        assert run(model, "--html", tmp_path / "a.html", "--label", "shp").exit_code == 2
        assert (tmp_path / "a.html").read_text() == "old"
        assert [path.name for path in tmp_path.iterdir()] == ["a.html"]


def test_a_tree_under_text_features():
    texts = TextLearner(features=Tfidf(min_df=1), learner=HandMadeTree()).fit(["one", "two"], np.ones((2, 8), int))
    texts.learner_.forest_ = two_trees()
    assert outline(Model(texts)).label_counts.tolist() == [2] * 8
    plain_learner = TextLearner(features=Tfidf(min_df=1), learner=Popularity())
    with pytest.raises(InputError, match="Popularity has no label tree"):
        outline(Model(plain_learner.fit(["one", "two"], [[1], [0]])))


@pytest.mark.skipif(not hasattr(longtail.learners, "LabelTree"), reason="needs the learner LabelTree")
def test_a_learnt_tree(tmp_path):
    rng = np.random.default_rng(0)
    Y = np.eye(40, dtype=int)[rng.integers(0, 40, 400)]
    X = Y @ rng.normal(size=(40, 10)) + rng.normal(scale=0.1, size=(400, 10))
    Model(longtail.learners.LabelTree().fit(X, Y)).save(tmp_path / "model")
    found = json.loads(shown(tmp_path / "model", "--json"))
    assert {label for _, label in held(found["trees"])} == set(np.flatnonzero(Y.sum(axis=0)).tolist())
    assert "node 0" in shown(tmp_path / "model", "--label", 3)
