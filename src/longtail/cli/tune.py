"""`longtail tune`: a search over recipes and their parameters."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from longtail.cli.arguments import parse_recipes, parse_seconds, propensity_for, read
from longtail.cli.console import guarded, note, output, output_json, output_table, run_settings, save_plot, step
from longtail.cli.options import AsJson, Cluster, PropensityConstants, Seed, Threads, TrainRows, plot_option
from longtail.errors import InputError, Interrupted, MissingExtraError, ParameterError, counted

if TYPE_CHECKING:
    from longtail.data import Dataset
    from longtail.propensity import JainPropensity
    from longtail.tuning.front import Point
    from longtail.tuning.search import Search, SearchResult

Pick = Literal["plain", "balanced", "tail"]
_MIN_ROWS, _MIN_ROWS_PER_FOLD = 20, 5


@guarded
def tune(
    train: TrainRows,
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Time to search: 90s, 10m or 2h; a number alone is seconds.")
    ] = "10m",
    recipes: Annotated[
        str | None, typer.Option(metavar="NAME,NAME...", help="Recipes to search; by default a dozen without networks.")
    ] = None,
    objectives: Annotated[
        str, typer.Option(metavar="METRIC,METRIC", help="Two metrics: a plain one, and one for rare labels.")
    ] = "nDCG@5,PSnDCG@5",
    folds: Annotated[
        int | None, typer.Option(min=1, help="Cross-validation folds; by default 5 below 20,000 rows, else one split.")
    ] = None,
    validation_fraction: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of validation rows where there is one split.")
    ] = 0.2,
    jobs: Annotated[int | None, typer.Option(min=1, help="Parallel trials; one per thread by default.")] = None,
    threads: Threads = None,
    seed: Seed = 0,
    propensity: PropensityConstants = None,
    pick: Annotated[Pick | None, typer.Option(help="The result that --out trains; balanced by default.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="MODEL", help="Train the pick on all rows and save it.")] = None,
    plot: Annotated[Path | None, plot_option("the Pareto front")] = None,
    cluster: Cluster = None,
    as_json: AsJson = False,
) -> None:
    """Search recipes and their parameters within a time budget, by two metrics.

    Each trial is trained on a split of the rows and evaluated on the rest; splits are stratified by label. Poor \
