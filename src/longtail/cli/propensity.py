"""`longtail propensity`: propensity models fitted to your own data, and their effect on evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from longtail.cli.arguments import parse_cutoffs, parse_numbers, parse_propensity, propensity_for, read
from longtail.cli.console import guarded, named_as, note, output, output_json, output_table, save_plot, step
from longtail.cli.options import (
    AsJson,
    Cutoffs,
    PropensityConstants,
    Resamples,
    Seed,
    TestRows,
    TrainRows,
    plot_option,
    propensity_option,
    rows_argument,
)
from longtail.errors import InputError, ParameterError
from longtail.kernels.types import Int64
from longtail.runtime.disk import check_out_file

if TYPE_CHECKING:
    from longtail.propensity import FittedPropensity, JainPropensity
    from longtail.propensity.points import PropensityPoints

propensity = typer.Typer(help="Fit, show and vary the propensities of labels.", no_args_is_help=True)

_FEW_BINS = 10


def _file(help: str, *names: str) -> Any:
    return typer.Option(*names, metavar="FILE", help=help)


PlotFile = Annotated[Path | None, plot_option("the result")]


@propensity.command()
@guarded
def fit(
    data: TrainRows,
    hierarchy: Annotated[Path | None, _file("Label hierarchy: pairs (child, parent), JSON or SKOS.")] = None,
    complete: Annotated[Path | None, _file("Rows of TRAIN, some or all, with their complete labels.")] = None,
    observed: Annotated[Path | None, _file("With --complete: the same rows as recorded, if not in TRAIN.")] = None,
    substitutes: Annotated[Path | None, _file("Pairs of items viewed together: one line item<TAB>item each.")] = None,
    bought: Annotated[
        Path | None,
        _file(
            "With --substitutes: pairs bought together, one line label<TAB>item each, as names or ids. By default the "
            "rows of TRAIN, numbered from 0, are the items."
        ),
    ] = None,
    min_descendants: Annotated[int, typer.Option(min=1, help="With --hierarchy: minimum descendants per label.")] = 5,
    labels_per_bin: Annotated[int, typer.Option(min=1, help="Labels of similar frequency to average over.")] = 20,
    average: Annotated[
        Literal["labels", "rows"] | None,
        typer.Option(help="Average a bin over its labels, or over their rows (the default with --complete)."),
    ] = None,
    level: Annotated[float, typer.Option(metavar="SHARE", help="Confidence level of the intervals.")] = 0.95,
    resamples: Resamples = 500,
    seed: Seed = 0,
    save_to: Annotated[Path | None, _file("Write the fitted model to this file as JSON.", "--save")] = None,
    plot: PlotFile = None,
    as_json: AsJson = False,
) -> None:
    """Fit the constants A and B of the propensity model to your own data.

    Give one source of the labels that should have been recorded: a label hierarchy, the complete labels of some rows, \
