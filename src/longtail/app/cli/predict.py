"""`longtail predict`: the best labels of each row, a line a row."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from longtail.app.cli.arguments import capped, check_out_file, parse_position
from longtail.app.cli.clusters import OnCluster, on_cluster
from longtail.app.cli.console import guarded, note, step
from longtail.errors import InputError, ParameterError

if TYPE_CHECKING:
    from longtail.app.runs import RunFormat
    from longtail.corpus import Dataset
    from longtail.engine.topk import TopK
    from longtail.learners import Learner
    from longtail.store import Model

_PLAIN_NAME = re.compile(r"[^\s\"\x00-\x1f\x7f][^\s\x00-\x1f\x7f]*")


@guarded
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Directory of the model.", show_default=False)],
    input: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="File in XC text, JSONL or .npz format, a data set's name such as debian-depends:test, "
            "or - for JSONL on standard input.",
            show_default=False,
        ),
    ],
    k: Annotated[int, typer.Option("-k", min=1, help="Labels a row.")] = 5,
    tail: Annotated[
        str | None,
        typer.Option(metavar="T", help="Turn the tail dial, from 0 to 1: the higher, the more rare labels come up."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write here, not to standard output.")
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Give probabilities; the model must have been calibrated.")
    ] = False,
    memory_limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory to hold at most, such as 2GB: fewer rows at a time.")
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="lines|ranx|trec",
            help="lines, or a run for other tools: ranx (JSON) or trec; a row's number is the query, a label the "
            "document.",
        ),
    ] = "lines",
    names: Annotated[bool, typer.Option("--names", help="Give names of labels where the input has only ids.")] = False,
    cluster: OnCluster = None,
) -> None:
    """Predict the k best labels of each row.

    A line a row, best label first: label:score label:score ...

    Labels are ids for XC and .npz input, and names for texts or with --names. A score stands after the last colon; a \
name that holds a space or begins with a quote stands in double quotes as a JSON string: "United States":1.25
    """
    outcome = "Nothing was written." if out else ""
    with step("predicting", outcome=outcome), ExitStack() as scope:
        from longtail.app.runs import FORMATS, run_chunks
        from longtail.corpus.streams import write_whole
        from longtail.engine.memory import parse_memory
        from longtail.engine.progress import show_progress
        from longtail.store import Model

        position = parse_position(tail)
        limit = None if memory_limit is None else parse_memory(memory_limit, "--memory-limit")
        if form not in ("lines", *FORMATS):
            raise ParameterError("--format", form, f"must be lines, {' or '.join(FORMATS)}")
        if out is not None:
            check_out_file(out)
        loaded = Model.load(model)
        if names and loaded.label_names is None:
            raise InputError("has no label names, because its training data had none: leave --names out.", path=model)
        if probabilities and loaded.calibration is None:
            raise InputError("has no probabilities yet: run longtail calibrate with held-out rows first.", path=model)
        scope.enter_context(on_cluster(cluster, memory_limit=memory_limit))
        if limit is not None:
            _hold(loaded.learner, limit)
        with show_progress():
            with step(f"reading {input}"):
                dataset = _load(input)
            if limit is not None:
                _check_room(limit, str(memory_limit))
            tops = loaded.iter_topk(dataset, capped(k, loaded), tail=position, probabilities=probabilities)
            naming = loaded if names or dataset.X is None else None
            if form == "lines":
                lines = _lines(tops, naming)
            else:
                known = None if naming is None else naming.label_names
                lines = run_chunks(tops, known, cast("RunFormat", form), model.resolve().name)
            if out is None:
                for chunk in lines:
                    sys.stdout.buffer.write(chunk)
            else:
                with write_whole(out) as file:
                    for chunk in lines:
                        file.write(chunk)
    if out is not None:
        note(f"Wrote {dataset.n_rows:,} {'lines' if form == 'lines' else 'rows'} to {out}.")


def format_label(name: str) -> str:
    """Write a label's name so that white space ends it for certain.

    Examples
    --------
    >>> format_label("role::program"), format_label("United States")
    ('role::program', '"United States"')
    """
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _check_room(limit: int, given: str) -> None:
    """Refuse a limit that the model and the rows have passed before anything is ranked."""
    from longtail.engine.memory import memory_in_use

    used = memory_in_use()
    if used > limit:
        enough = math.ceil(used / 1e7 + 2) * 10
        told = f"leaves no room: {used / 1e6:,.0f} MB are in use before the first row; raise it to at least {enough}MB"
        raise ParameterError("--memory-limit", given, told)


def _hold(learner: Learner, limit: int) -> None:
    """Give a memory limit to a fitted learner and to those inside of it."""
    if hasattr(learner, "memory_limit"):
        learner.memory_limit = limit
    for part in vars(learner).values():
        if hasattr(part, "predict_topk"):
            _hold(part, limit)


def _load(source: str) -> Dataset:
    from longtail.corpus import load, read_jsonl

    if source != "-":
        return load(source, labels_optional=True)
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        try:
            return read_jsonl(file.name, labels_optional=True)
        except InputError as error:
            raise InputError(error.reason, path="standard input", line=error.line) from None


def _lines(tops: Iterable[TopK], naming: Model | None) -> Iterable[bytes]:
    """Rows of several chunks as text, a chunk at a time."""
    labels: list[str] | None = None
    if naming is not None and naming.label_names is not None:
        labels = [format_label(name) for name in naming.label_names]
    for top in tops:
        rows = (
            " ".join(
                f"{label if labels is None else labels[label]}:{score:.6g}"
                for label, score in zip(*row, strict=True)
                if label >= 0
            )
            for row in zip(top.labels.tolist(), top.scores.tolist(), strict=True)
        )
        yield "".join(f"{row}\n" for row in rows).encode("utf-8", "surrogatepass")
