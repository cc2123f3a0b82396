"""`longtail tree`: the label trees of a model."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.console import errors_of, guarded, note, output, output_json, step
from longtail.cli.options import AsJson, ModelPath, labels_option
from longtail.errors import InputError, ParameterError
from longtail.runtime.disk import check_out_file, shown_size

if TYPE_CHECKING:
    from longtail.tree_view import Branch, Outline

_DEFAULTS = _DEPTH, _LABELS, _NODES = 2, 8, 20


def _limit(name: str, least: int, what: str, default: int) -> Any:
    return typer.Option(min=least, metavar=name, help=f"{what}; {default}, with --json all.", show_default=False)


@guarded
def tree(
    model: ModelPath,
    number: Annotated[
        int | None, typer.Option("--tree", min=0, metavar="N", help="Tree to show, counted from 0; all by default.")
    ] = None,
    node: Annotated[int | None, typer.Option("--node", min=0, metavar="N", help="Node to start at.")] = None,
    label: Annotated[list[str] | None, labels_option("Show the paths to this label")] = None,
    depth: Annotated[int | None, _limit("D", 0, "Levels to show", _DEPTH)] = None,
    labels: Annotated[int | None, _limit("N", 0, "Labels to show per node", _LABELS)] = None,
    nodes: Annotated[int | None, _limit("N", 1, "Children to show per node", _NODES)] = None,
    dot_file: Annotated[
        Path | None, typer.Option("--dot", metavar="FILE", help="Write the trees for Graphviz, as .dot or .gv.")
    ] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML page with whole, expandable trees.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the label trees of a model.

    For each node: its number, its three most frequent labels, the number of labels under it and how often they occur \
in the training rows. With --dot or --html, only the summary goes to standard output.
    """
    limits = (depth, labels, nodes)
    with step("showing the trees", outcome="Nothing was written." if dot_file or html_file else ""):
        from longtail.store import Model
        from longtail.tree_view import as_json as nested
        from longtail.tree_view import outline

        for option, file, *endings in (("--dot", dot_file, ".dot", ".gv"), ("--html", html_file, ".html", ".htm")):
            if file is not None:
                check_out_file(file, *endings, name=option)
        if label and limits != (None, None, None):
            raise InputError("--label shows whole paths: leave --depth, --labels and --nodes out.")
        loaded = Model.load(model)
        with errors_of(model):
            seen = outline(loaded)
        starts = _starts(seen, number, node)
        wanted = [loaded.labels.id_of(name, "--label", text_ids=True) for name in label or ()]
        _check_found(seen, wanted, starts)
        short = tuple(usual if limit is None else limit for limit, usual in zip(limits, _DEFAULTS, strict=True))
        branches = [] if as_json and dot_file is None else _branches(seen, starts, wanted, short)
        if dot_file is not None:
            from longtail.tree_view import dot

            _write(dot_file, dot(seen, branches, rest=not wanted))
        if html_file is not None:
            from datetime import datetime

            from longtail.tree_view import page

            text = page(seen, model.resolve().name, nodes=starts, labels=wanted, made=datetime.now())
            _write(html_file, text)
    if as_json:
        trees = [nested(seen, branch) for branch in _branches(seen, starts, wanted, limits)]
        output_json({"summary": seen.summary.as_json(), "trees": trees})
        return
    output(str(seen.summary))
    if dot_file is None and html_file is None:
        _show(seen, branches, rest=not wanted)


def _starts(seen: Outline, number: int | None, node: int | None) -> list[int]:
    """Return the nodes to start at: the roots, or those of the options."""
    n_trees, n_nodes = seen.forest.n_trees_, seen.forest.n_nodes
    if number is not None and number >= n_trees:
        raise ParameterError("--tree", number, f"must be one of the trees, 0 to {n_trees - 1}")
    if node is None:
        return list(range(n_trees)) if number is None else [number]
    if node >= n_nodes:
        raise ParameterError("--node", node, f"must be one of the nodes, 0 to {n_nodes - 1}")
    if number is not None and seen.forest.trees[node] != number:
        home = seen.forest.trees[node]
        raise ParameterError("--node", node, f"must be a node of tree {number}, and is in tree {home}")
    return [node]


def _check_found(seen: Outline, wanted: list[int], starts: list[int]) -> None:
    for label in wanted:
        holders = seen.holders(label)
        if not holders:
            raise InputError(f"The label {seen.label_name(label)} is not in any tree: training had no row with it.")
        if not any(start in seen.path(holder) for holder in holders for start in starts):
            raise InputError(
                f"The label {seen.label_name(label)} is not under that node: leave --tree and --node out to see where "
                "it is."
            )


def _branches(seen: Outline, starts: list[int], wanted: list[int], limits: tuple[int | None, ...]) -> list[Branch]:
    from longtail.tree_view import leading_to, top_of

    if wanted:
        return [branch for start in starts if (branch := leading_to(seen, start, wanted)) is not None]
    depth, labels, nodes = limits
    return [top_of(seen, start, depth=depth, labels=labels, nodes=nodes) for start in starts]


def _write(path: Path, text: str) -> None:
    from longtail.data.streams import write_whole

    with write_whole(path) as file:
        file.write(text.encode("utf-8", "replace"))
    note(f"Wrote {path}: {shown_size(path.stat().st_size)}.")


def _show(seen: Outline, branches: list[Branch], *, rest: bool) -> None:
    from longtail.tree_view import lines

    colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    styles = {"strong": partial(typer.style, bold=True), "faint": partial(typer.style, dim=True)} if colours else {}
    for branch in branches:
        drawn = lines(seen, branch, rest=rest, **styles)
        output("\n" + "\n".join(drawn))
