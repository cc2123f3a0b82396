"""Label trees as lines of text, with names made safe for a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from longtail.errors import counted
from longtail.tree_view.branches import Branch
from longtail.tree_view.outline import BETWEEN, Outline

_LONGEST = 60
# Control characters, line separators, bidirectional overrides and surrogates.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(name: str, *, longest: int | None = None) -> str:
    r"""Return a name on one line, with control characters escaped, cut if it is too long.

    Examples
    --------
    >>> plain("two\nlines"), plain("a long name", longest=8)
    ('two\\nlines', 'a long …')
    """
    if longest is not None and len(name) > longest:
        name = name[: longest - 1] + "…"
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), name)


def title(seen: Outline, node: int) -> str:
    """Return the name of a node on one line: its most frequent labels, each cut if it is long."""
    return BETWEEN.join(plain(name, longest=_LONGEST) for name in seen.leaders(node)) or "no labels"


def size(seen: Outline, branch: Branch) -> str:
    """Return the number of labels below a node, and of its nodes if none is shown."""
    parts = [counted(int(seen.sizes[branch.node]), "label")]
    parts.append(f"recorded {counted(int(seen.recorded[branch.node]), 'time')}")
    if branch.children_left_out and not branch.children:
        parts.append(f"{counted(branch.children_left_out, 'node')} below")
    return ", ".join(parts)


def lines(
    seen: Outline,
    branch: Branch,
    *,
    rest: bool = True,
    strong: Callable[[str], str] = str,
    faint: Callable[[str], str] = str,
) -> Iterator[str]:
    r"""Yield a branch as the program `tree` prints it, a line per node and label.

    Parameters
    ----------
    seen : Outline
    branch : Branch
    rest : bool
        Whether to add the number of nodes that are not shown.
    strong, faint : callable, optional
        Add terminal colours to a text.

    Examples
    --------
    >>> import numpy as np
    >>> from longtail.tree_view import top_of
    >>> from longtail.data.label_index import LabelIndex
    >>> from longtail.learners.label_trees.forest import Branches, LabelForest
    >>> forest = LabelForest.from_branches([Branches([-1, 0, 0], [1, 1, 2], [0, 2, 1])])
    >>> seen = Outline(forest, np.array([5, 9, 7]), LabelIndex(["car", "bus", "ship"]))
    >>> print(*lines(seen, top_of(seen, 0, labels=1)), sep="\n")
    node 0: bus · ship · car (3 labels, recorded 21 times)
    ├── node 1: ship · car (2 labels, recorded 12 times)
    │   ├── ship 7
    │   └── ... 1 more
    └── node 2: bus (1 label, recorded 9 times)
        └── bus 9
    """
    todo: list[tuple[str, str, Branch | str]] = [("", "", branch)]
    while todo:
        lead, below, item = todo.pop()
        if isinstance(item, str):
            yield faint(lead) + item
            continue
        yield f"{faint(lead)}{strong(f'node {item.node}:')} {title(seen, item.node)} {faint(f'({size(seen, item)})')}"
        under: list[Branch | str] = [
            f"{plain(seen.label_name(label))} {faint(f'{int(seen.label_counts[label]):,}')}" for label in item.labels
        ]
        if item.labels_left_out and item.labels:
            under.append(faint(f"... {item.labels_left_out:,} more"))
        under += item.children
        if rest and item.children_left_out and item.children:
            under.append(faint(f"... {counted(item.children_left_out, 'node')} more"))
        for place, one in reversed(list(enumerate(under))):
            last = place == len(under) - 1
            todo.append((below + ("└── " if last else "├── "), below + ("    " if last else "│   "), one))
