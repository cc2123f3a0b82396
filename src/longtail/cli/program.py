"""The program `longtail`: its commands and global options."""

from __future__ import annotations

from typing import Annotated

import typer

from longtail import __version__
from longtail.cli import console
from longtail.cli.blend import blend
from longtail.cli.calibrate import calibrate
from longtail.cli.compare import compare
from longtail.cli.data import data
from longtail.cli.deploy import export, quantise
from longtail.cli.diagnose import diagnose
from longtail.cli.estimate import estimate
from longtail.cli.evaluate import evaluate
from longtail.cli.explain import explain
from longtail.cli.losses import losses
from longtail.cli.predict import predict
from longtail.cli.propensity import propensity
from longtail.cli.report import report
from longtail.cli.reproduce import reproduce
from longtail.cli.serve import serve
from longtail.cli.similar import similar
from longtail.cli.study import study
from longtail.cli.train import train
from longtail.cli.tree import tree
from longtail.cli.tune import tune
from longtail.cli.update import update
from longtail.cli.usage import OneLineErrors


@console.guarded
def recipes() -> None:
    """List the recipes: systems from the papers, with their published constants."""
    from longtail.recipes import recipes as known

    rows = [[recipe.name, recipe.summary, recipe.paper or ""] for recipe in known()]
    console.output_table("Recipes", ["name", "what it does", "paper"], rows, text_columns=3)


program = typer.Typer(
    name="longtail",
    cls=OneLineErrors,
    help="Extreme multi-label classification for rare labels and incomplete annotations.",
    epilog="Try it: longtail train pw-cb-dismec debian-depends:train --out model, "
    "then longtail evaluate model debian-depends:test",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    train,
    update,
    predict,
    evaluate,
    compare,
    diagnose,
    report,
    explain,
    similar,
    tree,
    serve,
    calibrate,
    blend,
    quantise,
    export,
    estimate,
    tune,
    reproduce,
    recipes,
    losses,
):
    program.command()(command)
program.add_typer(propensity, name="propensity")
program.add_typer(data, name="data")
program.add_typer(study, name="study")


def _show_version(wanted: bool) -> None:
    if wanted:
        console.output(f"longtail {__version__}")
        raise typer.Exit


@program.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; LONGTAIL_DEBUG=1 does the same.")
    ] = False,
) -> None:
    """Extreme multi-label classification for rare labels and incomplete annotations."""
    if debug:
        console.set_debugging()
