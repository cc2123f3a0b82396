"""`longtail tune`: which recipe, and with which parameters."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.app.cli.arguments import load_labelled, parse_propensity
from longtail.app.cli.clusters import OnCluster, on_cluster
from longtail.app.cli.console import give, give_json, give_table, guarded, note, step
from longtail.errors import InputError, Interrupted, MissingExtraError, ParameterError

if TYPE_CHECKING:
    from longtail.app.tuning.front import Point
    from longtail.app.tuning.search import Found, Search
    from longtail.corpus import Dataset
    from longtail.propensity import JainPropensity

_FEWEST_ROWS, _ROWS_OF_A_FOLD = 20, 5
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@guarded
def tune(
    train: Annotated[
        str, typer.Argument(metavar="TRAIN", help="File or data set's name, with labels.", show_default=False)
    ],
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="How long to search: 90s, 10m or 2h; a number alone is seconds.")
    ] = "10m",
    recipes: Annotated[
        str | None, typer.Option(metavar="NAME,NAME...", help="Recipes to search; a dozen without networks by default.")
    ] = None,
    objectives: Annotated[
        str, typer.Option(metavar="METRIC,METRIC", help="Two metrics: the plain one and the one for the tail.")
    ] = "nDCG@5,PSnDCG@5",
    folds: Annotated[
        int | None,
        typer.Option(min=1, help="Folds of a cross-validation; 5 below 20,000 rows, else 1 split.", show_default=False),
    ] = None,
    held_out: Annotated[float, typer.Option(help="Share of the rows that the one split judges by.")] = 0.2,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Trials at once; one a thread by default.", show_default=False)
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads in all; every core by default.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of splits, search and training.")] = 0,
    propensity: Annotated[
        str | None, typer.Option(metavar="A,B", help="Constants of the propensity model; the data set's by default.")
    ] = None,
    pick: Annotated[
        str | None, typer.Option(help="What --out trains: plain, balanced or tail; balanced by default.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="MODEL", help="Train the pick on all rows and save it.", show_default=False),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the front: .svg, .png or .pdf.")
    ] = None,
    cluster: OnCluster = None,
    as_json: Annotated[bool, typer.Option("--json", help="Give everything as one JSON object.")] = False,
) -> None:
    """Search recipes and their parameters within a time, by two measures at once.

    Each trial is trained on a part of the rows and judged by the others, where rare labels are on both sides. What is
    far behind is given up early. The result is the front: what nothing else beats on both measures.
    """
    from longtail.app.tuning.front import PICKS

    if find_spec("optuna") is None:
        raise MissingExtraError("longtail tune", "tune")
    if pick is not None and pick not in PICKS:
        raise ParameterError("--pick", pick, f"must be one of {', '.join(PICKS)}")
    if pick is not None and out is None:
        raise ParameterError("--pick", pick, "is what --out trains: give --out too")
    if not 0 < held_out < 1:
        raise ParameterError("--held-out", held_out, "must be a number between 0 and 1")
    seconds, measures, names = seconds_of(budget, "--budget"), _objectives(objectives), _recipes(recipes)
    with step("searching", outcome="Nothing was trained."), ExitStack() as scope:
        from longtail.app.plans import published_propensity
        from longtail.app.tuning.front import front_of, picks_of
        from longtail.app.tuning.search import Search
        from longtail.engine.pool import thread_count
        from longtail.engine.portable import current_engine
        from longtail.store.manifest import check_target

        if out is not None:
            check_target(out)
        if plot is not None:
            from longtail.app.pictures.style import check_picture

            check_picture(plot)
        used = parse_propensity(propensity) if propensity else published_propensity(train)
        with step(f"reading {train}"):
            dataset = load_labelled(train, None)
        _check_data(dataset, names, train)
        if folds is not None and folds > dataset.n_rows // _ROWS_OF_A_FOLD:
            most = dataset.n_rows // _ROWS_OF_A_FOLD
            raise ParameterError("--folds", folds, f"must be at most {most}: {train} has {dataset.n_rows} rows")
        scope.enter_context(on_cluster(cluster, threads))
        engine, cores = current_engine(), thread_count(threads)
        most = cores if engine is None else engine.cpus
        search = Search(
            dataset, names, measures, seconds, used, folds=folds, test_share=held_out, jobs=min(jobs or most, most),
            threads=cores, seed=seed,
        )  # fmt: skip
        _compiled(search)
        found = _searched(search)
        front = front_of(found.points)
        picks = picks_of(front)
    if not front and found.reasons:
        reasons = "; ".join(f"{recipe}: {reason}" for recipe, reason in found.reasons.items())
        raise InputError(f"No recipe could be trained. {reasons}")
    if not front:
        raise InputError(f"No trial ended within {budget}: give a longer --budget or fewer --recipes.")
    if plot is not None:
        with step(f"drawing {plot}"):
            from longtail.app.pictures.front import pareto_front
            from longtail.app.pictures.style import save

            save(pareto_front(found.points, front, picks, measures), plot)
    if as_json:
        give_json(_as_json(found, front, picks, measures))
    else:
        more = ([] if propensity is None else ["--propensity", propensity]) + (["--seed", str(seed)] if seed else [])
        _show(found, front, picks, measures, lambda point, name: point.command(train, name, more), search.n_folds)
    if found.is_stopped:
        untrained = "" if out is None else f" {out} was not trained."
        trials = "1 trial" if found.trained == 1 else f"{found.trained:,} trials"
        go_on = "the picks above say what to train" if as_json else "the commands above train the picks"
        raise Interrupted(
            f"The search was stopped before its time was over: what {trials} gave stands above.{untrained} "
            f"A search can't be resumed; {go_on}."
        )
    if out is not None:
        with on_cluster(cluster, threads):
            wanted = pick or "balanced"
            _train(picks[wanted], dataset, used, cores, seed, out, wanted)


def _searched(search: Search) -> Found:
    import time

    from longtail.engine.progress import progress_bar, show_progress

    start, shown = time.monotonic(), 0

    with show_progress(), progress_bar("searching", round(search.budget), "s") as advance:

        def told(found: Found) -> None:
            nonlocal shown
            now = min(round(time.monotonic() - start), round(search.budget))
            bests = [max((p.scores[at] for p in found.points), default=0) for at in range(len(search.objectives))]
            best = ", ".join(f"{name} {value:.2f}" for name, value in zip(search.objectives, bests, strict=True))
            advance(now - shown, f"{found.trained} trained, {found.pruned} given up; best {best}")
            shown = now

        with show_progress(False):
            return search.run(told)


def _compiled(search: Search) -> None:
    """Compile the kernels, or read them from their cache, on a few rows: that is no time of the search."""
    from dataclasses import replace

    from longtail.app.plans import is_network
    from longtail.engine.progress import show_progress
    from longtail.errors import LongtailError

    few = min(search.dataset.n_rows, 64)
    small = replace(search, dataset=search.dataset.take(range(few)), folds=1)
    for recipe in (name for name in search.recipes if not is_network(name)):
        with show_progress(False):
            try:
                small._scored(recipe, {}, small.split(0), (0.0,), 1)
            except LongtailError:
                continue


def _check_data(dataset: Dataset, recipes: list[str], train: str) -> None:
    """Refuse what no trial could be trained on."""
    from longtail.app.plans import is_network

    if not dataset.Y.nnz:
        raise InputError("has no labels: there is nothing to learn.", path=train)
    if dataset.n_rows < _FEWEST_ROWS:
        raise InputError(f"has {dataset.n_rows} rows: give {_FEWEST_ROWS} at least, some are judged by.", path=train)
    network = next((name for name in recipes if is_network(name)), None)
    if network is not None and dataset.texts is None:
        raise ParameterError("--recipes", network, f"must be a recipe for features: {train} has no texts")


def _show(
    found: Found,
    front: list[Point],
    picks: dict[str, Point],
    measures: list[str],
    command: Callable[[Point, str], str],
    folds: int,
) -> None:
    rows = []
    for point in front:
        names = ", ".join(name for name, picked in picks.items() if picked is point)
        settings = " ".join(f"{name}={value:g}" for name, value in point.settings.items())
        scores = [f"{score:.2f}" for score in point.scores]
        rows.append([point.recipe, settings, f"{point.tail:g}", *scores, f"{point.seconds:.1f}", names])
    title = f"{len(front)} of {len(found.points)} points that nothing beats on both, " + (
        f"mean of {folds} folds" if folds > 1 else "on one split"
    )
    give_table(title, ["recipe", "settings", "tail", *measures, "train s", "pick"], rows, text_columns=2)
    told = f"{found.trained} trials were trained to the end, {found.pruned} given up early"
    give(f"{told}, {found.failed} failed.")
    for recipe, reason in found.reasons.items():
        note(f"{recipe}: {reason}")
    for name, point in picks.items():
        give(f"{name:9} {command(point, name)}")


def _as_json(found: Found, front: list[Point], picks: dict[str, Point], measures: list[str]) -> dict[str, Any]:
    def described(point: Point) -> dict[str, Any]:
        scores = dict(zip(measures, point.scores, strict=True))
        settings = {"recipe": point.recipe, "settings": dict(point.settings), "tail": point.tail}
        return {**settings, **scores, "seconds": point.seconds}

    return {
        "stopped": found.is_stopped,
        "trained": found.trained,
        "given_up": found.pruned,
        "failed": found.failed,
        "front": [described(point) for point in front],
        "picks": {name: described(point) for name, point in picks.items()},
    }


def _train(
    point: Point, dataset: Dataset, propensity: JainPropensity, threads: int, seed: int, out: Path, pick: str
) -> None:
    """Train a point on all rows."""
    import time

    from longtail.app.cli.train import without_threads
    from longtail.app.plans import plan_of
    from longtail.engine.progress import show_progress
    from longtail.store import Model

    with step("training the pick", outcome="No model was written."), show_progress():
        plan = plan_of(
            point.recipe, point.settings, propensity, threads=threads, seed=seed, label_names=dataset.label_names,
            tail=point.tail or None,
        )  # fmt: skip
        learner: Any = plan if dataset.X is None else plan.learner
        start = time.perf_counter()
        learner.fit(dataset.texts if dataset.X is None else dataset.X, dataset.Y)
        training = {"seconds": round(time.perf_counter() - start, 3), "rows": dataset.n_rows, "pick": pick}
        Model(
            without_threads(learner), label_names=dataset.label_names, propensity=propensity, recipe=point.recipe,
            training=training | ({"data": dataset.name} if dataset.name else {}),
        ).save(out)  # fmt: skip
    note(f"Trained {pick}, {point.recipe}, on {dataset.n_rows:,} rows; saved to {out}.")


def seconds_of(text: str, option: str) -> float:
    """Seconds of a time such as 90s, 10m or 2h."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if not found or not float(found[1]):
        raise ParameterError(option, text, "must be a time such as 90s, 10m or 2h; a number alone is seconds")
    return float(found[1]) * _UNITS[found[2] or "s"]


def _objectives(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    known = re.compile(r"(PS)?(P|nDCG)@[1-9]\d?")
    if len(set(names)) != 2 or len(names) != 2 or not all(known.fullmatch(name) for name in names):
        raise ParameterError("--objectives", text, "must be two different ones of P@k, nDCG@k, PSP@k and PSnDCG@k")
    return names


def _recipes(text: str | None) -> list[str]:
    from longtail.app.tuning.space import RECIPES
    from longtail.recipes import find

    names = list(RECIPES) if text is None else [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ParameterError("--recipes", text, "must be names of recipes, parted by commas")
    for name in names:
        find(name)
    return list(dict.fromkeys(names))
