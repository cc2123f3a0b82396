"""Label names to ids and back: round trips, alignment, and labels that can't be found."""

from __future__ import annotations

import time

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.data.label_index import LabelIndex
from longtail.errors import InputError, ParameterError

NAMES = st.lists(st.text(max_size=4), unique=True, min_size=1, max_size=12)


def matrix(rows, n_labels):
    Y = np.zeros((len(rows), n_labels), np.float32)
    for row, labels in enumerate(rows):
        Y[row, list(labels)] = 1
    return sp.csr_array(Y)


@st.composite
def labelled(draw, names=NAMES):
    own = draw(names)
    rows = draw(st.lists(st.sets(st.integers(0, len(own) - 1)), max_size=6))
    return own, matrix(rows, len(own))


def named_rows(Y, names):
    return [{names[label] for label in Y.indices[Y.indptr[row] : Y.indptr[row + 1]]} for row in range(Y.shape[0])]


@given(NAMES)
def test_names_and_ids_make_a_round_trip(names):
    labels = LabelIndex(names)
    assert [labels.id_of(name) for name in names] == list(range(len(labels)))
    assert labels.ids_of(names).tolist() == [labels.id_of(label) for label in range(len(names))]
    assert [labels.shown(label) for label in range(len(names))] == names
    assert labels.is_unique


@given(NAMES, st.lists(st.text(max_size=4), max_size=12))
def test_extending_keeps_ids_and_names_new_labels_once(names, more):
    labels = LabelIndex(names)
    ids = labels.extend(more)
    assert [labels.names[label] for label in ids] == more
    assert labels.names[: len(names)] == names
    assert len(set(labels.names)) == len(labels) == len({*names, *more})
    assert labels.extend(more).tolist() == ids.tolist()


@given(labelled(), st.randoms(use_true_random=False))
def test_alignment_does_not_depend_on_the_order_of_columns(data, random):
    names, Y = data
    order = list(range(len(names)))
    random.shuffle(order)
    labels = LabelIndex(sorted(names))
    one = labels.align(Y, names)
    other = labels.align(Y[:, order], [names[label] for label in order])
    assert (one != other).nnz == 0
    assert one.has_canonical_format
    assert named_rows(one, labels.names) == named_rows(Y, names)


@given(labelled(), NAMES)
def test_new_labels_get_columns_after_the_known_ones(data, known):
    names, Y = data
    labels, grown = LabelIndex(known), LabelIndex(known)
    used = {names[label] for label in Y.indices}
    if used and not used & set(known) and names != known:
        with pytest.raises(InputError, match="No row has a label of the training data"):
            labels.align(Y, names)
    else:
        aligned = labels.align(Y, names)
        assert aligned.shape == (Y.shape[0], len(set(known) | (set(names) if names != known else used)))
        assert labels.extended(names).names == [*known, *(name for name in names if name not in known)]
        assert labels.names == known, "only extend=True changes the index"
    aligned = grown.align(Y, names, extend=True)
    assert set(grown.names) == set(known) | used
    assert named_rows(aligned, grown.names) == named_rows(Y, names)


def test_columns_of_the_same_name_are_one_label():
    aligned = LabelIndex(["ship", "tree"]).align(matrix([{0, 1}, {1}, {2}], 3), ["tree", "tree", "ship"])
    assert aligned.toarray().tolist() == [[0, 1], [0, 1], [1, 0]]


def test_labels_without_names_are_matched_by_id():
    Y = matrix([{0, 2}], 3)
    for labels, names in ((LabelIndex(n_labels=3), ["a", "b", "c"]), (LabelIndex(["a", "a", "b"]), ["b", "a", "a"])):
        assert labels.align(Y, names) is Y
        assert labels.align(Y) is Y
    for labels in (LabelIndex(n_labels=2), LabelIndex(["a", "b"]), LabelIndex(n_labels=4)):
        with pytest.raises(InputError, match=r"has 3 labels instead of .*can't be matched by name"):
            labels.align(Y)
    grown = LabelIndex(n_labels=2)
    assert grown.align(Y, extend=True) is Y
    assert (len(grown), grown.names) == (3, None)
    with pytest.raises(InputError, match="can't be matched by name"):
        LabelIndex(["a", "b"]).align(Y, extend=True)


@pytest.mark.parametrize("label", ["tre", "", "2", "-1", 3, -1, True, None, 1.0])
def test_unknown_labels(label):
    labels = LabelIndex(["ship", "tree", "leaf"])
    with pytest.raises(ParameterError, match="LABEL must be the name of a label, or an id from 0 to 2"):
        labels.id_of(label, "LABEL")
    with pytest.raises(ParameterError, match=r"only\[1\] must be the name of a label, or an id from 0 to 2"):
        labels.ids_of(["tree", label], "only")


def test_a_similar_name_is_suggested():
    labels = LabelIndex(["ship", "tree", "leaf"])
    with pytest.raises(ParameterError, match=r"\(did you mean tree\?\), got 'tre'"):
        labels.id_of("tre")
    with pytest.raises(ParameterError) as raised:
        labels.id_of("tre", hint=False)
    assert "did you mean" not in str(raised.value)


