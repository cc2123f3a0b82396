"""The labels of a model as people ask for them: by name, by frequency, one by one."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.app.serve.problems import Problem
from longtail.metrics import frequency_bins
from longtail.store import Model

GROUPS = ("head", "torso", "tail")
ORDERS = ("frequency", "rarest", "name", "label")
_SHOWN = 100  # characters of a name in an error


class Labels:
    """Names, training rows and groups of all labels.

    Examples
    --------
    >>> from longtail import Popularity
    >>> model = Model(Popularity().fit([[1], [1]], [[1, 1], [1, 0]]), label_names=["Ships", "Starships"])
    >>> [entry["name"] for entry in Labels(model).search("SHIP")[1]]
    ['Ships', 'Starships']
    """

    def __init__(self, model: Model) -> None:
        self.names = model.label_names
        self.counts = np.asarray(model.label_counts)
        self.n = model.n_labels
        self.groups = frequency_bins(self.counts)[0].astype(np.int8)

    def prepare(self) -> None:
        """Make now what is needed to find labels by name, which takes a while where there are many."""
        _ = self._ids

    def entry(self, label: int) -> dict[str, Any]:
        """What is said of a label everywhere."""
        return {
            "label": label,
            "name": None if self.names is None else self.names[label],
            "training_rows": int(self.counts[label]),
            "group": GROUPS[self.groups[label]],
        }

    def summary(self) -> dict[str, Any]:
        """Label frequencies in a few numbers."""
        seen = self.counts[self.counts > 0]
        return {
            "most": int(seen.max(initial=0)),
            "median": float(np.median(seen)) if len(seen) else 0.0,
            "with_one_row": int((seen == 1).sum()),
            "without_rows": int(self.n - len(seen)),
            "groups": {name: self._group(self.counts[self.groups == index]) for index, name in enumerate(GROUPS)},
        }

    def search(
        self,
        text: str = "",
        *,
        group: str | None = None,
        min_rows: int = 0,
        max_rows: int | None = None,
        order: str = "frequency",
        limit: int = 20,
        offset: int = 0,
    ) -> tuple[int, list[dict[str, Any]]]:
        """Find labels; the number of all that match, and those from `offset` on.

        A text is looked for anywhere in names, whatever the case; the name that it is comes first, then those that
        begin with it. In a model without names it is looked for in ids.
        """
        fits = (self.counts >= min_rows) & (self.counts <= (np.inf if max_rows is None else max_rows))
        if group is not None:
            fits &= self.groups == GROUPS.index(group)
        found = self._ordered(np.flatnonzero(fits), order)
        if text:
            wanted, lowered = text.casefold(), self._lowered
            begins = [label for label in found.tolist() if lowered[label].startswith(wanted)]
            begins.sort(key=lambda label: lowered[label] != wanted)
            inside = [label for label in found.tolist() if wanted in lowered[label][1:]]
            first = set(begins)
            found = np.array([*begins, *(label for label in inside if label not in first)], np.int64)
        return len(found), [self.entry(label) for label in found[offset : offset + limit].tolist()]

    def ids(self, name: str, given: Iterable[int | str] | None) -> npt.NDArray[np.int64] | None:
        """Ids of labels that are given by id or name; `name` is that of the parameter."""
        if given is None:
            return None
        return np.array([self.id(name, label) for label in given], np.int64)

    def id(self, name: str, label: int | str) -> int:
        """Id of one label."""
        if isinstance(label, int):
            if 0 <= label < self.n:
                return label
            raise Problem("invalid", f"{name} holds label {_short(label)}, and ids go from 0 to {self.n - 1:,}.")
        found = self._ids.get(label)
        if found is None:
            raise Problem("invalid", f"{name} holds {_short(label)!r}, which is no name of a label: see /v1/labels.")
        return found

    def _ordered(self, labels: npt.NDArray[np.int64], order: str) -> npt.NDArray[np.int64]:
        if order == "label":
            return labels
        if order == "name" and self.names is not None:
            return labels[np.argsort(self._name_ranks[labels], kind="stable")]
        counts = self.counts[labels]
        return labels[np.argsort(counts if order == "rarest" else -counts, kind="stable")]

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: label for label, name in reversed(list(enumerate(self.names or ())))}

    @cached_property
    def _lowered(self) -> list[str]:
        return [name.casefold() for name in self.names] if self.names else [str(label) for label in range(self.n)]

    @cached_property
    def _name_ranks(self) -> npt.NDArray[np.int64]:
        ranks = np.empty(self.n, np.int64)
        ranks[sorted(range(self.n), key=lambda label: (self._lowered[label], label))] = np.arange(self.n)
        return ranks

    def _group(self, counts: npt.NDArray[np.int64]) -> dict[str, int]:
        return {
            "labels": len(counts),
            "least_rows": int(counts.min()) if len(counts) else 0,
            "most_rows": int(counts.max(initial=0)),
        }


def _short(value: object) -> object:
    text = str(value)
    return value if len(text) <= _SHOWN else text[:_SHOWN] + "..."
