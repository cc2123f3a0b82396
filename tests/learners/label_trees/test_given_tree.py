"""Trees from pairs: small ones by hand, and what holds for all."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail import LabelTree
from longtail.data import Hierarchy, read_hierarchy
from longtail.errors import InputError
from longtail.learners.label_trees.forest import Branches, LabelForest
from longtail.learners.label_trees.given import branches_from_pairs
from tests.learners.contract import assert_same, small_data


def none_left(labels):
    pytest.fail(f"there should be no other labels, got {labels}")


def flat(labels):
    """All in one node."""
    assert labels.dtype == np.int32
    return Branches(np.array([-1], np.int32), np.zeros(len(labels), np.int32), labels)


def two_levels(labels):
    """A root with one node for each label."""
    parents = np.array([-1] + [0] * len(labels), np.int32)
    return Branches(parents, np.arange(1, len(labels) + 1, dtype=np.int32), labels)


def shape(tree, node=0):
    """Write a tree as (labels, nodes) with both sorted, so that numbers of nodes don't matter."""
    labels = sorted(label for label, holder in zip(tree.labels.tolist(), tree.nodes, strict=True) if holder == node)
    below = sorted(shape(tree, child) for child in np.flatnonzero(tree.parents == node).tolist())
    return (labels, below)


@pytest.mark.parametrize(
    ("pairs", "labels", "expected"),
    [
        ([(0, "a"), (1, "a")], [0, 1], ([0, 1], [])),
        ([(0, "a"), (1, "b"), ("a", "r"), ("b", "r")], [0, 1], ([], [([0], []), ([1], [])])),
        ([(0, "a"), (1, "b")], [0, 1], ([], [([0], []), ([1], [])])),  # two tops
        ([(0, "a"), (0, "b"), (1, "a")], [0, 1], ([], [([0], []), ([0, 1], [])])),  # a label under both parents
        ([(0, "a"), (0, "a")], [0], ([0], [])),  # a pair that stands twice
        ([(0, 1), (1, "r"), (2, "r")], [0, 1, 2], ([2], [([0, 1], [])])),  # 1 stands under its own node
        ([(0, 1), (1, "r"), (2, "r")], [1, 2], ([1, 2], [])),  # without 0, there is nothing under 1
        ([(0, 1), (1, "r"), (2, "r")], [0, 2], ([2], [([0], [])])),  # 1 is a concept like any other
        ([(0, 1)], [0, 1], ([0, 1], [])),  # the top is a label
        ([(0, 1)], [1], ([1], [])),  # a label with nothing above or below
        ([(0, 1), (2, "a"), (2, "b")], [1, 2], ([1], [([2], []), ([2], [])])),
        ([(0, "a"), ("a", "p"), ("a", "q"), (1, "q"), ("q", "r"), ("p", "r")], [0, 1], ([], [([0], []), ([1], [])])),
        ([(0, "a"), ("a", "b"), ("b", "c"), ("c", "d")], [0], ([0], [])),  # a chain is one node
        ([(0, "a"), ("a", 5), (5, "c"), (1, "c")], [0, 1], ([1], [([0], [])])),  # 5 and a are one node
        ([(0, "a"), ("a", 5), (5, "c"), (1, "c")], [0, 1, 5], ([1], [([5], [([0], [])])])),
        ([(0, "a"), ("x", "a"), ("y", "x"), ("a", "r"), ("z", "r")], [0], ([0], [])),  # nothing under x, y and z
        ([(0, 3), (3, 1), (3, 2), (1, "r"), (2, "r")], [0, 1, 2, 3], ([2], [([1], [([0, 3], [])])])),
        # 3 is a node and goes under 1 alone, so 2 has nothing under it and is a mere label
    ],
)
def test_golden(pairs, labels, expected):
    tree = branches_from_pairs(pairs, labels, none_left)
    assert shape(tree) == expected
    assert all(part.dtype == np.int32 for part in tree)


