"""Label trees in the DOT language of Graphviz."""

from __future__ import annotations

from collections.abc import Iterable

from longtail.errors import counted
from longtail.tree_view.branches import Branch
from longtail.tree_view.outline import Outline
from longtail.tree_view.text import plain, size, title

_HEAD = """digraph labels {
  graph [rankdir=LR, ranksep=0.4, nodesep=0.15, bgcolor=transparent];
  node [shape=box, style="rounded,filled", fillcolor="#eaf2fb", color="#2563a8", fontcolor="#22262b"];
  node [fontname="sans-serif", fontsize=11, margin="0.12,0.06"];
  edge [color="#8a94a0", arrowhead=none];
"""
_LABELS = 'style=filled, fillcolor="#ffffff", color="#d5dae0"'


def dot(seen: Outline, branches: Iterable[Branch], *, rest: bool = True) -> str:
    """Return branches as one graph: a box per node, and another one with its labels.

    Parameters
    ----------
    seen : Outline
    branches : iterable of Branch
    rest : bool
        Whether to add the number of nodes that are not shown.

    Examples
    --------
    >>> import numpy as np
    >>> from longtail.tree_view import top_of
    >>> from longtail.data.label_index import LabelIndex
    >>> from longtail.learners.label_trees.forest import Branches, LabelForest
    >>> forest = LabelForest.from_branches([Branches([-1, 0], [1, 1], [0, 1])])
    >>> seen = Outline(forest, np.array([5, 9]), LabelIndex(["car", "bus"]))
    >>> print(dot(seen, [top_of(seen, 0)]).splitlines()[-5])
      n0 -> n1;
    """
    parts = [_HEAD]
    todo = list(branches)[::-1]
    while todo:
        branch = todo.pop()
        here = f"n{branch.node}"
        named = _quoted([title(seen, branch.node), f"node {branch.node}: {size(seen, branch)}"], "n")
        parts.append(f"  {here} [label={named}];\n")
        rows = [f"{plain(seen.label_name(label))} ({int(seen.label_counts[label]):,})" for label in branch.labels]
        if branch.labels_left_out and branch.labels:
            rows.append(f"... {branch.labels_left_out:,} more")
        if rows:
            parts.append(f"  {here}_labels [label={_quoted(rows, 'l')}, {_LABELS}];\n  {here} -> {here}_labels;\n")
        parts += [f"  {here} -> n{child.node};\n" for child in branch.children]
        if rest and branch.children_left_out and branch.children:
            more = _quoted([f"... {counted(branch.children_left_out, 'node')} more"], "l")
            parts.append(f"  {here}_more [label={more}, {_LABELS}];\n  {here} -> {here}_more;\n")
        todo += branch.children[::-1]
    return "".join([*parts, "}\n"])


def _quoted(rows: list[str], ending: str) -> str:
    """Return a quoted string with a line per row; backslashes, quotes and & are escaped for Graphviz."""
    escaped = (row.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for row in rows)
    return '"' + "".join(f"{row}\\{ending}" for row in escaped) + '"'
