"""Label names and label ids: one index, aligned between models, files and requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.errors import InputError, ParameterError, did_you_mean
from longtail.kernels.types import Int32, Int64

_MOST_COMPARED = 20_000  # names, in the search for a similar one


class LabelIndex:
    """Translates label names to ids and back.

    The id of a label is its column in `Y`; its name identifies it in files and requests. Lookup tables are built on
    first use, so that an index over a million labels is cheap to create.

    Parameters
    ----------
    names : sequence of str, optional
        Name of each label, in the order of the ids. Without names, labels are identified by their ids.
    n_labels : int, optional
        Number of labels; needed without names.

    Attributes
    ----------
    names : list of str or None

    Examples
    --------
    >>> labels = LabelIndex(["ship", "tree"])
    >>> labels.id_of("tree"), labels.shown(0), len(labels)
    (1, 'ship', 2)
    >>> labels.extend(["tree", "leaf"]).tolist(), labels.names
    ([1, 2], ['ship', 'tree', 'leaf'])
    """

    def __init__(self, names: Sequence[str] | None = None, n_labels: int | None = None) -> None:
        if names is None and n_labels is None:
            raise ParameterError("n_labels", n_labels, "must be given where labels have no names")
        if names is not None and n_labels not in (None, len(names)):
            raise ParameterError("label_names", len(names), f"must hold one name for each of {n_labels} labels")
        self.names = None if names is None else list(names)
        wrong = next((name for name in self.names or () if not isinstance(name, str)), None)
        if wrong is not None:
            raise ParameterError("label_names", wrong, "must hold text")
        self._n_labels = len(names) if names is not None else int(n_labels or 0)

    def __len__(self) -> int:
        return self._n_labels

    @cached_property
    def _ids(self) -> dict[str, int]:
        """Id of each name, the first of several."""
        names = self.names or []
        return dict(zip(reversed(names), range(len(names) - 1, -1, -1), strict=True))

    @cached_property
    def _repeated(self) -> frozenset[str]:
        return frozenset(name for name, count in Counter(self.names or ()).items() if count > 1)

    @property
    def is_unique(self) -> bool:
        """Whether every label has a name and no two labels have the same."""
        return self.names is not None and len(self._ids) == len(self)

    def get(self, name: str) -> int | None:
        """Return the id of the label with this name, None where no label has it.

        Raises
        ------
        InputError
            When several labels have the name.
        """
        found = self._ids.get(name)
        if found is not None and not self.is_unique and name in self._repeated:
            raise InputError(f"{name!r} is the name of several labels: use label ids.")
        return found

    def id_of(self, label: Any, parameter: str = "label", *, text_ids: bool = False, hint: bool = True) -> int:
        """Return the id of a label given by name or id.

        Parameters
        ----------
        label : str or int
        parameter : str
            Name of the parameter, for the error.
        text_ids : bool
            Also accept an id as text, unless it is a name: for arguments that are always text.
        hint : bool
            Let the error suggest a similar name, which takes a moment if there are many.

        Examples
        --------
        >>> LabelIndex(["1995", "ship"]).id_of("1995"), LabelIndex(["ship", "tree"]).id_of("1", text_ids=True)
        (0, 1)
        """
        found = self._find(label)
        if found is None and text_ids and isinstance(label, str):
            found = id_of_text(label, len(self))
        if found is None:
            what = "a label id" if self.names is None else "the name of a label, or an id"
            close = self._similar(label) if hint else ""
            raise ParameterError(parameter, label, f"must be {what} from 0 to {len(self) - 1}{close}")
        return found

    def ids_of(self, labels: Iterable[Any], parameter: str = "labels", *, hint: bool = True) -> Int32:
        """Return the ids of labels given by name or id, in any iterable.

        Examples
        --------
        >>> LabelIndex(["ship", "tree"]).ids_of({"tree"})
        array([1], dtype=int32)
        """
        if (
            isinstance(labels, np.ndarray)
            and labels.ndim == 1
            and labels.dtype.kind in "iu"
            and labels.size > 0
            and (labels.min() >= 0 and labels.max() < len(self))
        ):  # fast for many ids
            return np.asarray(labels, np.int32)
        if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
            raise ParameterError(parameter, labels, "must be a list of labels")
        ids = []
        for place, label in enumerate(labels.tolist() if isinstance(labels, np.ndarray) else labels):
            found = self._find(label)
            ids.append(self.id_of(label, f"{parameter}[{place}]", hint=hint) if found is None else found)
        return np.array(ids, np.int32)

    def shown(self, label: int) -> str:
        """Return what to call a label where people read it: its name, or its id as text."""
        return str(label) if self.names is None else self.names[label]

    def all_shown(self) -> list[str]:
        """Return what to call each label, in the order of the ids; see `shown`.

        Examples
        --------
        >>> LabelIndex(["ship", "tree"]).all_shown(), LabelIndex(n_labels=2).all_shown()
        (['ship', 'tree'], ['0', '1'])
        """
        return [str(label) for label in range(len(self))] if self.names is None else list(self.names)

    def extend(self, names: Iterable[str]) -> Int32:
        """Return the ids of labels by name; names that are new get the next ids.

        Labels without names are named by their ids first.
        """
        if self.names is None:
            self.names = self.all_shown()
            self.__dict__.pop("_ids", None)
        ids, known = self._ids, self.names
        found = []
        for name in names:
            label = ids.setdefault(name, len(known))
            if label == len(known):
                known.append(name)
            found.append(label)
        self._grow(len(known))
        return np.array(found, np.int32)

    def extended(self, names: Sequence[str] | None) -> LabelIndex:
        """Return an index of these labels and, after them, those of `names` that it doesn't know.

        Where labels are matched by id, see `align`, that is the index itself.

        Examples
        --------
        >>> LabelIndex(["ship", "tree"]).extended(["tree", "leaf"]).names
        ['ship', 'tree', 'leaf']
        """
        if not self._matches_by_name(names):
            return self
        index = LabelIndex(self.names, len(self))
        index.__dict__["_ids"] = dict(self._ids)
        index.extend(names or ())
        return index

    def align(self, Y: sp.csr_array, names: Sequence[str] | None = None, *, extend: bool = False) -> sp.csr_array:
        """Return labels by the ids of this index; those that it doesn't know get columns after its own.

        Labels are matched by name where every label of the index has a name of its own, else by id.

        Parameters
        ----------
        Y : csr_array
        names : sequence of str, optional
            Name of each column of `Y`.
        extend : bool
            Add the new labels that a row has to the index; without names, `Y` may then have more columns than the
            index. By default the index stays as it is, and the columns of the result are those of `extended`: also
            the new labels that no row has.

        Examples
        --------
        >>> Y = sp.csr_array([[1, 0, 1], [1, 0, 0]], dtype=np.float32)
        >>> LabelIndex(["ship", "tree"]).align(Y, ["tree", "sea", "leaf"]).toarray()
        array([[0., 1., 0., 1.],
               [0., 1., 0., 0.]], dtype=float32)
        """
        n_labels = Y.shape[1]
        if names is None or not self._matches_by_name(names):
            if n_labels != len(self) and not (extend and self.names is None and n_labels > len(self)):
                raise InputError(
                    f"The data set has {n_labels:,} labels instead of {len(self):,}, and they can't be matched by "
                    "name: use rows with the labels of the training data."
                )
            self._grow(n_labels)
            return Y
        index = self if extend else self.extended(names)
        used = np.unique(Y.indices)
        ids = np.full(n_labels, -1, np.int32)
        ids[used] = index.extend(names[label] for label in used)
        if len(used) and not extend and ids[used].min() >= len(self):
            raise InputError("No row has a label of the training data: use rows with the labels of the training data.")
        shape = (Y.shape[0], len(index))
        matched = sp.csr_array((np.ones(Y.nnz, np.float32), ids[Y.indices], Y.indptr.copy()), shape=shape)
        if len(np.unique(ids[used])) < len(used):  # two columns of the same name
            matched.sum_duplicates()
            matched.data[:] = 1
        matched.sort_indices()
        return matched

    def difference(self, other: LabelIndex, own: str = "one", others: str = "the other") -> str | None:
        """Return in words how the labels of another index differ, None where they don't; `own`, `others` name them.

        Examples
        --------
        >>> LabelIndex(["ship"]).difference(LabelIndex(["tree"]))
        "label 0 is 'ship' in one and 'tree' in the other"
        """
        if len(self) != len(other):
            return f"{own} knows {len(self):,} labels and {others} {len(other):,}"
        if self.names is None or other.names is None or self.names == other.names:
            return None
        at = next(label for label, name in enumerate(self.names) if name != other.names[label])
        return f"label {at} is {self.names[at]!r} in {own} and {other.names[at]!r} in {others}"

    def search(self, text: str, among: Int64) -> Int64:
        """Return those labels whose name contains a text, ignoring case; without names, those whose id contains it.

        The order of `among` is kept, except that exact matches come first and names that begin with the text next.
        """
        wanted, lowered = text.casefold(), self._lowered
        found = [label for label in among.tolist() if wanted in lowered[label]]
        found.sort(key=lambda label: (lowered[label] != wanted, not lowered[label].startswith(wanted)))
        return np.array(found, np.int64)

    @cached_property
    def ranks(self) -> Int64:
        """Position of each label in alphabetical order, ignoring case."""
        ranks = np.empty(len(self), np.int64)
        ranks[sorted(range(len(self)), key=lambda label: self._lowered[label])] = np.arange(len(self))
        return ranks

    @cached_property
    def _lowered(self) -> list[str]:
        return [self.shown(label).casefold() for label in range(len(self))]

    def _grow(self, n_labels: int) -> None:
        if n_labels > self._n_labels:
            self._n_labels = n_labels
            for cached in ("_lowered", "ranks"):
                self.__dict__.pop(cached, None)

    def _matches_by_name(self, names: Sequence[str] | None) -> bool:
        return names is not None and self.names is not None and names != self.names and self.is_unique

    def _find(self, label: Any) -> int | None:
        if isinstance(label, str):
            return self.get(label)
        is_id = isinstance(label, int | np.integer) and not isinstance(label, bool) and 0 <= label < len(self)
        return int(label) if is_id else None

    def _similar(self, name: Any) -> str:
        if not isinstance(name, str):
            return ""
        names: Sequence[str] = self.names or ()
        if len(names) > _MOST_COMPARED:
            first = name[:1].casefold()
            names = [other for other in names if other[:1].casefold() == first and abs(len(other) - len(name)) <= 3]
        return did_you_mean(name, names[:_MOST_COMPARED])


def id_of_text(text: str, n_labels: int) -> int | None:
    """Return the label id that is given as text, None if the text is no integer below `n_labels`.

    Examples
    --------
    >>> id_of_text("2", 3), id_of_text("3", 3), id_of_text("two", 3)
    (2, None, None)
    """
    significant = text.lstrip("0") or text[-1:]
    if not text.isdecimal() or len(significant) > len(str(n_labels)):
        return None
    label = int(significant)
    return label if label < n_labels else None
