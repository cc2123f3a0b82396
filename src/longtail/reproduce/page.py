"""The page of all results (benchmarks/results/reproduction.md): every recipe, and the tables of all papers."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from longtail import __version__
from longtail.config import thread_count
from longtail.recipes import recipes
from longtail.reproduce.jobs import Job, JobResult
from longtail.reproduce.markdown import Sign, markdown_table, signs_of, signs_sentence
from longtail.reproduce.methods import RecipeSetup, recipe_for
from longtail.reproduce.sets import AvailableSet
from longtail.reproduce.tables import Gain

METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5", "PSnDCG@5")
_COSTS = {
    "train_cpu_seconds": ("Training, CPU seconds", "{:.1f}"),
    "predict_cpu_ms": ("Prediction, CPU ms per row", "{:.3f}"),
    "peak_memory_mb": ("Peak memory, MB", "{:.0f}"),
    "model_mb": ("Model, MB", "{:.1f}"),
}
_QUICK = ("word-bag",)  # networks that take minutes
_OPEN, _CLOSE = "<!-- discussion -->", "<!-- end of discussion -->"


def all_recipes(networks: bool) -> list[RecipeSetup]:
    """Return all recipes, slow networks only with `networks`."""
    found = [RecipeSetup(recipe.name) for recipe in recipes()]
    return [mine for mine in found if networks or not mine.is_network or mine.recipe in _QUICK]


def page(
    sets: Sequence[AvailableSet],
    configured: Sequence[RecipeSetup],
    results: Mapping[Job, JobResult],
    sections: Sequence[str],
    before: str,
) -> str:
    """Return the page, with the discussion of the earlier one."""
    found = re.search(f"{re.escape(_OPEN)}(.*?){re.escape(_CLOSE)}", before, re.DOTALL)
    discussion = found[1].strip() if found else ""
    lines = [
        "# Results",
        "",
        f"Written by `longtail reproduce results` on {datetime.now(UTC):%Y-%m-%d} with longtail {__version__}, "
        f"{platform.machine()}, {thread_count(None)} cores, {_threads(results)}. ± is half of a 95 % "
        "bootstrap interval over the test rows. All recipes have their default parameters.",
        "",
        _OPEN,
        discussion,
        _CLOSE,
        "",
        "## Recipes",
        "",
        *_left_out(configured),
    ]
    names = [data.name for data in sets]
    for metric in METRICS:
        rows = [
            [f"`{mine.name}`", *(_value(results.get(Job(data, mine)), metric) for data in sets)] for mine in configured
        ]
        lines += [f"### {metric}", "", *markdown_table(["recipe", *names], _best_marked(rows))]
    for key, (title, form) in _COSTS.items():
        rows = [
            [f"`{mine.name}`", *(_cost(results.get(Job(data, mine)), key, form) for data in sets)]
            for mine in configured
        ]
        lines += [f"### {title}", "", *markdown_table(["recipe", *names], rows)]
    return "\n".join([*lines, *sections])


def _left_out(configured: Sequence[RecipeSetup]) -> list[str]:
    """Return a sentence on the recipes that are not on the page."""
    left = [f"`{recipe.name}`" for recipe in recipes() if recipe.name not in {mine.recipe for mine in configured}]
    text = f"Not run, because these networks take hours on a CPU (`--networks` runs them): {', '.join(left)}."
    return [text, ""] if left else []


def all_signs(gains: Sequence[Gain]) -> list[str]:
    """Return a table of the signs of all gains, each recipe on each data set once."""
    signs: dict[tuple[str, str], Sign] = {}
    for sign in signs_of(gains):
        mine = recipe_for(sign.method)
        signs.setdefault(("" if mine is None else mine.name, sign.data), sign)
    if not signs:
        return []
    rows = [
        [f"`{name}`", data, f"{sign.measured:+.2f}", f"{sign.expected:+.2f}", "yes" if sign.agrees else "**no**"]
        for (name, data), sign in sorted(signs.items())
    ]
    text = "Mean gain in PSP@k over the method's base: measured, and the paper's (on the same data set, or its median)."
    columns = ["recipe", "data set", "measured", "paper", "same sign"]
    return ["## Signs", "", f"{text} {signs_sentence(list(signs.values()))}", "", *markdown_table(columns, rows)]


def _threads(results: Mapping[Job, JobResult]) -> str:
    """Return the number of threads per training."""
    used = {result.figures.get("threads") for result in results.values()}
    if used == {1}:
        return "one thread per training"
    return f"{used.pop()} threads per training" if len(used) == 1 and None not in used else "all threads per training"


def _value(result: JobResult | None, metric: str) -> str:
    if result is None or result.value(metric) is None:
        return "-"
    return f"{result.value(metric):.2f} ± {result.half(metric) or 0:.2f}"


def _cost(result: JobResult | None, key: str, form: str) -> str:
    return "-" if result is None else form.format(result.figures[key])


def _best_marked(rows: list[list[str]]) -> list[list[str]]:
    """Mark the best of each column."""
    if not rows:
        return rows
    for column in range(1, len(rows[0])):
        values = [float(row[column].split(" ")[0]) if row[column] != "-" else float("-inf") for row in rows]
        best = max(values)
        for row, value in zip(rows, values, strict=True):
            if value == best and value > float("-inf"):
                row[column] = f"**{row[column]}**"
    return rows
