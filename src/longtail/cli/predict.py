"""`longtail predict`: the best labels of each row, as lines or as a run for other tools."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from longtail.cli.arguments import capped, check_not_input, read
from longtail.cli.console import guarded, note, run_settings, step
from longtail.cli.options import FORMATS, Cluster, MemoryLimit, ModelPath, TailPosition, k_option
from longtail.errors import InputError, ParameterError, counted
from longtail.runtime.disk import check_out_file, shown_size

if TYPE_CHECKING:
    from longtail.data import Dataset
    from longtail.topk import TopK

Format = Literal["lines", "ranx", "trec"]
_PLAIN_NAME = re.compile(r"[^\s\"\x00-\x1f\x7f][^\s\x00-\x1f\x7f]*")


@guarded
def predict(
    model: ModelPath,
    input: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help=f"Rows to predict: {FORMATS} such as debian-depends:test, or - for JSONL on standard input.",
            show_default=False,
        ),
    ],
    k: Annotated[int, k_option("Labels per row")] = 5,
    tail: TailPosition = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write to this file; by default, and with -, to standard output."),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Write probabilities; the model must be calibrated.")
    ] = False,
    memory_limit: MemoryLimit = None,
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="Output format: lines, or a run for ranx (JSON) or trec_eval, with row numbers as queries and labels "
            "as documents.",
        ),
    ] = "lines",
    names: Annotated[bool, typer.Option("--names", help="Write label names where the input has only ids.")] = False,
    cluster: Cluster = None,
) -> None:
    """Predict the k best labels of each row.

    Writes one line per row, best label first: label:score label:score ...

    Labels are ids for XC and .npz input, and names for texts or with --names. The score follows the last colon; a \
name that contains a space or begins with a quote is written as a JSON string: "United States":1.25
    """
    out = None if out == Path("-") else out
    with step("predicting", outcome="Nothing was written." if out else ""):
        from longtail.data.streams import write_whole
        from longtail.store import Model

        if out is not None:
            check_out_file(out, name="--out")
            check_not_input(input, out)
        loaded = Model.load(model)
        if names and loaded.label_names is None:
            raise InputError("has no label names, because its training data had none: leave --names out.", path=model)
        if probabilities and loaded.calibration is None:
            raise InputError("has no probabilities yet: run longtail calibrate with held-out rows first.", path=model)
        with run_settings(cluster, memory_limit=memory_limit):
            dataset = _load(input)
            _check_memory()
            tops = loaded.iter_topk(dataset, capped(k, loaded), tail=tail, probabilities=probabilities)
            known = loaded.label_names if names or dataset.X is None else None
            chunks = _lines(tops, known) if form == "lines" else run_chunks(tops, known, form, model.resolve().name)
            with nullcontext(sys.stdout.buffer) if out is None else write_whole(out) as file:
                for chunk in chunks:
                    file.write(chunk)
    if out is not None:
        note(f"Wrote {counted(dataset.n_rows, 'line' if form == 'lines' else 'row')} to {out}.")


def format_label(name: str) -> str:
    """Quote the name of a label where it could not be told apart from what follows.

    Examples
    --------
    >>> format_label("role::program"), format_label("United States")
    ('role::program', '"United States"')
    """
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _check_memory() -> None:
    """Refuse a memory limit that the model and the rows exceed already."""
    from longtail.config import get_config, memory_limit
    from longtail.runtime.memory import memory_in_use

    limit, used = memory_limit(), memory_in_use()
    if limit is not None and used > limit:
        enough = math.ceil(max(used + 5e7, 1.1 * used) / 1e7) * 10
        raise ParameterError(
            "--memory-limit",
            get_config().memory_limit,
            f"leaves no room: {shown_size(used)} are in use before the first row; raise it to at least {enough}MB",
        )


def _load(source: str) -> Dataset:
    from longtail.data import read_jsonl

    if source != "-":
        return read(source, labels_optional=True)
    with step("reading -"), tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        try:
            return read_jsonl(file.name, labels_optional=True)
        except InputError as error:
            raise InputError(error.reason, path="standard input", line=error.line) from None


def _lines(tops: Iterable[TopK], names: list[str] | None) -> Iterator[bytes]:
    """Yield rankings as lines of text, in chunks of rows."""
    labels = None if names is None else [format_label(name) for name in names]
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


def run_chunks(tops: Iterable[TopK], names: list[str] | None, form: Format, tag: str) -> Iterator[bytes]:
    """Yield rankings as a run, in chunks of rows; the query is the number of a row, from 0, the document a label.

    Parameters
    ----------
    tops : iterable of TopK
    names : list of str, optional
        Names of the labels; their ids when left out.
    form : {"ranx", "trec"}
        One JSON object {query: {document: score}}, as ``ranx.Run.from_file`` reads it, or the lines
        "query Q0 document rank score tag" of trec_eval.
    tag : str
        Name of the run, for trec_eval.

    Examples
    --------
    >>> import numpy as np
    >>> from longtail import TopK
    >>> top = TopK(np.array([[1, 0]], np.int32), np.array([[0.5, 0.25]], np.float32))
    >>> b"".join(run_chunks([top], ["cat", "big dog"], "ranx", "model")).decode()
    '{"0": {"big dog": 0.5, "cat": 0.25}}\\n'
    >>> b"".join(run_chunks([top], ["cat", "big dog"], "trec", "model")).decode()
    '0 Q0 big_dog 1 0.5 model\\n0 Q0 cat 2 0.25 model\\n'
    """
    labels = None if names is None else [name if form == "ranx" else "_".join(name.split()) for name in names]
    tag, row, before = "_".join(tag.split()), 0, ""
    if form == "ranx":
        yield b"{"
    for top in tops:
        lines = []
        for found, scores in zip(top.labels.tolist(), top.scores.tolist(), strict=True):
            ranked = {
                str(label) if labels is None else labels[label]: score
                for label, score in zip(found, scores, strict=True)
                if label >= 0
            }
            if form == "trec":
                lines += [
                    f"{row} Q0 {name} {rank} {score!r} {tag}\n"
                    for rank, (name, score) in enumerate(ranked.items(), start=1)
                ]
            elif ranked:  # ranx accepts no query without documents
                lines.append(f"{before}{json.dumps(str(row))}: {json.dumps(ranked, ensure_ascii=False)}")
                before = ", "
            row += 1
        yield "".join(lines).encode("utf-8", "surrogatepass")
    if form == "ranx":
        yield b"}\n"
