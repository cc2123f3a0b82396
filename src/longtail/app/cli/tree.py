"""`longtail tree`: the label trees of a model, to look at."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.app.cli.arguments import check_out_file, find_label
from longtail.app.cli.console import give, give_json, guarded, note, step
from longtail.errors import InputError, ParameterError

if TYPE_CHECKING:
    from longtail.app.tree import Branch, Outline

_PAGES, _GRAPHS = (".html", ".htm"), (".dot", ".gv")
_USUAL = _DEPTH, _LABELS, _NODES = 2, 8, 20


@guarded
def tree(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="Directory of a model that has label trees.", show_default=False),
    ],
    number: Annotated[
        int | None, typer.Option("--tree", min=0, metavar="N", help="Show this tree, counted from 0; all by default.")
    ] = None,
    node: Annotated[int | None, typer.Option("--node", min=0, metavar="N", help="Start at this node.")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME", help="Show the ways to this label, by name or id; can be repeated."),
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(min=0, metavar="D", help=f"Levels to go down: {_DEPTH}, with --json all.", show_default=False),
    ] = None,
    labels: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help=f"Labels to show of a node: {_LABELS}, with --json all.", show_default=False
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help=f"Nodes to show under a node: {_NODES}, with --json all.", show_default=False
        ),
    ] = None,
    dot_file: Annotated[
        Path | None,
        typer.Option("--dot", metavar="FILE", help="Write what would be shown for Graphviz, as .dot or .gv."),
    ] = None,
    html_file: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write a page that opens node by node, whole trees, as .html."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Give the trees as one JSON object.")] = False,
) -> None:
    """Show the label trees of a model.

    Each node has a number, its three most frequent labels as a name, how many labels stand under it and how often \
they were recorded in training rows. With --dot or --html only the summary goes to standard output.
    """
    with step("showing the trees", outcome="Nothing was written." if dot_file or html_file else ""):
        from longtail.app.tree import as_json as nested
        from longtail.app.tree import outline
        from longtail.store import Model

        for option, file, endings in (("--dot", dot_file, _GRAPHS), ("--html", html_file, _PAGES)):
            if file is not None:
                check_out_file(file)
                if file.suffix.lower() not in endings:
                    raise ParameterError(option, str(file), f"must end in {' or '.join(endings)}")
        given = (depth, labels, nodes)
        if label and given != (None, None, None):
            raise InputError("--label shows whole ways: leave --depth, --labels and --nodes out.")
        loaded = Model.load(model)
        try:
            seen = outline(loaded)
        except InputError as error:
            raise InputError(error.reason, path=model) from None
        begins = _begins(seen, number, node)
        wanted = [find_label(name, loaded) for name in label or ()]
        _check_found(seen, wanted, begins)
        short = tuple(usual if limit is None else limit for limit, usual in zip(given, _USUAL, strict=True))
        found = {}
        if as_json:
            trees = [nested(seen, branch) for branch in _branches(seen, begins, wanted, given)]
            found = {"summary": seen.summary.as_json(), "trees": trees}
        branches = [] if as_json and dot_file is None else _branches(seen, begins, wanted, short)
        files = {}
        if dot_file is not None:
            from longtail.app.tree import dot

            files[dot_file] = dot(seen, branches, rest=not wanted)
        if html_file is not None:
            from datetime import datetime

            from longtail.app.tree import page

            files[html_file] = page(seen, model.resolve().name, nodes=begins, labels=wanted, made=datetime.now())
        for path, text in files.items():
            _write(path, text)
    if as_json:
        give_json(found)
        return
    give(str(seen.summary))
    if dot_file is None and html_file is None:
        _show(seen, branches, rest=not wanted)


def _begins(seen: Outline, number: int | None, node: int | None) -> list[int]:
    """Nodes to start at: roots, or the one that was asked for."""
    n_trees, n_nodes = seen.forest.n_trees_, seen.forest.n_nodes
    if number is not None and number >= n_trees:
        raise ParameterError("--tree", number, f"must be one of the trees, 0 to {n_trees - 1}")
    if node is None:
        return list(range(n_trees)) if number is None else [number]
    if node >= n_nodes:
        raise ParameterError("--node", node, f"must be one of the nodes, 0 to {n_nodes - 1}")
    if number is not None and seen.forest.trees[node] != number:
        home = seen.forest.trees[node]
        raise ParameterError("--node", node, f"must be a node of tree {number}, and stands in tree {home}")
    return [node]


def _check_found(seen: Outline, wanted: list[int], begins: list[int]) -> None:
    for label in wanted:
        holders = seen.holders(label)
        if not holders:
            raise InputError(f"The label {seen.label_name(label)} stands in no tree: training had no row with it.")
        if not any(begin in seen.path(holder) for holder in holders for begin in begins):
            raise InputError(
                f"The label {seen.label_name(label)} stands elsewhere: leave --tree and --node out to see where."
            )


def _branches(seen: Outline, begins: list[int], wanted: list[int], limits: tuple[int | None, ...]) -> list[Branch]:
    from longtail.app.tree import leading_to, top_of

    if wanted:
        return [branch for begin in begins if (branch := leading_to(seen, begin, wanted)) is not None]
    depth, labels, nodes = limits
    return [top_of(seen, begin, depth=depth, labels=labels, nodes=nodes) for begin in begins]


def _write(path: Path, text: str) -> None:
    from longtail.corpus.streams import write_whole

    with write_whole(path) as file:
        file.write(text.encode("utf-8", "replace"))
    size = path.stat().st_size
    note(f"Wrote {path}: {size / 1e6:,.1f} MB." if size >= 1e5 else f"Wrote {path}: {size / 1e3:,.1f} kB.")


def _show(seen: Outline, branches: list[Branch], *, rest: bool) -> None:
    from longtail.app.tree import lines

    colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    styles = {"strong": _strong, "faint": _faint} if colours else {}
    for branch in branches:
        drawn = lines(seen, branch, rest=rest, **styles)
        give("\n" + "\n".join(drawn))


def _strong(text: str) -> str:
    return typer.style(text, bold=True)


def _faint(text: str) -> str:
    return typer.style(text, dim=True)
