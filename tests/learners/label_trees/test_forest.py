"""The shape of label trees: small forests by hand, and random ones against plain recursion."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.errors import InputError
from longtail.learners.label_trees.forest import Branches, LabelForest
from longtail.learners.label_trees.node_training import node_blocks


def branches(parents, under):
    """A tree from the parents of its nodes and pairs (node, label)."""
    nodes, labels = zip(*under, strict=True) if under else ((), ())
    return Branches(*(np.array(array, np.int32) for array in (parents, nodes, labels)))


def test_a_tree_by_hand():
    """Root 0 has nodes 1 and 3; 1 has 2 and 4; 3 has 5; labels stand at all depths."""
    tree = branches([-1, 0, 1, 0, 1, 3], [(2, 7), (2, 3), (5, 1), (4, 0), (0, 9), (3, 2)])
    forest = LabelForest.from_branches([tree])
    # Level by level: 0 | 1, 3 | 2, 4, 5 become 0 | 1, 2 | 3, 4, 5.
    assert forest.child_starts_.tolist() == [1, 3, 5, 6, 6, 6, 6]
    assert forest.parents.tolist() == [-1, 0, 0, 1, 1, 2]
    assert forest.level_starts.tolist() == [0, 1, 3, 6]
    assert (forest.n_nodes, forest.n_levels, forest.n_trees_) == (6, 3, 1)
    assert [forest.labels_under(node).tolist() for node in range(6)] == [[9], [], [2], [3, 7], [0], [1]]
    assert [list(forest.nodes_under(node)) for node in range(6)] == [[1, 2], [3, 4], [5], [], [], []]
    assert forest.holders.tolist() == [0, 2, 3, 3, 4, 5]
    assert forest.heights.tolist() == [3, 2, 2, 1, 1, 1]
    assert forest.trees.tolist() == [0] * 6
    assert not forest.overlaps
    under = forest.members(10, 1, 3).toarray()
    assert [np.flatnonzero(under[:, node]).tolist() for node in (0, 1)] == [[0, 3, 7], [1, 2]]
    assert np.flatnonzero(forest.members(10, 0, 1).toarray()[:, 0]).tolist() == [0, 1, 2, 3, 7, 9]
    assert (forest.child_starts_.dtype, forest.label_starts_.dtype, forest.labels_.dtype) == (
        np.int32,
        np.int64,
        np.int32,
    )


def test_two_trees_by_hand():
    forest = LabelForest.from_branches([
        branches([-1, 0, 0], [(1, 0), (2, 1)]),
        branches([-1, 0, 1, 1], [(2, 1), (3, 0), (1, 0)]),
    ])  # fmt: skip
    assert forest.parents.tolist() == [-1, -1, 0, 0, 1, 4, 4]
    assert forest.trees.tolist() == [0, 1, 0, 0, 1, 1, 1]
    assert forest.level_starts.tolist() == [0, 2, 5, 7]
    assert [forest.labels_under(node).tolist() for node in range(7)] == [[], [], [0], [1], [0], [1], [0]]
    assert forest.heights.tolist() == [2, 3, 1, 1, 2, 1, 1]
    assert forest.overlaps
    assert forest.members(2, 2, 5).toarray().tolist() == [[1, 0, 1], [0, 1, 1]]


def test_a_root_alone_and_a_root_without_labels():
    alone = LabelForest.from_branches([branches([-1], [(0, 4), (0, 2)])])
    assert (alone.n_levels, alone.level_starts.tolist(), alone.labels_.tolist()) == (1, [0, 1], [2, 4])
    bare = LabelForest.from_branches([branches([-1], [])])
    assert (bare.n_nodes, bare.heights.tolist(), bare.overlaps, bare.holders.tolist()) == (1, [0], False, [])
    assert bare.members(3, 0, 1).nnz == 0
    blocks, starts = node_blocks(bare)
    assert (blocks, starts.tolist()) == ([], [0, 0])


@st.composite
def forests(draw):
    """Trees as their parents and pairs (node, label) say."""
    trees = []
    for _ in range(draw(st.integers(1, 3))):
        size = draw(st.integers(1, 14))
        parents = [-1] + [draw(st.integers(0, node - 1)) for node in range(1, size)]
        trees.append((parents, draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, 19)), unique=True))))
    return trees


@given(forests())
def test_random_forests_against_recursion(trees):
    forest = LabelForest.from_branches([branches(*tree) for tree in trees])
    children = [
        [[c for c, p in enumerate(parents) if p == node] for node in range(len(parents))] for parents, _ in trees
    ]
    own = [[sorted(lab for n, lab in under if n == node) for node in range(len(parents))] for parents, under in trees]

    def below(tree, node):
        return set(own[tree][node]).union(*(below(tree, child) for child in children[tree][node]))

    def height(tree, node):
        least = 1 if own[tree][node] else 0
        return max([least, *(height(tree, child) + 1 for child in children[tree][node])])

    # Breadth first through all trees at once, nodes of one node in their order.
    levels = [[(tree, 0) for tree in range(len(trees))]]
    while after := [(tree, child) for tree, node in levels[-1] for child in children[tree][node]]:
        levels.append(after)
    order = [pair for level in levels for pair in level]
    number = {pair: at for at, pair in enumerate(order)}

    assert forest.n_nodes == len(order)
    assert np.diff(forest.level_starts).tolist() == [len(level) for level in levels]
    assert forest.trees.tolist() == [tree for tree, _ in order]
    assert forest.heights.tolist() == [height(*pair) for pair in order]
    for pair, at in number.items():
        tree, node = pair
        assert list(forest.nodes_under(at)) == [number[tree, child] for child in children[tree][node]]
        assert forest.labels_under(at).tolist() == own[tree][node]
        assert forest.parents[at] == (number[tree, trees[tree][0][node]] if node else -1)
    assert forest.overlaps == (len(trees) > 1 or len(set(forest.labels_.tolist())) < len(forest.labels_))
    assert forest.holders.tolist() == [at for at, (tree, node) in enumerate(order) for _ in own[tree][node]]
    for level, first in zip(levels, forest.level_starts.tolist(), strict=False):
        members = forest.members(20, first, first + len(level))
        assert set(members.data.tolist()) <= {1.0}
        for at, pair in enumerate(level):
            assert set(np.flatnonzero(members.toarray()[:, at]).tolist()) == below(*pair)
        if len(level) > 2:  # a part of a level
            part = forest.members(20, first + 1, first + 2).toarray()
            np.testing.assert_array_equal(part[:, 0], members.toarray()[:, 1])


@given(forests())
def test_blocks_hold_all_members_of_a_node_in_even_parts(trees):
    many = [
        (parents, [*under, *((0, label) for label in range(20, 20 + 45 * len(parents)))]) for parents, under in trees
    ]
    forest = LabelForest.from_branches([branches(*tree) for tree in many])
    blocks, starts = node_blocks(forest)
    assert [block.number for block in blocks] == list(range(len(blocks)))
    assert starts[-1] == len(blocks)
    for node in range(forest.n_nodes):
        size = len(forest.nodes_under(node)) + len(forest.labels_under(node))
        own = blocks[starts[node] : starts[node + 1]]
        assert [at for block in own for at in range(block.first, block.last)] == list(range(size))
        assert all(block.node == node for block in own)
        parts = [block.last - block.first for block in own]
        assert not parts or (max(parts) <= 64 and max(parts) - min(parts) <= 1 and len(parts) == -(-size // 64))


@pytest.mark.parametrize(
    ("parents", "node"),
    [
        ([0, 0], 0),  # no root
        ([-1, -1], 1),  # two roots
        ([-1, 1], 1),  # its own parent
        ([-1, 2, 0], 1),  # a parent that comes later
        ([-1, 0, 9], 2),  # a parent that isn't there
        ([-1, 0, -5], 2),
    ],
)
def test_trees_that_are_none_are_refused(parents, node):
    good = branches([-1, 0], [(1, 0)])
    with pytest.raises(InputError, match=f"Node {node} of the tree has no parent before it"):
        LabelForest.from_branches([branches(parents, [])])
    with pytest.raises(InputError, match=f"Node {node + 2} of the tree"):
        LabelForest.from_branches([good, branches(parents, [])])
