"""`longtail explain`: what made up the score of a label."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.app.cli.arguments import capped, find_label
from longtail.app.cli.console import give, give_json, give_table, guarded, note, step
from longtail.errors import InputError, ParameterError

if TYPE_CHECKING:
    from longtail.store import Model

_SOURCES = 5  # shown of each label; --json gives all


@guarded
def explain(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Directory of the model.", show_default=False)],
    row: Annotated[
        str,
        typer.Argument(
            metavar="TEXT-or-ROW",
            help="A text; for a model of features feature:value pairs, such as '3:0.5 17:1'; "
            "or FILE#N for row N of a file or data set, counted from 0, such as debian-tags:test#7.",
            show_default=False,
        ),
    ],
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME", help="Name or id of a label; can be repeated. The best by default."),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Labels to explain when none is named.")] = 3,
    parts: Annotated[int, typer.Option(min=1, help="Words or features to show for each.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Give everything as one JSON object.")] = False,
) -> None:
    """Show which words or features pushed a label up or down.

    What they add and the bias of the label make up its score.
    """
    with step("explaining"):
        from longtail.store import Model

        loaded = Model.load(model)
        wanted = None if label is None else [find_label(name, loaded) for name in label]
        found = loaded.explain(_row(row, loaded), wanted, k=capped(k, loaded))
    ranked = [why for why in found if not why.remark]
    if ranked and not any(why.parts for why in ranked):
        is_known = any(pulls for why in ranked for _, pulls in why.path)
        what = "Nothing in the row" if is_known else "Nothing in the row is known to the model, or"
        note(f"{what} matters to these labels: only their bias counts.")
    if as_json:
        give_json(
            {
                "labels": [
                    {
                        "label": why.label,
                        "name": why.name,
                        "score": why.score,
                        "bias": why.bias,
                        "parts": why.parts,
                        "sources": why.sources,
                        "path": [{"way": way, "parts": pulls} for way, pulls in why.path],
                        "path_name": why.path_name,
                        "path_share": why.path_share,
                        "remark": why.remark,
                    }
                    for why in found
                ]
            }
        )
        return
    for position, why in enumerate(found):
        if position:
            give("")
        amounts = [*_shortened(why.parts, parts), ("bias", why.bias), ("score", why.score)]
        give_table(why.name, ["", ""], _written(amounts))
        if why.remark:
            give(why.remark)
        if why.sources:
            give_table("where it comes from", ["", ""], _written(_shortened(why.sources, _SOURCES)))
        if why.path:
            give(f"the way down {why.path_name}: {100 * why.path_share:.0f} % of what the trees say")
            for way, pulls in why.path:
                give(f"{way:5}  " + (", ".join(f"{name} {pull:+.3g}" for name, pull in pulls) or "by the bias"))


def _shortened(amounts: list[tuple[str, float]], most: int) -> list[tuple[str, float]]:
    """The first of the amounts, and the sum of the others as one."""
    if len(amounts) <= most:
        return amounts
    return [*amounts[:most], (f"{len(amounts) - most:,} others", sum(amount for _, amount in amounts[most:]))]


def _written(amounts: list[tuple[str, float]]) -> list[list[str]]:
    """Lines of a table, all with the same decimals: three digits of the smallest amount, five of the largest at most.

    Examples
    --------
    >>> _written([("ship", 0.000716), ("score", 0.0123)])
    [['ship', '+0.000716'], ['score', '+0.012300']]
    """
    sizes = [abs(amount) for _, amount in amounts if amount and math.isfinite(amount)] or [1.0]
    wanted, most = (digits - math.floor(math.log10(size)) for digits, size in ((2, min(sizes)), (4, max(sizes))))
    decimals = max(4, min(wanted, most))
    return [[name, f"{round(amount, decimals) + 0.0:+.{decimals}f}"] for name, amount in amounts]


def _row(given: str, model: Model) -> Any:
    source, mark, number = given.rpartition("#")
    if mark and number.isdecimal() and _is_source(source):
        return _row_of(source, int(number), model)
    if model.takes_texts:
        if Path(given[:255]).is_file() or (mark and " " not in given):
            note(f"{given} is taken as a text; FILE#N with a row's number, counted from 0, stands for a row of a file.")
        return given
    import numpy as np
    import scipy.sparse as sp

    n_features = model.learner.n_features_in_
    try:
        pairs = [(int(feature), float(value)) for feature, value in (part.split(":") for part in given.split())]
    except ValueError:
        pairs = []
    columns = [feature for feature, _ in pairs]
    if not pairs or not all(0 <= feature < n_features for feature in columns) or len(set(columns)) < len(columns):
        raise ParameterError(
            "TEXT-or-ROW",
            given,
            f"must be feature:value pairs, each feature once and from 0 to {n_features - 1}, or FILE#N, "
            "because the model takes features",
        )
    order = np.argsort(columns)
    indices = np.asarray(columns, np.int32)[order]
    values = np.asarray([value for _, value in pairs], np.float32)[order]
    return sp.csr_array((values, indices, [0, len(indices)]), shape=(1, n_features))


def _is_source(text: str) -> bool:
    from longtail.corpus.registry import parse_name

    try:
        return bool(text) and (Path(text).is_file() or parse_name(text) is not None)
    except (ValueError, OSError):  # a text that is no name of a file, such as a long one
        return False


def _row_of(source: str, number: int, model: Model) -> Any:
    from longtail.corpus import load

    dataset = load(source, labels_optional=True)
    if number >= dataset.n_rows:
        raise InputError(f"has {dataset.n_rows:,} rows, counted from 0: there is no row {number:,}.", path=source)
    if model.takes_texts and dataset.texts is not None:
        return dataset.texts[number]
    if not model.takes_texts and dataset.X is not None:
        return dataset.X[[number]]
    raise InputError(f"has no {'texts' if model.takes_texts else 'features'}, which the model takes.", path=source)