or items that substitute each other.
    """
    sources = {
        "--hierarchy": hierarchy, "--complete": complete, "--substitutes": substitutes, "--observed": observed,
        "--bought": bought,
    }  # fmt: skip
    with step("fitting", outcome="Nothing was written."):
        from longtail.propensity import describe_propensity, write_propensity

        source = _source(sources)
        if save_to is not None:
            check_out_file(save_to, name="--save")
        options: dict[str, Any] = {"labels_per_bin": labels_per_bin} | ({"average": average} if average else {})
        if hierarchy is not None:
            options["min_descendants"] = min_descendants
        points = _points(data, source, sources, options)
        with named_as(level="--level"):
            fitted = points.fit(level=level, resamples=resamples, random_state=seed)
        if plot is not None:
            from longtail.plots.by_frequency import fitted_curve

            save_plot(fitted_curve(fitted), plot)
        if save_to is not None:
            write_propensity(fitted, save_to)
            note(f"Wrote {save_to}.")
    if as_json:
        output_json(describe_propensity(fitted))
    else:
        _output_fit(fitted, data)


def _source(given: Mapping[str, Path | None]) -> str:
    """Return the one source among the options, and refuse options that belong to others."""
    chosen = [name for name in ("--hierarchy", "--complete", "--substitutes") if given[name] is not None]
    if len(chosen) != 1:
        options = " and ".join(chosen) or "none of them"
        raise ParameterError("source", options, "must be one of --hierarchy, --complete and --substitutes")
    for name, needed in (("--observed", "--complete"), ("--bought", "--substitutes")):
        if given[name] is not None and needed not in chosen:
            raise ParameterError(name, str(given[name]), f"goes with {needed}")
    return chosen[0]


def _points(data: str, source: str, given: Mapping[str, Any], options: dict[str, Any]) -> PropensityPoints:
    from longtail.cli.propensity_sources import from_complete, from_hierarchy, from_substitutes

    dataset = read(data)
    if source == "--hierarchy":
        return from_hierarchy(dataset, given[source], **options)
    if source == "--complete":
        return from_complete(dataset, given[source], given["--observed"], **options)
    return from_substitutes(dataset, given[source], given["--bought"], **options)


def _output_fit(fitted: FittedPropensity, data: str) -> None:
    from longtail.plots.by_frequency import PUBLISHED
    from longtail.propensity import JainPropensity

    points = fitted.points_
    a_interval, b_interval = ("{:.3f} to {:.3f}".format(*ends) for ends in (fitted.a_interval_, fitted.b_interval_))
    rows = [["fitted", f"{fitted.a:.3f}", a_interval, f"{fitted.b:.3f}", b_interval, f"{fitted.error_:.3f}"]]
    for name, (a, b) in PUBLISHED.items():
        distance = fitted.distance(JainPropensity(a=a, b=b))
        rows.append([f"published: {name}", f"{a:g}", "", f"{b:g}", "", f"{distance:.3f}"])
    interval = f"{100 * fitted.level_:g} % interval"
    output_table(
        f"{data}: {int(points.n_labels.sum()):,} labels in {len(points):,} bins, {points.n_rows:,} rows",
        ["", "A", interval, "B", interval, "distance of bins"],
        rows,
    )
    if fitted.a_interval_[0] <= 0:
        output("The bins don't show that propensity rises with the count.")
    if fitted.at_bound:
        output("A or B is at the bound of its range: the bins don't determine it, and its interval is not reliable.")
    elif len(points) < _FEW_BINS:
        output(f"With {len(points)} bins the intervals are not reliable: use more labels, or smaller bins.")
    else:
        output(f"To use it: --propensity {fitted.a:.4g},{fitted.b:.4g}")


@propensity.command()
@guarded
def show(
    data: Annotated[str | None, rows_argument("TRAIN", "Training rows with labels")] = None,
    constants: PropensityConstants = None,
    rows: Annotated[int | None, typer.Option(min=3, help="Number of training rows, without TRAIN.")] = None,
    plot: PlotFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the propensities and the costs of labels by their training rows."""
    model = propensity_for(constants, data or "")
    with step("reading"):
        import numpy as np

        counts: Int64 = np.empty(0, np.int64)
        if data is not None:
            if rows is not None:
                raise ParameterError("--rows", rows, "can't be given with TRAIN")
            dataset = read(data)
            if not dataset.n_rows:
                raise InputError("has no rows: give rows with labels.", path=data)
            counts, rows = dataset.label_counts, dataset.n_rows
        elif rows is None:
            rows = _published_rows(constants)
    shown = _round_counts(int(counts.max(initial=0)) or rows, unseen=data is None or bool((counts == 0).any()))
    table = _table(model, shown, rows, None if data is None else counts)
    if plot is not None:
        from longtail.plots.by_frequency import propensities
        from longtail.plots.curves import propensity_curve

        name = f"A = {model.a:g}, B = {model.b:g}"
        save_plot(propensities([propensity_curve([name], model, counts if len(counts) else shown, rows)]), plot)
    if as_json:
        output_json({"a": float(model.a), "b": float(model.b), "rows": rows, "table": table})
        return
    columns = ["rows of the label", "propensity p", "1/p", "PW cost 2/p - 1", "labels up to here"]
    formats = (",", ".3f", ".2f", ".2f", ",")
    cells = [[format(value, form) for value, form in zip(row.values(), formats, strict=False)] for row in table]
    title = f"{data}: " * (data is not None) + f"A = {model.a:.4g}, B = {model.b:.4g}, {rows:,} rows"
    output_table(title, columns[: len(cells[0])], cells, text_columns=0)


