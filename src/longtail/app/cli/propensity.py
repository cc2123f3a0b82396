"""`longtail propensity`: the constants of the propensity model from one's own data, and what hangs on them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from longtail.app.cli.arguments import check_out_file, parse_places, parse_propensity
from longtail.app.cli.console import give, give_json, give_table, guarded, note, step
from longtail.errors import InputError, ParameterError

if TYPE_CHECKING:
    from longtail.propensity import FittedPropensity, JainPropensity

propensity = typer.Typer(help="Estimate, show and question the propensities of labels.", no_args_is_help=True)

_FEW_BINS = 10

Picture = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Draw a picture here: .png, .svg or .pdf.")]
Json = Annotated[bool, typer.Option("--json", help="Give the result as one JSON object.")]


@propensity.command()
@guarded
def fit(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="Training rows: a file in XC text, JSONL or .npz format, or a data set's name.",
            show_default=False,
        ),
    ],
    hierarchy: Annotated[
        Path | None,
        typer.Option(metavar="PAIRS", help="Label hierarchy: a line for each child<TAB>parent, names or ids."),
    ] = None,
    complete: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Rows of DATA, or all of them, with their complete labels.")
    ] = None,
    observed: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --complete: the same rows as recorded, if they are not in DATA."),
    ] = None,
    substitutes: Annotated[
        Path | None,
        typer.Option(metavar="PAIRS", help="Items viewed together: a line for each item<TAB>item, as with --bought."),
    ] = None,
    bought: Annotated[
        Path | None,
        typer.Option(
            metavar="PAIRS",
            help="With --substitutes: a line for each label<TAB>item it was bought with, names or ids. "
            "Without it the rows of DATA, numbered from 0, are the items.",
        ),
    ] = None,
    min_descendants: Annotated[int, typer.Option(min=1, help="With --hierarchy: descendants that a label needs.")] = 5,
    labels_per_bin: Annotated[int, typer.Option(min=1, help="Labels of similar frequency to average over.")] = 20,
    average: Annotated[
        Literal["labels", "rows"] | None,
        typer.Option(
            help="What counts the same in a bin: its labels, or (the default with --complete) the rows behind them."
        ),
    ] = None,
    level: Annotated[float, typer.Option(metavar="SHARE", help="Level of the intervals.")] = 0.95,
    resamples: Annotated[int, typer.Option(min=1, help="Bootstrap resamples for the intervals.")] = 500,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resampling.")] = 0,
    save_to: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Write the fitted model here as JSON.")
    ] = None,
    out: Picture = None,
    as_json: Json = False,
) -> None:
    """Fit A and B of the propensity model to your own data.

    Give one source of what should have been recorded: a label hierarchy, the complete labels of some rows, or items \
