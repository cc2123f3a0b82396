"""Files of pairs of items, given by label names or ids."""

from __future__ import annotations

import os

import numpy as np

from longtail.data.label_index import LabelIndex, id_of_text
from longtail.data.readers.pairs import iter_pairs
from longtail.errors import InputError, truncated
from longtail.kernels.types import Int64


def read_pairs(labels: LabelIndex, *paths: str | os.PathLike[str]) -> list[Int64]:
    """Read the pairs of plain or compressed files as ids; items that are not labels are added to `labels`.

    Each line has two names or ids, separated by a tab, comma or semicolon.

    Returns
    -------
    list of ndarray of int64, shape (m, 2)
        The pairs of each file, in its order.

    Examples
    --------
    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "viewed.tsv")
    >>> with open(path, "w") as file:
    ...     _ = file.write("ship\\tboat\\ntree\\tship\\n")
    >>> labels = LabelIndex(["ship", "tree"])
    >>> read_pairs(labels, path)[0].tolist(), labels.names
    ([[0, 2], [1, 0]], ['ship', 'tree', 'boat'])
    """
    n_labels, named = len(labels), labels.names is not None
    return [_as_ids(path, labels, n_labels, named) for path in paths]


def _as_ids(path: str | os.PathLike[str], labels: LabelIndex, n_labels: int, named: bool) -> Int64:
    """Read pairs of names or ids as pairs of ids: names if any of them is a label's name."""
    pairs = [(left, right) for _, left, right in iter_pairs(path, "two names or ids")]
    if not pairs:
        raise InputError("is empty: it must have a pair on each line.", path=path)
    terms = dict.fromkeys(term for pair in pairs for term in pair)
    try:
        known = {term: labels.get(term) for term in terms}
    except InputError as error:
        raise InputError(error.reason, path=path) from None
    if not named or not any(label is not None and label < n_labels for label in known.values()):
        numbers = {term: id_of_text(term, n_labels) for term in terms if term.isdecimal()}
        if all(number is None for number in numbers.values()):
            use = "names or ids" if named else f"ids, from 0 to {n_labels - 1},"
            raise InputError(f"has no pair with a label of the data: use the {use} of its labels.", path=path)
        large = next((term for term, number in numbers.items() if number is None), None)
        if large is not None:
            raise InputError(
                f"has {truncated(large, 40)}, and labels have ids from 0 to {n_labels - 1}: correct it.", path=path
            )
        known |= numbers
    new = [term for term, label in known.items() if label is None]
    known |= zip(new, labels.extend(new).tolist(), strict=True) if new else ()
    return np.array([(known[left], known[right]) for left, right in pairs], np.int64).reshape(-1, 2)
