"""`longtail explain`: the contributions to the score of a label."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.arguments import capped, read
from longtail.cli.console import guarded, note, output, output_json, output_table, step
from longtail.cli.options import AsJson, ModelPath, k_option, labels_option
from longtail.errors import InputError, ParameterError, counted

if TYPE_CHECKING:
    from longtail.learners import Explanation
    from longtail.store import Model

_MOST_DIGITS = 18  # of the number of a row
_SOURCES = 5  # shown per label; --json prints all


@guarded
def explain(
    model: ModelPath,
    row: Annotated[
        str,
        typer.Argument(
            metavar="TEXT-or-ROW",
            help="A text; feature:value pairs such as '3:0.5 17:1' for a model of features; or FILE#N for row N of a "
            "file or data set, counted from 0, such as debian-tags:test#7.",
            show_default=False,
        ),
    ],
    label: Annotated[list[str] | None, labels_option("Label to explain, in place of the best ones")] = None,
    k: Annotated[int, k_option("Number of labels to explain when none is named")] = 3,
    parts: Annotated[int, typer.Option(min=1, help="Number of words or features to show per label.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show which words or features raised or lowered the score of a label.

    The contributions and the bias of the label add up to its score.
    """
    with step("explaining"):
        from longtail.store import Model

        loaded = Model.load(model)
        wanted = None if label is None else [loaded.labels.id_of(name, "--label", text_ids=True) for name in label]
        found = loaded.explain(_row(row, loaded), wanted, k=capped(k, loaded))
    ranked = [why for why in found if not why.remark]
    if ranked and not any(why.parts for why in ranked):
        is_known = any(pulls for why in ranked for _, pulls in why.path)
        what = "Nothing in the row" if is_known else "Nothing in the row is known to the model, or"
        note(f"{what} matters to these labels: only their bias counts.")
    if as_json:
        output_json({"labels": [_as_json(why) for why in found]})
        return
    for position, why in enumerate(found):
        if position:
            output("")
        _output(why, parts)


def _as_json(why: Explanation) -> dict[str, Any]:
    names = ("label", "name", "score", "bias", "parts", "sources", "path_name", "path_share", "remark")
    path = [{"name": name, "parts": pulls} for name, pulls in why.path]
    return {**{name: getattr(why, name) for name in names}, "path": path}


def _output(why: Explanation, parts: int) -> None:
    amounts = [*_largest(why.parts, parts), ("bias", why.bias), ("score", why.score)]
    output_table(why.name, ["", ""], _cells(amounts))
    if why.remark:
        output(why.remark)
    if why.sources:
        output_table("Sources", ["", ""], _cells(_largest(why.sources, _SOURCES)))
    if why.path:
        output(f"Path through {why.path_name}: {100 * why.path_share:.0f} % of the score of the trees")
        for step_name, pulls in why.path:
            output(f"{step_name:5}  " + (", ".join(f"{name} {pull:+.3g}" for name, pull in pulls) or "bias only"))


def _largest(amounts: list[tuple[str, float]], most: int) -> list[tuple[str, float]]:
    """Return the first amounts, and the sum of the others as one."""
    if len(amounts) <= most:
        return amounts
    return [*amounts[:most], (f"{len(amounts) - most:,} others", sum(amount for _, amount in amounts[most:]))]


def _cells(amounts: list[tuple[str, float]]) -> list[list[str]]:
    """Format amounts with the same number of decimals: three digits of the smallest, at most five of the largest.

    Examples
    --------
    >>> _cells([("ship", 0.000716), ("score", 0.0123)])
    [['ship', '+0.000716'], ['score', '+0.012300']]
    """
    sizes = [abs(amount) for _, amount in amounts if amount and math.isfinite(amount)] or [1.0]
    wanted, most = (digits - math.floor(math.log10(size)) for digits, size in ((2, min(sizes)), (4, max(sizes))))
    decimals = max(4, min(wanted, most))
    return [[name, f"{round(amount, decimals) + 0.0:+.{decimals}f}"] for name, amount in amounts]


def _row(given: str, model: Model) -> Any:
    source, mark, number = given.rpartition("#")
    if mark and number.isdecimal() and _is_source(source):
        return _row_of(source, number, model)
    if model.takes_texts:
        if Path(given[:255]).is_file() or (mark and " " not in given):
            note(
                f"{given} is taken as a text; to explain a row of a file, give FILE#N with its number, counted from 0."
            )
        return given
    import numpy as np
    import scipy.sparse as sp

    n_features = model.learner.n_features_in_
    try:
        pairs = [(int(feature), float(value)) for feature, value in (part.split(":") for part in given.split())]
    except ValueError:
        pairs = []
    columns = [feature for feature, _ in pairs]
    are_known = all(0 <= feature < n_features for feature in columns) and len(set(columns)) == len(columns)
    largest = float(np.finfo(np.float32).max)
    if not pairs or not are_known or not all(abs(value) <= largest for _, value in pairs):
        raise ParameterError(
            "TEXT-or-ROW",
            given,
            f"must be feature:value pairs, each feature once and from 0 to {n_features - 1}, each value from "
            f"-{largest:.2g} to {largest:.2g}, or FILE#N, because the model takes features",
        )
    order = np.argsort(columns)
    indices = np.asarray(columns, np.int32)[order]
    values = np.asarray([value for _, value in pairs], np.float32)[order]
    return sp.csr_array((values, indices, [0, len(indices)]), shape=(1, n_features))


def _is_source(text: str) -> bool:
    from longtail.data.registry import parse_name

    try:
        return bool(text) and (Path(text).is_file() or parse_name(text) is not None)
    except (ValueError, OSError):  # a text that can't be the name of a file
        return False


def _row_of(source: str, number: str, model: Model) -> Any:
    dataset = read(source, labels_optional=True)
    row = int(number) if len(number) <= _MOST_DIGITS else dataset.n_rows
    if row >= dataset.n_rows:
        shown = number if len(number) <= _MOST_DIGITS else f"{number[:_MOST_DIGITS]}..."
        raise InputError(f"has {counted(dataset.n_rows, 'row')}, counted from 0: there is no row {shown}.", path=source)
    if model.takes_texts and dataset.texts is not None:
        return dataset.texts[row]
    if not model.takes_texts and dataset.X is not None:
        return dataset.X[[row]]
    raise InputError(f"has no {'texts' if model.takes_texts else 'features'}, which the model takes.", path=source)