@pytest.mark.parametrize(
    ("pairs", "labels", "expected"),
    [
        ([(0, "a"), (1, "a")], [0, 1, 7, 5], ([0, 1], [([5, 7], [])])),
        ([(0, "a"), (1, "b")], [0, 1, 7], ([], [([0], []), ([1], []), ([7], [])])),
        ([(0, "a"), ("a", "r")], [0, 3], ([], [([0], []), ([3], [])])),  # r stays, with two nodes under it
        ([(0, "a"), ("a", "b"), ("b", "r")], [0, 3], ([], [([0], []), ([3], [])])),
        ([(0, 1)], [1, 3], ([1], [([3], [])])),
    ],
)
def test_others_hang_under_the_root(pairs, labels, expected):
    assert shape(branches_from_pairs(pairs, labels, flat)) == expected


def test_nodes_of_others():
    tree = branches_from_pairs([(0, "a"), (1, "b")], [4, 1, 0, 9], two_levels)
    assert shape(tree) == ([], [([], [([4], []), ([9], [])]), ([0], []), ([1], [])])


@pytest.mark.parametrize("pairs", [[], [("a", "b")], [(7, "b"), (8, 7)]])
def test_no_pair_with_a_label(pairs):
    assert shape(branches_from_pairs(pairs, [0, 1], two_levels)) == ([], [([0], []), ([1], [])])


def test_pairs_of_an_array():
    tree = branches_from_pairs(np.array([[0, 2], [1, 2]]), np.array([0, 1]), none_left)
    assert shape(tree) == ([0, 1], [])


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([(0, "a"), ("a", "b"), ("b", "a")], "contains a cycle, 'a' under 'b' under 'a': remove one of these pairs."),
        ([(1, 1)], "contains a cycle, 1 under 1:"),
        ([(i, (i + 1) % 500) for i in range(500)], "0 under 1 under 2 under 3 under 4 under 5 under 6 under ...:"),
        ([(0, "a"), (-1, "a")], "Pair 1 of the hierarchy is (-1, 'a'), and labels have ids from 0 to 499"),
        ([(0, 500)], "Pair 0 of the hierarchy is (0, 500), and labels have ids from 0 to 499"),
        ([(0, 1.5)], "Pair 0 of the hierarchy is (0, 1.5). The hierarchy must be pairs"),
        ([(0, True)], "is (0, True). The"),
        ([(0, None)], "is (0, None). The"),
        ([(0, 1, 2)], "Pair 0 of the hierarchy is (0, 1, 2). The hierarchy must be pairs (child, parent)"),
        (["ab"], "is 'ab'. The"),
        ([3], "is 3. The"),
        ([list(range(1000))], "15, 16...."),
    ],
)
def test_mistakes(pairs, message):
    with pytest.raises(InputError) as caught:
        branches_from_pairs(pairs, [0, 1], flat, n_labels=500)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


def test_ids_may_be_of_any_size_without_counts():
    assert shape(branches_from_pairs([(0, 10**12)], [0], none_left)) == ([0], [])
    with pytest.raises(InputError, match="of at least 0"):
        branches_from_pairs([(-3, "a")], [0], flat)


@st.composite
def hierarchies(draw):
    """Concepts each of which may stand under any later one; some of them are labels."""
    n = draw(st.integers(2, 14))
    labels = draw(st.permutations(range(n)))
    concepts = [labels[i] if draw(st.booleans()) else f"c{i}" for i in range(n)]
    pairs = [
        (concepts[i], concepts[draw(st.integers(i + 1, n - 1))])
        for i in draw(st.lists(st.integers(0, n - 2), max_size=25))
    ]
    return pairs, draw(st.sets(st.integers(0, n + 3), min_size=1))


@settings(max_examples=300, deadline=None)
@given(hierarchies())
def test_what_holds_for_all(case):
    pairs, labels = case
    mentioned = {concept for pair in pairs for concept in pair}
    asked = []

    def rest(others):
        asked.extend(others.tolist())
        return two_levels(others)

    tree = branches_from_pairs(pairs, sorted(labels), rest)
    assert asked == sorted(labels - mentioned)
    assert {*tree.labels.tolist()} == labels
    assert tree.parents[0] == -1
    assert all(0 <= parent < node for node, parent in enumerate(tree.parents.tolist()) if node)
    assert len({*zip(tree.nodes.tolist(), tree.labels.tolist(), strict=True)}) == len(tree.labels)
    assert {*tree.parents[1:].tolist(), *tree.nodes.tolist()} == {*range(len(tree.parents))}  # no node is empty
    assert LabelForest.from_branches([tree]).n_nodes == len(tree.parents)
    if not asked:
        children = np.bincount(tree.parents[1:], minlength=len(tree.parents))
        held = np.bincount(tree.nodes, minlength=len(tree.parents))
        assert not ((children == 1) & (held == 0)).any()
    for label in labels & mentioned:
        times = tree.labels.tolist().count(label)
        parents = {parent for child, parent in pairs if child == label}
        assert 1 <= times <= max(len(parents), 1)


