"""`longtail quantise` and `longtail export`: networks on their way to where they are used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longtail.app.cli.arguments import check_out_file
from longtail.app.cli.console import give, give_json, guarded, step
from longtail.errors import InputError

ModelArgument = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="Directory of a model with networks, such as xgrank.", show_default=False),
]


@guarded
def quantise(
    model: ModelArgument,
    out: Annotated[
        Path, typer.Option("--out", metavar="MODEL", help="Directory for the smaller model.", show_default=False)
    ],
    on: Annotated[
        str | None,
        typer.Option(metavar="TEST", help="Rows with labels on which to measure what it costs: a file or a name."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Give the figures as one JSON object.")] = False,
) -> None:
    """Round the weights of a network to eight bits: a quarter of the size, and faster on a CPU."""
    with step("quantising", outcome="No model was written."):
        from longtail.corpus import load
        from longtail.engine.progress import show_progress
        from longtail.store import Model
        from longtail.store.deploying import quantised
        from longtail.store.manifest import check_target

        check_target(out)
        if out.exists() and model.exists() and out.samefile(model):
            raise InputError("is the model itself, whose weights would be lost: give another directory.", path=out)
        loaded = Model.load(model, verify=True)
        try:
            small = quantised(loaded)
        except InputError as error:
            raise InputError(error.reason, path=model) from None
        figures: dict[str, object] = {}
        if on is not None:
            with show_progress(), step(f"reading {on}"):
                dataset = load(on, label_names=loaded.label_names)
            with show_progress():
                before, after = loaded.evaluate(dataset), small.evaluate(dataset)
            wanted = ("P@1", "P@5", "PSP@1", "PSP@5")
            figures = {name: {"before": round(before[name], 3), "after": round(after[name], 3)} for name in wanted}
        with step("saving the model"):
            small.save(out)
    sizes = [sum(file.stat().st_size for file in path.iterdir()) / 1e6 for path in (model, out)]
    figures["model_mb"] = {"before": round(sizes[0], 3), "after": round(sizes[1], 3)}
    if as_json:
        give_json(figures)
        return
    give(f"Saved {sizes[1]:,.1f} MB to {out}, in place of {sizes[0]:,.1f} MB.")
    for name, pair in figures.items():
        if name != "model_mb" and isinstance(pair, dict):
            give(f"{name}: {pair['after']:.2f}, before {pair['before']:.2f} ({pair['after'] - pair['before']:+.2f})")


@guarded
def export(
    model: ModelArgument,
    out: Annotated[Path, typer.Argument(metavar="FILE", help="ONNX file to write.", show_default=False)],
) -> None:
    """Write the network of a model as an ONNX file, checked against torch.

    It takes tokens and a mask, and gives the log-odds of all labels.
    """
    check_out_file(out, ".onnx")
    with step("exporting", outcome="No file was written."):
        from longtail.store import Model
        from longtail.store.deploying import export_onnx

        try:
            apart = export_onnx(Model.load(model, verify=True), out)
        except InputError as error:
            raise InputError(error.reason, path=model) from None
    give(f"Wrote {out.stat().st_size / 1e6:,.1f} MB to {out}; its scores differ from torch's by at most {apart:.1g}.")