trials are pruned. The result is the Pareto front: the trials that no other trial dominates.
    """
    _check_options(pick, out, validation_fraction)
    seconds, metrics, names = parse_seconds(budget, "--budget"), _objectives(objectives), _recipes(recipes)
    used = propensity_for(propensity, train)
    with run_settings(cluster, threads), step("searching", outcome="Nothing was trained."):
        from longtail.store.manifest import check_target
        from longtail.tuning.front import front_of, picks_of
        from longtail.tuning.search import Search

        if out is not None:
            check_target(out)
        dataset = _read(train, names, folds)
        search = Search(
            dataset, names, metrics, seconds, used, folds=folds, validation_fraction=validation_fraction,
            n_jobs=_jobs(jobs), random_state=seed,
        )  # fmt: skip
        _load_kernels(search)
        found = _searched(search)
        front = front_of(found.points)
        picks = picks_of(front)
    _check_found(found, front, budget)
    if plot is not None:
        _draw(found, front, picks, metrics, plot)
    if as_json:
        output_json(_as_json(found, front, picks, metrics))
    else:
        more = ([] if propensity is None else ["--propensity", propensity]) + (["--seed", str(seed)] if seed else [])
        _show(found, front, metrics, search.n_folds, picks, train, more)
    if found.is_stopped:
        raise _stopped(found, out, as_json)
    if out is not None:
        with run_settings(cluster, threads):
            _train(picks[pick or "balanced"], dataset, used, seed, out, pick or "balanced")


def _check_options(pick: Pick | None, out: Path | None, validation_fraction: float) -> None:
    from longtail.validation import Number, check

    if find_spec("optuna") is None:
        raise MissingExtraError("longtail tune", "tune")
    if pick is not None and out is None:
        raise ParameterError("--pick", pick, "is what --out trains: give --out too")
    check("--validation-fraction", validation_fraction, Number(above=0, below=1))


def _read(train: str, recipes: list[str], folds: int | None) -> Dataset:
    """Read the rows, and refuse those on which no trial could be trained."""
    from longtail.recipes.compose import is_network

    dataset = read(train)
    if not dataset.Y.nnz:
        raise InputError("has no labels: there is nothing to learn.", path=train)
    if dataset.n_rows < _MIN_ROWS:
        reason = f"has {counted(dataset.n_rows, 'row')}: give at least {_MIN_ROWS}, because some are held out."
        raise InputError(reason, path=train)
    network = next((name for name in recipes if is_network(name)), None)
    if network is not None and dataset.texts is None:
        raise ParameterError("--recipes", network, f"must be a recipe for features: {train} has no texts")
    most = dataset.n_rows // _MIN_ROWS_PER_FOLD
    if folds is not None and folds > most:
        raise ParameterError("--folds", folds, f"must be at most {most}: {train} has {counted(dataset.n_rows, 'row')}")
    return dataset


def _jobs(wanted: int | None) -> int:
    """Return the number of trials to run in parallel: at most one per thread, or per CPU of the cluster."""
    from longtail.config import thread_count
    from longtail.runtime.task import current_engine

    engine, cores = current_engine(), thread_count()
    most = cores if engine is None else engine.cpus
    return min(wanted or most, most)


def _check_found(found: SearchResult, front: list[Point], budget: str) -> None:
    if not front and found.reasons:
        reasons = "; ".join(f"{recipe}: {reason}" for recipe, reason in found.reasons.items())
        raise InputError(f"No recipe could be trained. {reasons}")
    if not front:
        raise InputError(f"No trial ended within {budget}: give a longer --budget or fewer --recipes.")


def _stopped(found: SearchResult, out: Path | None, as_json: bool) -> Interrupted:
    untrained = "" if out is None else f" {out} was not trained."
    trials = counted(found.trained, "trial")
    how = "the picks above say what to train" if as_json else "the commands above train the picks"
    return Interrupted(
        f"The search was stopped before its time was over: the results of {trials} are above.{untrained} "
        f"A search can't be resumed; {how}."
    )


def _searched(search: Search) -> SearchResult:
    import time

    from longtail.runtime.progress import progress_bar, show_progress

    start, shown = time.monotonic(), 0

    with progress_bar("searching", round(search.budget), "s") as advance:

        def report(found: SearchResult) -> None:
            nonlocal shown
            now = min(round(time.monotonic() - start), round(search.budget))
            best = ", ".join(
                f"{name} {max((point.scores[at] for point in found.points), default=0):.2f}"
                for at, name in enumerate(search.objectives)
            )
            advance(now - shown, f"{found.trained} trained, {found.pruned} pruned; best {best}")
            shown = now

        with show_progress(False):
            return search.run(report)


def _load_kernels(search: Search) -> None:
    """Compile the kernels, or load them from their cache, on a few rows, outside the time budget."""
    from dataclasses import replace

    from longtail.errors import LongtailError
    from longtail.recipes.compose import is_network
    from longtail.runtime.progress import show_progress

    few = min(search.dataset.n_rows, 64)
    small = replace(search, dataset=search.dataset.take(range(few)), folds=1)
    for recipe in (name for name in search.recipes if not is_network(name)):
        with show_progress(False):
            try:
                small._scored(recipe, {}, small.split(0), (0.0,), 1)
            except LongtailError:
                continue


def _draw(found: SearchResult, front: list[Point], picks: dict[str, Point], metrics: list[str], plot: Path) -> None:
    from longtail.plots.comparisons import pareto_front

    save_plot(pareto_front(found.points, front, picks, metrics), plot)


def _show(
    found: SearchResult,
    front: list[Point],
    metrics: list[str],
    folds: int,
    picks: dict[str, Point],
    train: str,
    more: list[str],
) -> None:
    """Print the Pareto front, and the commands that train the picks, with `more` options."""
    rows = []
    for point in front:
        names = ", ".join(name for name, picked in picks.items() if picked is point)
        settings = " ".join(f"{name}={value:g}" for name, value in point.settings.items())
        scores = [f"{score:.2f}" for score in point.scores]
        rows.append([point.recipe, settings, f"{point.tail:g}", *scores, f"{point.seconds:.1f}", names])
    split = f"mean of {folds} folds" if folds > 1 else "on one split"
    title = f"{len(front)} of {len(found.points)} points on the Pareto front, {split}"
    output_table(title, ["recipe", "settings", "tail", *metrics, "train s", "pick"], rows, text_columns=2)
    output(f"{counted(found.trained, 'trial')} trained to the end, {found.pruned} pruned, {found.failed} failed.")
    for recipe, reason in found.reasons.items():
        note(f"{recipe}: {reason}")
    output("\n".join(f"{name:9} {point.command(train, name, more)}" for name, point in picks.items()))


def _as_json(found: SearchResult, front: list[Point], picks: dict[str, Point], metrics: list[str]) -> dict[str, Any]:
    def described(point: Point) -> dict[str, Any]:
        scores = dict(zip(metrics, point.scores, strict=True))
        settings = {"recipe": point.recipe, "settings": dict(point.settings), "tail": point.tail}
        return {**settings, **scores, "seconds": point.seconds}

    return {
        "stopped": found.is_stopped,
        "trained": found.trained,
        "pruned": found.pruned,
        "failed": found.failed,
        "front": [described(point) for point in front],
        "picks": {name: described(point) for name, point in picks.items()},
    }


def _train(point: Point, dataset: Dataset, propensity: JainPropensity, seed: int, out: Path, pick: str) -> None:
    """Train a point on all rows."""
    import time

    from longtail.recipes.compose import learner_and_rows, plan_of
    from longtail.store import Model

    with step("training the pick", outcome="No model was written."):
        plan = plan_of(
            point.recipe, point.settings, propensity, random_state=seed, label_names=dataset.label_names,
            tail=point.tail or None,
        )  # fmt: skip
        learner, rows = learner_and_rows(plan, dataset)
        start = time.perf_counter()
        learner._fit_unchecked(rows, dataset.Y)  # the plan was checked
        training = {"seconds": round(time.perf_counter() - start, 3), "rows": dataset.n_rows, "pick": pick}
        Model(
            learner, label_names=dataset.label_names, propensity=propensity, recipe=point.recipe,
            training=training | ({"data": dataset.name} if dataset.name else {}),
        ).save(out)  # fmt: skip
    note(f"Trained {pick}, {point.recipe}, on {counted(dataset.n_rows, 'row')}; saved to {out}.")


def _objectives(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    known = re.compile(r"(PS)?(P|nDCG)@[1-9]\d?")
    if len(set(names)) != 2 or len(names) != 2 or not all(known.fullmatch(name) for name in names):
        raise ParameterError("--objectives", text, "must be two different metrics of P@k, nDCG@k, PSP@k and PSnDCG@k")
    return names


def _recipes(text: str | None) -> list[str]:
    from longtail.tuning.space import RECIPES

    return list(RECIPES) if text is None else parse_recipes(text)