that can stand for each other.
    """
    with step("fitting", outcome="Nothing was written."):
        from longtail.app.cli.propensity_sources import from_complete, from_hierarchy, from_substitutes
        from longtail.app.pictures.style import check_picture, save
        from longtail.corpus import load
        from longtail.engine.progress import show_progress
        from longtail.propensity import describe_propensity, write_propensity

        sources = {"--hierarchy": hierarchy, "--complete": complete, "--substitutes": substitutes}
        chosen = [name for name, path in sources.items() if path is not None]
        if len(chosen) != 1:
            given = " and ".join(chosen) or "none of them"
            raise ParameterError("source", given, "must be one of --hierarchy, --complete and --substitutes")
        for name, path, needed in (("--observed", observed, complete), ("--bought", bought, substitutes)):
            if path is not None and needed is None:
                raise ParameterError(
                    name, str(path), f"goes with {'--complete' if path is observed else '--substitutes'}"
                )
        if out is not None:
            check_picture(out)
        if save_to is not None:
            check_out_file(save_to)
        options: dict[str, Any] = {"labels_per_bin": labels_per_bin} | ({"average": average} if average else {})
        with show_progress():
            with step(f"reading {data}"):
                dataset = load(data)
            if hierarchy is not None:
                points = from_hierarchy(dataset, hierarchy, min_descendants=min_descendants, **options)
            elif complete is not None:
                points = from_complete(dataset, complete, observed, **options)
            else:
                points = from_substitutes(dataset, substitutes or Path(), bought, **options)
            fitted = points.fit(level=level, resamples=resamples, seed=seed)
        if out is not None:
            from longtail.app.pictures.propensity_fit import fitted_curve

            save(fitted_curve(fitted), out)
        if save_to is not None:
            write_propensity(fitted, save_to)
    if as_json:
        give_json(describe_propensity(fitted))
    else:
        _give_fit(fitted, data)
    for path, what in ((out, "the picture"), (save_to, "the model")):
        if path is not None:
            note(f"Wrote {what} to {path}.")


def _give_fit(fitted: FittedPropensity, data: str) -> None:
    from longtail.app.pictures.propensity_fit import PUBLISHED
    from longtail.propensity import JainPropensity

    points = fitted.points_
    rows = [
        [
            "fitted",
            f"{fitted.a:.3f}",
            "{:.3f} to {:.3f}".format(*fitted.a_interval_),
            f"{fitted.b:.3f}",
            "{:.3f} to {:.3f}".format(*fitted.b_interval_),
            f"{fitted.error_:.3f}",
        ]
    ]
    for name, (a, b) in PUBLISHED.items():
        distance = fitted.distance(JainPropensity(a=a, b=b))
        rows.append([f"published: {name}", f"{a:g}", "", f"{b:g}", "", f"{distance:.3f}"])
    interval = f"{100 * fitted.level_:g} % interval"
    give_table(
        f"{data}: {int(points.n_labels.sum()):,} labels in {len(points):,} bins, {points.n_rows:,} rows",
        ["", "A", interval, "B", interval, "distance of bins"],
        rows,
    )
    if fitted.a_interval_[0] <= 0:
        give("The bins don't show that propensity rises with the count.")
    if fitted.at_bound:
        give(
            "A or B lies at the edge of where it is sought: the bins don't determine it, and its interval means little."
        )
    elif len(points) < _FEW_BINS:
        give(f"With {len(points)} bins the intervals mean little: use more labels, or smaller bins.")
    else:
        give(f"To use it: --propensity {fitted.a:.4g},{fitted.b:.4g}")


@propensity.command()
@guarded
def show(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATA]",
            help="Training rows: a file in XC text, JSONL or .npz format, or a data set's name.",
            show_default=False,
        ),
    ] = None,
    constants: Annotated[
        str | None,
        typer.Option(
            "--propensity",
            metavar="A,B",
            help="Constants of the model, a data set that has published ones, or a file that fit --save wrote.",
        ),
    ] = None,
    rows: Annotated[int | None, typer.Option(min=3, help="Training rows, where there is no DATA.")] = None,
    out: Picture = None,
    as_json: Json = False,
) -> None:
    """Show what the propensity model makes of the counts of your labels."""
    from longtail.app.pictures.style import check_picture, save

    if out is not None:
        check_picture(out)
    model = _propensity(constants, data)
    with step("reading"):
        import numpy as np

        from longtail.corpus import load
        from longtail.engine.progress import show_progress
        from longtail.weighting import PW

        if data is not None:
            if rows is not None:
                raise ParameterError("--rows", rows, "is for when there is no DATA")
            with show_progress():
                dataset = load(data)
            counts, n_rows = dataset.label_counts, dataset.n_rows
        else:
            n_rows = _published_rows(constants) if rows is None else rows
            counts = np.empty(0, np.int64)
    shown = _round_counts(int(counts.max(initial=0)) or n_rows, unseen=data is None or bool((counts == 0).any()))
    p = model.propensities(shown, n_rows)
    costs = PW(propensity=model).costs(shown, n_rows).positive
    table = [
        {"count": count, "propensity": float(one), "inverse_propensity": float(1 / one), "pw_cost": float(cost)}
        | ({} if data is None else {"labels_up_to": int((counts <= count).sum())})
        for count, one, cost in zip(shown, p, costs, strict=True)
    ]
    if out is not None:
        from longtail.app.pictures.propensity import propensities
        from longtail.app.report.curves import propensity_curve

        name = f"A = {model.a:g}, B = {model.b:g}"
        save(propensities([propensity_curve([name], model, counts if len(counts) else shown, n_rows)]), out)
        note(f"Wrote the picture to {out}.")
    if as_json:
        give_json({"a": float(model.a), "b": float(model.b), "rows": n_rows, "table": table})
        return
    columns = ["rows of the label", "propensity p", "1/p", "PW cost 2/p - 1", "labels up to here"]
    cells = [
        [
            f"{row['count']:,}",
            f"{row['propensity']:.3f}",
            f"{row['inverse_propensity']:.2f}",
            f"{row['pw_cost']:.2f}",
            *([f"{row['labels_up_to']:,}"] if data is not None else []),
        ]
        for row in table
    ]
    title = f"A = {model.a:.4g}, B = {model.b:.4g}, {n_rows:,} rows"
    give_table(f"{data}: {title}" if data else title, columns[: len(cells[0])], cells, text_columns=0)


@propensity.command()
@guarded
def sensitivity(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL...", help="Directories of models.", show_default=False)
    ],
    test: Annotated[
        str,
        typer.Argument(
            metavar="TEST",
            help="File in XC text, JSONL or .npz format, or a data set's name such as debian-tags:test.",
            show_default=False,
        ),
    ],
    a: Annotated[str, typer.Option("--a", metavar="A,A...", help="Values of A.")] = "0.4,0.55,0.7",
    b: Annotated[str, typer.Option("--b", metavar="B,B...", help="Values of B.")] = "0.5,1.5,2.6",
    k: Annotated[str, typer.Option("-k", metavar="K,K...", help="Places at which to measure.")] = "1,3,5",
    constants: Annotated[
        str | None,
        typer.Option(
            "--propensity", metavar="A,B", help="Constants to compare the order with; by default the first model's."
        ),
    ] = None,
    out: Picture = None,
    as_json: Json = False,
) -> None:
    """Show how PSP@k, and the order of models by it, change with A and B.

    The models must have been trained on the same rows. A star marks constants under which they stand in another order.
    """
    from longtail.app.pictures.style import check_picture, save

    ks, grid_a, grid_b = parse_places(k), _numbers("--a", a), _numbers("--b", b)
    base = _propensity(constants, None) if constants else None
    if out is not None:
        check_picture(out)
    with step("measuring"):
        from longtail.app.cli.propensity_sources import measured

        result = measured(models, test, a=grid_a, b=grid_b, ks=ks, base=base)
    if out is not None:
        from longtail.app.pictures.sensitivity import sensitivity_curves

        save(sensitivity_curves(result), out)
        note(f"Wrote the picture to {out}.")
    if as_json:
        give_json({"base": list(result.base), "models": list(result.models), "rows": result.rows()})
        return
    for place in result.ks:
        rows = [
            [
                f"{row['a']:g}",
                f"{row['b']:g}",
                *(f"{row['psp'][name]:.2f}" for name in result.models),
                "*" if row["changed"] else "",
            ]
            for row in result.rows()
            if row["k"] == place
        ]
        order = " > ".join(result.base_order(place))
        title = f"PSP@{place} on {test}, percent; with A = {result.base[0]:g}, B = {result.base[1]:g}: {order}"
        give_table(title, ["A", "B", *result.models, "other order"], rows, text_columns=0)


def _propensity(constants: str | None, data: str | None) -> JainPropensity:
    from longtail.propensity import JainPropensity, preset, read_propensity

    if constants is None:
        return preset((data or "").partition(":")[0], default=JainPropensity())
    return read_propensity(constants) if Path(constants).is_file() else parse_propensity(constants)


def _published_rows(constants: str | None) -> int:
    from longtail.corpus.registry import parse_name

    named = None if constants is None else parse_name(constants)
    if named is None:
        raise InputError("The number of training rows is not known: give DATA or --rows.")
    return named[0].train_rows


def _round_counts(largest: int, *, unseen: bool) -> list[int]:
    """Give 0 if labels are unseen, 1, 2, 5, 10, 20, 50, ... and the largest count."""
    steps = [digit * 10**power for power in range(len(str(largest))) for digit in (1, 2, 5)]
    return [0] * unseen + [step for step in steps if step < largest] + [largest]


def _numbers(option: str, text: str) -> tuple[float, ...]:
    from longtail.propensity import JainPropensity

    try:
        numbers = tuple(dict.fromkeys(float(part) for part in text.split(",")))
        for number in numbers:
            JainPropensity(**{option[2:]: number}).inverse([0, 1], 3)
    except ValueError:
        least = "of at least 0" if option == "--a" else "above 0"
        raise ParameterError(option, text, f"must be numbers {least} with commas between") from None
    return numbers
