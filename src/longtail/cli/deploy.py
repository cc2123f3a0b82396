"""`longtail quantise` and `longtail export`: neural models for deployment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longtail.cli.console import errors_of, guarded, output, output_json, step
from longtail.cli.loading import rows_for
from longtail.cli.options import FORMATS, AsJson, ModelPath, NewModel
from longtail.errors import InputError
from longtail.runtime.disk import check_out_file, directory_size, shown_size


@guarded
def quantise(
    model: ModelPath,
    out: NewModel,
    on: Annotated[
        str | None,
        typer.Option(metavar="TEST", help=f"Labelled rows on which to measure the loss of accuracy: {FORMATS}."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Round the weights of a neural model to eight bits: a quarter of the size, and faster on a CPU."""
    with step("quantising", outcome="No model was written."):
        from longtail.store import Model
        from longtail.store.deploying import quantised
        from longtail.store.manifest import check_target

        check_target(out)
        if out.exists() and model.exists() and out.samefile(model):
            raise InputError("is the model itself, whose weights would be lost: give another directory.", path=out)
        loaded = Model.load(model, verify=True)
        with errors_of(model):
            small = quantised(loaded)
        figures: dict[str, dict[str, float]] = {}
        if on is not None:
            dataset = rows_for({str(model): loaded}, on)
            before, after = loaded.evaluate(dataset), small.evaluate(dataset)
            for name in ("P@1", "P@5", "PSP@1", "PSP@5"):
                figures[name] = {"before": round(before[name], 3), "after": round(after[name], 3)}
        with step("saving the model"):
            small.save(out)
    sizes = [directory_size(path) for path in (model, out)]
    if as_json:
        output_json({**figures, "model_mb": {"before": round(sizes[0] / 1e6, 3), "after": round(sizes[1] / 1e6, 3)}})
        return
    output(f"Saved {shown_size(sizes[1])} to {out}, in place of {shown_size(sizes[0])}.")
    for name, pair in figures.items():
        output(f"{name}: {pair['after']:.2f}, before {pair['before']:.2f} ({pair['after'] - pair['before']:+.2f})")


@guarded
def export(
    model: ModelPath,
    out: Annotated[Path, typer.Argument(metavar="FILE", help="ONNX file to write.", show_default=False)],
) -> None:
    """Export the network of a neural model to ONNX, and check its scores against PyTorch.

    Its inputs are token ids and an attention mask, its output the log-odds of all labels.
    """
    check_out_file(out, ".onnx", name="FILE")
    with step("exporting", outcome="No file was written."), errors_of(model):
        from longtail.store import Model
        from longtail.store.deploying import export_onnx

        error = export_onnx(Model.load(model, verify=True), out)
    output(f"Wrote {shown_size(out.stat().st_size)} to {out}; its scores differ by at most {error:.1g} from PyTorch's.")
