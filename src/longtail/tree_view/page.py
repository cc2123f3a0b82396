"""Label trees as one self-contained HTML page whose nodes open on demand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

from longtail import __version__
from longtail.errors import ParameterError
from longtail.templates import page_environment
from longtail.tree_view.outline import Outline


def page(
    seen: Outline,
    name: str,
    *,
    nodes: Sequence[int] | None = None,
    labels: Sequence[int] = (),
    made: datetime | None = None,
) -> str:
    """Return the page.

    Parameters
    ----------
    seen : Outline
    name : str
        Name of the model.
    nodes : sequence of int, optional
        Top nodes of the page, of one level; the roots by default.
    labels : sequence of int
        Labels whose paths are open at first.
    made : datetime, optional
        Time for the footer.

    Examples
    --------
    >>> from longtail.data.label_index import LabelIndex
    >>> from longtail.learners.label_trees.forest import Branches, LabelForest
    >>> forest = LabelForest.from_branches([Branches([-1, 0], [1, 1], [0, 1])])
    >>> page(Outline(forest, np.array([5, 9]), LabelIndex(["car", "bus"])), "toy").startswith("<!doctype html>")
    True
    """
    from markupsafe import Markup

    begins = list(range(seen.forest.n_trees_)) if nodes is None else list(nodes)
    return (
        page_environment("longtail.tree_view")
        .get_template("tree.html")
        .render(
            name=name,
            summary=seen.summary,
            data=Markup(_in_script(contents(seen, begins, labels))),  # no < is left in it
            made=made,
            version=__version__,
        )
    )


def contents(seen: Outline, begins: Sequence[int], labels: Sequence[int] = ()) -> dict[str, Any]:
    """Return the contents of the page as flat lists.

    Labels are renumbered by frequency, and nodes level by level, so that the children of a node follow those of the
    node before.

    Examples
    --------
    >>> from longtail.data.label_index import LabelIndex
    >>> from longtail.learners.label_trees.forest import Branches, LabelForest
    >>> forest = LabelForest.from_branches([Branches([-1, 0, 0], [1, 1, 2], [0, 2, 1])])
    >>> found = contents(Outline(forest, np.array([5, 9, 7]), LabelIndex(["car", "bus", "ship"])), [0])
    >>> found["names"], found["labels"]
    (['bus', 'ship', 'car'], [1, 2, 0])
    """
    forest = seen.forest
    if len({len(seen.path(node)) for node in begins}) > 1:
        raise ParameterError("nodes", list(begins), "must hold nodes of one level")
    level, kept = np.sort(np.asarray(begins, np.int64)), []
    while len(level):
        kept.append(level)
        under = [np.arange(forest.child_starts_[node], forest.child_starts_[node + 1]) for node in level]
        level = np.concatenate(under)
    nodes = np.concatenate(kept)
    held = [seen.labels(node) for node in nodes.tolist()]
    flat = np.asarray([label for some in held for label in some], np.int64)
    standing = np.zeros(len(seen.order), np.bool_)
    standing[flat] = True
    shown = seen.order[standing[seen.order]]
    number = np.full(len(seen.order) + 1, -1, np.int64)  # the last for the padding of `leading`
    number[shown] = np.arange(len(shown))
    return {
        "trees": forest.n_trees_,
        "begins": len(begins),
        "names": [seen.label_name(label) for label in shown.tolist()],
        "counts": np.asarray(seen.label_counts)[shown].tolist(),
        "nodes": nodes.tolist(),
        "children": np.diff(forest.child_starts_)[nodes].tolist(),
        "holds": [len(some) for some in held],
        "labels": number[flat].tolist(),
        "sizes": seen.sizes[nodes].tolist(),
        "recorded": seen.recorded[nodes].tolist(),
        "leading": [[one for one in some if one >= 0] for some in number[seen.leading[nodes]].tolist()],
        "open": [one for one in number[np.asarray(labels, np.int64)].tolist() if one >= 0],
    }


def _in_script(values: dict[str, Any]) -> str:
    """Return JSON that is safe in a script element, whatever the texts contain."""
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
