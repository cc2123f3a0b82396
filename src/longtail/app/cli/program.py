"""The program `longtail`: its commands and the options that stand before them."""

from __future__ import annotations

from typing import Annotated

import typer

from longtail import __version__
from longtail.app.cli import console
from longtail.app.cli.blend import blend
from longtail.app.cli.calibrate import calibrate
from longtail.app.cli.compare import compare
from longtail.app.cli.data import data
from longtail.app.cli.deploy import export, quantise
from longtail.app.cli.diagnose import diagnose
from longtail.app.cli.estimate import estimate
from longtail.app.cli.evaluate import evaluate
from longtail.app.cli.explain import explain
from longtail.app.cli.losses import losses
from longtail.app.cli.predict import predict
from longtail.app.cli.propensity import propensity
from longtail.app.cli.recipes import recipes
from longtail.app.cli.report import report
from longtail.app.cli.reproduce import reproduce
from longtail.app.cli.serve import serve
from longtail.app.cli.similar import similar
from longtail.app.cli.study import study
from longtail.app.cli.train import train
from longtail.app.cli.tree import tree
from longtail.app.cli.tune import tune
from longtail.app.cli.update import update

program = typer.Typer(
    name="longtail",
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
        console.give(f"longtail {__version__}")
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