@settings(max_examples=100, deadline=None)
@given(hierarchies())
def test_labels_stand_where_the_pairs_have_them(case):
    """Who is in a node with the concept's labels is a descendant of it: no node mixes what the pairs keep apart."""
    pairs, labels = case
    labels &= {concept for pair in pairs for concept in pair}
    if not labels:
        return
    above: dict = {}
    for child, parent in pairs:
        above.setdefault(child, set()).add(parent)

    def ancestors(concept):
        found = {concept}
        for parent in above.get(concept, ()):
            found |= ancestors(parent)
        return found

    tree = branches_from_pairs(pairs, sorted(labels), none_left)
    for node in range(1, len(tree.parents)):
        under, waiting = set(), [node]
        while waiting:
            one = waiting.pop()
            under |= {*tree.labels[tree.nodes == one].tolist()}
            waiting += np.flatnonzero(tree.parents == one).tolist()
        assert set.intersection(*(ancestors(label) for label in under))


def test_a_label_of_two_concepts_stands_under_both(tmp_path):
    """Mercury is a metal, and a planet with something under it."""
    path = tmp_path / "things.json"
    metals = {"name": "metals", "children": [{"id": 1, "name": "Mercury"}, "gold"]}
    planets = {"name": "planets", "children": [{"id": 2, "name": "Mercury", "children": ["craters"]}, "Mars"]}
    path.write_text(json.dumps([metals, planets]))
    pairs = read_hierarchy(path).pairs(["Mercury", "gold", "Mars", "craters"])
    tree = branches_from_pairs(pairs, range(4), none_left, n_labels=4)
    assert shape(tree) == ([], [([0, 1], []), ([2], [([0, 3], [])])])
    X = np.eye(4, dtype=np.float32)
    learner = LabelTree(tree=pairs, precision="float32").fit(X, X)
    assert learner.predict_topk(X, 1).labels.ravel().tolist() == [0, 1, 2, 3]


def test_from_a_file_to_a_forest(tmp_path):
    path = tmp_path / "towns.csv"
    path.write_text("Rome,Italy\nVenice,Italy\nItaly,Europe\nParis,France\nFrance,Europe\n")
    names = ["paris", "venice", "rome", "italy", "cats"]
    tree = branches_from_pairs(read_hierarchy(path).pairs(names), range(5), flat, n_labels=5)
    assert shape(tree) == ([], [([0], []), ([1, 2, 3], []), ([4], [])])
    assert LabelForest.from_branches([tree]).n_levels == 2


def test_a_hierarchy_of_label_ids_is_a_tree_as_it_is():
    X, Y = small_data()
    n_labels = Y.shape[1]
    names = (*map(str, range(n_labels)), "even", "odd", "all")
    pairs = [(label, n_labels + label % 2) for label in range(n_labels)] + [
        (n_labels, n_labels + 2),
        (n_labels + 1, n_labels + 2),
    ]
    hierarchy = Hierarchy(names, (None,) * len(names), np.array(pairs, np.int32))
    given = hierarchy.pairs(names[:n_labels])
    one, other = (LabelTree(tree=tree).fit(X, Y).predict_topk(X, 5) for tree in (hierarchy, given))
    assert_same(one, other)


def test_a_hierarchy_of_names_is_matched_by_hand():
    X, Y = small_data()
    towns = Hierarchy(("Italy", "Rome"), (None, None), np.array([[1, 0]], np.int32))
    with pytest.raises(InputError, match=r"must have label ids among them.*pairs\(label_names\)"):
        LabelTree(tree=towns).fit(X, Y)
