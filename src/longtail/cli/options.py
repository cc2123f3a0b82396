"""Arguments and options that several commands share, each with its help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from longtail.cli.console import guarded
from longtail.validation import LARGEST_SEED

FORMATS = "a file in XC text, JSONL or .npz format, or the name of a data set"


def rows_argument(metavar: str, what: str, example: str = "") -> Any:
    """Return an argument that takes rows: a file or the name of a data set."""
    such_as = f" such as {example}" if example else ""
    return typer.Argument(metavar=metavar, help=f"{what}: {FORMATS}{such_as}.", show_default=False)


def plot_option(what: str) -> Any:
    """Return the option ``--plot``, which takes the file of a plot and refuses one that can't be written."""

    def checked(path: Path | None) -> Path | None:
        if path is not None:
            from longtail.plots.style import check_plot

            guarded(check_plot)(path, "--plot")
        return path

    help = f"Plot {what} to this file: .png, .svg or .pdf."
    return typer.Option("--plot", metavar="FILE", help=help, callback=checked)


def labels_option(what: str) -> Any:
    """Return an option that takes labels by name or id."""
    return typer.Option("--label", metavar="NAME", help=f"{what}, by name or id; can be repeated.")


def k_option(what: str, *, most: int | None = None) -> Any:
    """Return an option that takes a number of labels."""
    return typer.Option("-k", min=1, max=most, help=f"{what}.")


def propensity_option(what: str, default: str) -> Any:
    """Return an option that takes a propensity model."""
    return typer.Option(
        "--propensity",
        metavar="A,B",
        help=f"{what}: its constants, the name of a data set with published ones, or a file that longtail propensity "
        f"fit saved; by default {default}.",
    )


def tail_option(*, more: str = "", **settings: Any) -> Any:
    """Return an option that takes a position of the tail dial."""
    dial = "Position of the tail dial, from 0 to 1: higher values rank rare labels higher."
    return typer.Option("--tail", help=f"{dial} {more}".rstrip(), **settings)


ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="Directory of a trained model.", show_default=False)]
RecipeName = Annotated[
    str, typer.Argument(metavar="RECIPE", help="Name of a recipe; longtail recipes lists them.", show_default=False)
]
TrainRows = Annotated[str, rows_argument("TRAIN", "Training rows with labels", "debian-depends:train")]
TestRows = Annotated[str, rows_argument("TEST", "Test rows with labels", "debian-depends:test")]
DataSource = Annotated[str, rows_argument("DATA", "Data set")]

NewModel = Annotated[
    Path, typer.Option("--out", metavar="MODEL", help="Directory to save the model to.", show_default=False)
]
TargetModel = Annotated[
    Path | None,
    typer.Option("--out", metavar="MODEL", help="Directory to save the result to; replaces MODEL by default."),
]
SetOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a parameter: C=0.5, weighting.beta=0.99, or features.min_df=3 for texts. Can be repeated.",
    ),
]
PropensityConstants = Annotated[
    str | None, propensity_option("Propensity model", "the published one of the data set, else 0.55,1.5")
]
OwnTree = Annotated[
    Path | None,
    typer.Option(
        "--tree",
        metavar="FILE",
        help="Your own label tree for a tree recipe: SKOS (.rdf, .nt, .ttl), JSON, or lines of child and parent "
        "(.tsv, .csv).",
    ),
]
LabelTexts = Annotated[
    str | None,
    typer.Option(
        "--label-texts",
        metavar="FILE",
        help="File with one text per label and line, or 'names' for the label names. Tree recipes cluster labels by "
        "them. Networks that read label texts use the names by default, and nothing with 'none'.",
    ),
]
TailPosition = Annotated[float | None, tail_option(min=0, max=1, metavar="T")]
Resamples = Annotated[int, typer.Option("--resamples", min=1, help="Bootstrap resamples for the intervals.")]
Cutoffs = Annotated[
    list[str] | None, typer.Option("-k", metavar="K,K...", help="Cutoffs k of the metrics; 1,3,5 by default.")
]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Number of threads; all cores by default.")]
Seed = Annotated[int, typer.Option("--seed", min=0, max=LARGEST_SEED, help="Random seed.")]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        "--memory-limit",
        metavar="SIZE",
        help="Maximum memory, such as 2GB: uses fewer threads or smaller batches, or fails if that isn't enough.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="auto|ADDRESS|local",
        help="Run on a Ray cluster: the one running on this machine (auto), the one at host:port, or a new one on "
        "this machine (local). The result is the same, for networks up to rounding.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