def _table(model: JainPropensity, shown: list[int], n_rows: int, counts: Int64 | None) -> list[dict[str, Any]]:
    """Return the propensity and the cost of labels with these numbers of training rows."""
    from longtail.weighting import PW

    costs = PW(propensity=model).costs(shown, n_rows).positive
    return [
        {"training_rows": count, "propensity": float(p), "inverse_propensity": float(1 / p), "pw_cost": float(cost)}
        | ({} if counts is None else {"labels_up_to": int((counts <= count).sum())})
        for count, p, cost in zip(shown, model.propensities(shown, n_rows), costs, strict=True)
    ]


@propensity.command()
@guarded
def sensitivity(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL", help="Directories of models.", show_default=False)],
    test: TestRows,
    a: Annotated[str, typer.Option("--a", metavar="A,A...", help="Values of A.")] = "0.4,0.55,0.7",
    b: Annotated[str, typer.Option("--b", metavar="B,B...", help="Values of B.")] = "0.5,1.5,2.6",
    k: Cutoffs = None,
    constants: Annotated[
        str | None,
        propensity_option("Propensity model whose order of the models is the reference", "that of the first model"),
    ] = None,
    plot: PlotFile = None,
    as_json: AsJson = False,
) -> None:
    """Show how PSP@k, and the order of models by it, change with A and B.

    The models must have been trained on the same rows. A star marks constants that change the order.
    """
    ks, grid_a, grid_b = parse_cutoffs(k), _grid("--a", a), _grid("--b", b)
    base = parse_propensity(constants) if constants else None
    with step("measuring"):
        from longtail.cli.propensity_sources import measured

        result = measured(models, test, a=grid_a, b=grid_b, ks=ks, base=base)
    if plot is not None:
        from longtail.plots.comparisons import sensitivity_curves

        save_plot(sensitivity_curves(result), plot)
    if as_json:
        output_json({"base": list(result.base), "models": list(result.models), "rows": result.rows()})
        return
    for cutoff in result.ks:
        rows = []
        for row in (row for row in result.rows() if row["k"] == cutoff):
            psp = [f"{row['psp'][name]:.2f}" for name in result.models]
            rows.append([f"{row['a']:g}", f"{row['b']:g}", *psp, "*" * row["changed"]])
        order = " > ".join(result.base_order(cutoff))
        title = f"PSP@{cutoff} on {test}, percent; with A = {result.base[0]:g}, B = {result.base[1]:g}: {order}"
        output_table(title, ["A", "B", *result.models, "other order"], rows, text_columns=0)


def _published_rows(constants: str | None) -> int:
    from longtail.data.registry import parse_name

    named = None if constants is None else parse_name(constants)
    if named is None:
        raise InputError("The number of training rows is unknown: give TRAIN or --rows.")
    return named[0].train_rows


def _round_counts(largest: int, *, unseen: bool) -> list[int]:
    """Return 0 if labels are unseen, 1, 2, 5, 10, 20, 50, ... and the largest count."""
    from longtail.plots.formats import round_numbers

    return [0] * unseen + round_numbers(largest) + [largest]


def _grid(option: str, text: str) -> tuple[float, ...]:
    from longtail.propensity import JainPropensity

    try:
        numbers = tuple(dict.fromkeys(parse_numbers(text, float)))
        for number in numbers:
            JainPropensity(**{option[2:]: number}).inverse([0, 1], 3)
    except ValueError:
        numbers = ()
    if not numbers:
        least = "of at least 0" if option == "--a" else "above 0"
        raise ParameterError(option, text, f"must be numbers {least}, separated by commas")
    return numbers