def test_one_text_is_no_sequence_of_labels():
    with pytest.raises(ParameterError, match="only must be a list of labels, got 'ship'"):
        LabelIndex(["ship"]).ids_of("ship", "only")


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint64])
def test_arrays_of_ids(dtype):
    labels = LabelIndex(["ship", "tree", "leaf"])
    found = labels.ids_of(np.array([2, 0, 2], dtype))
    assert (found.tolist(), found.dtype) == ([2, 0, 2], np.int32)
    with pytest.raises(ParameterError, match=r"only\[1\] must be the name of a label, or an id from 0 to 2, got 3"):
        labels.ids_of(np.array([2, 3], dtype), "only")
    assert labels.ids_of(np.array([], dtype)).tolist() == []


def test_names_that_look_like_ids_are_names_first():
    labels = LabelIndex(["2", "1", "0", "x"])
    assert [labels.id_of(name, text_ids=True) for name in ("2", "1", "0", "3")] == [0, 1, 2, 3]
    assert labels.id_of(2) == 2
    with pytest.raises(ParameterError, match="must be the name"):
        labels.id_of("3")
    with pytest.raises(ParameterError, match="from 0 to 3"):
        labels.id_of("4", text_ids=True)


def test_a_name_of_two_labels_is_refused_where_it_is_used():
    labels = LabelIndex(["bank", "bank", "money"])
    assert not labels.is_unique
    assert labels.id_of("money") == 2
    assert labels.id_of(1) == 1
    with pytest.raises(InputError, match="'bank' is the name of several labels: use label ids"):
        labels.id_of("bank")


def test_labels_without_names():
    labels = LabelIndex(n_labels=3)
    assert (labels.get("1"), labels.id_of("1", text_ids=True), labels.shown(1)) == (None, 1, "1")
    assert not labels.is_unique
    with pytest.raises(ParameterError, match="label must be a label id from 0 to 2, got '1'"):
        labels.id_of("1")
    assert labels.extend(["1", "new"]).tolist() == [1, 3]
    assert labels.names == ["0", "1", "2", "new"]


def test_the_number_of_names_is_checked():
    with pytest.raises(ParameterError, match="label_names must hold one name for each of 3 labels, got 1"):
        LabelIndex(["ship"], 3)
    with pytest.raises(ParameterError, match="n_labels must be given"):
        LabelIndex()


def test_differences():
    one = LabelIndex(["ship", "tree"])
    assert one.difference(LabelIndex(["ship", "tree"])) is None
    assert one.difference(LabelIndex(n_labels=2)) is None
    assert one.difference(LabelIndex(n_labels=3)) == "one knows 2 labels and the other 3"
    assert one.difference(LabelIndex(["ship", "leaf"])) == "label 1 is 'tree' in one and 'leaf' in the other"


@given(
    st.lists(st.sampled_from(["ship", "Ships", "starship", "SHIP", "sea", ""]), min_size=1),
    st.text("shiSHa", min_size=1),
)
def test_search_finds_what_a_scan_finds(names, text):
    labels = LabelIndex(names)
    wanted = text.casefold()
    among = np.arange(len(names))[::-1]
    found = labels.search(text, among).tolist()
    assert set(found) == {label for label, name in enumerate(names) if wanted in name.casefold()}
    keys = [(names[at].casefold() != wanted, not names[at].casefold().startswith(wanted), -at) for at in found]
    assert keys == sorted(keys)


def test_alphabetical_order_ignores_case():
    labels = LabelIndex(["b", "A", "C", "a"])
    assert np.argsort(labels.ranks).tolist() == [1, 3, 0, 2]
    labels.extend(["Aa"])
    assert np.argsort(labels.ranks).tolist() == [1, 3, 4, 0, 2]


def test_a_million_labels_are_quick():
    names = [f"label {number}" for number in range(1_000_000)]
    begin = time.process_time()
    labels = LabelIndex(names)
    built = time.process_time() - begin
    assert labels.ids_of([f"label {number}" for number in range(0, 1_000_000, 10)])[-1] == 999_990
    with pytest.raises(ParameterError, match="must be the name"):
        labels.id_of("labell 7")
    assert built < 0.2
    assert time.process_time() - begin < 5


def test_an_index_without_names_that_grows_finds_its_new_labels():
    labels = LabelIndex(n_labels=2)
    assert labels.search("3", np.arange(2)).tolist() == []
    assert labels.ranks.tolist() == [0, 1]
    labels.align(sp.csr_array(np.eye(4, dtype=np.float32)), extend=True)
    assert labels.search("3", np.arange(4)).tolist() == [3]
    assert labels.ranks.tolist() == [0, 1, 2, 3]


def test_labels_that_no_row_has_keep_their_columns():
    """Metrics over all columns, such as the Hamming loss, count them."""
    Y = matrix([{0}, {1}], 4)
    aligned = LabelIndex(["a", "b"]).align(Y, ["b", "a", "c", "d"])
    assert aligned.toarray().tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]
    grown = LabelIndex(["a", "b"])
    assert grown.align(Y, ["b", "a", "c", "d"], extend=True).shape == (2, 2)
    assert grown.names == ["a", "b"]


def test_labels_matched_by_id_are_not_extended():
    for labels in (LabelIndex(n_labels=2), LabelIndex(["a", "a"])):
        assert labels.extended(["b", "c"]) is labels
        assert labels.extended(None) is labels


def test_texts_of_any_length_are_looked_up_as_ids():
    labels = LabelIndex(["ship", "tree", "leaf"])
    assert labels.id_of("2", text_ids=True) == labels.id_of("002", text_ids=True) == 2
    assert labels.id_of("0" * 5000, text_ids=True) == 0
    for label in ("3", "1" * 5000):
        with pytest.raises(ParameterError, match="an id from 0 to 2"):
            labels.id_of(label, text_ids=True)
