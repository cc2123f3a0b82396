"""Rankings as other tools read them: runs for ranx (JSON) and for trec_eval (lines)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Literal

from longtail.engine.topk import TopK

RunFormat = Literal["ranx", "trec"]
FORMATS = ("ranx", "trec")


def run_chunks(tops: Iterable[TopK], names: list[str] | None, form: RunFormat, tag: str) -> Iterator[bytes]:
    """Write rankings as a run, some rows at a time; a row's number, from 0, is its query and a label its document.

    Parameters
    ----------
    tops : iterable of TopK
    names : list of str, optional
        Names of the labels; ids when left out.
    form : {"ranx", "trec"}
        One JSON object of the form {query: {document: score}}, which ``ranx.Run.from_file`` reads; or lines
        "query Q0 document rank score tag".
    tag : str
        Name of the run, for the lines.

    Examples
    --------
    >>> import numpy as np
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
                    f"{row} Q0 {name} {place} {score!r} {tag}\n"
                    for place, (name, score) in enumerate(ranked.items(), start=1)
                ]
            elif ranked:  # ranx knows no query without documents
                lines.append(f"{before}{json.dumps(str(row))}: {json.dumps(ranked, ensure_ascii=False)}")
                before = ", "
            row += 1
        yield "".join(lines).encode("utf-8", "surrogatepass")
    if form == "ranx":
        yield b"}\n"
