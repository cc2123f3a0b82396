"""Texts with label names: one JSON object a line."""

from __future__ import annotations

import io
import json
import os
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.corpus.dataset import Dataset
from longtail.corpus.streams import ByteReader, write_whole
from longtail.engine.progress import progress_bar
from longtail.errors import InputError

_LONGEST_LINE = 1 << 28


def read_jsonl(
    path: str | os.PathLike[str],
    *,
    label_names: Sequence[str] | None = None,
    labels_optional: bool = False,
    corrections: bool = False,
    repeated_ids: bool = False,
) -> Dataset:
    """Read a JSONL file, plain or compressed: an object a line with ``text`` and ``labels``, a list of names.

    Other keys are ignored; an empty list of labels is legal.

    Parameters
    ----------
    path : path-like
    label_names : sequence of str, optional
        The names that define the label ids, such as those of the training data. Names in the file that are not among
        them get the ids after them, in sorted order, so that they still count in test metrics. By default the ids are
        those of the sorted names in the file.
    labels_optional : bool
        Take objects without ``labels``, as for prediction: these rows have none.
    corrections : bool
        Also take ``id``, a string or a whole number, and ``rejected``, a list of names, as for an update.
    repeated_ids : bool
        Let rows have the same ``id``, as in the rows before an update, where a corrected row may follow the first one.

    Returns
    -------
    Dataset
        With `texts`, `Y` and `label_names`, and no features.

    Raises
    ------
    InputError
        With file, line and reason: invalid JSON, a missing key, a value of the wrong type, a label twice in a row,
        an id twice, bytes that are not UTF-8, an empty file, a damaged archive.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "toy.jsonl")
    >>> _ = path.write_text('{"text": "a cat", "labels": ["pet", "animal"]}\\n')
    >>> read_jsonl(path).label_names
    ['animal', 'pet']
    >>> read_jsonl(path, label_names=["plant", "pet"]).label_names
    ['plant', 'pet', 'animal']
    """
    known = list(label_names or ())
    ids = {name: number for number, name in enumerate(known)}
    if len(ids) != len(known):
        twice = next(name for number, name in enumerate(known) if ids[name] != number)
        raise InputError(f"label_names has {twice!r} twice: names that define ids must differ.")
    texts: list[str] = []
    row_ids: list[str] = []
    lines_of_ids: dict[str, int] = {}
    rejected: list[list[str]] = []
    indices, indptr = array("i"), array("q", [0])
    for line, record in _records(path):
        text, labels = _fields(record, path, line, labels_optional)
        texts.append(text)
        if corrections:
            row_ids.append(_row_id(record, path, line))
            if row_ids[-1] and not repeated_ids and (first := lines_of_ids.setdefault(row_ids[-1], line)) != line:
                raise InputError(f"has the id {row_ids[-1]!r} of line {first} again: leave one.", path=path, line=line)
            rejected.append(_rejected(record, labels, path, line))
        indices.extend([ids.setdefault(name, len(ids)) for name in labels])
        indptr.append(len(indices))
    if not texts:
        raise InputError("is empty: it must have a JSON object with 'text' and 'labels' on each line.", path=path)
    found = sorted(list(ids)[len(known) :])
    final = np.arange(len(ids), dtype=np.int32)
    final[[ids[name] for name in found]] = np.arange(len(known), len(ids))
    columns = final[np.frombuffer(indices, np.int32)]
    Y = sp.csr_array((np.ones(len(columns), np.float32), columns, np.array(indptr)), shape=(len(texts), len(ids)))
    Y.sort_indices()
    return Dataset(
        None, Y, label_names=known + found, texts=texts, name=os.path.basename(path).split(".")[0],
        row_ids=row_ids if any(row_ids) else None, rejected=rejected if any(rejected) else None,
    )  # fmt: skip


def write_jsonl(dataset: Dataset, path: str | os.PathLike[str]) -> None:
    """Write texts and label names as JSONL, compressed if the name ends in .gz, .xz or .zst.

    Labels without names are written as their ids. The file appears under its name only when it is complete.

    Parameters
    ----------
    dataset : Dataset
        With texts; features have no place in this format.
    path : path-like

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "toy.jsonl")
    >>> write_jsonl(Dataset(None, [[0, 1]], label_names=["cat", "dog"], texts=["barks"]), path)
    >>> path.read_text()
    '{"text": "barks", "labels": ["dog"]}\\n'
    """
    if dataset.texts is None:
        raise InputError("JSONL needs texts, this data set has only features: save it as .txt or .npz.", path=path)
    names = dataset.label_names or [str(label) for label in range(dataset.n_labels)]
    Y = dataset.Y
    with write_whole(path) as file:
        for row, text in enumerate(dataset.texts):
            labels = [names[label] for label in Y.indices[Y.indptr[row] : Y.indptr[row + 1]]]
            record = json.dumps({"text": text, "labels": labels}, ensure_ascii=False)
            try:
                file.write(record.encode() + b"\n")
            except UnicodeEncodeError:
                raise InputError(
                    f"row {row} has characters that UTF-8 can't hold: clean its text.", path=path
                ) from None


def _records(path: str | os.PathLike[str]) -> Iterator[tuple[int, Any]]:
    """Yield line number and parsed value of each line; blank lines may stand at the end only."""
    with ByteReader(path) as raw:
        lines = io.BufferedReader(raw, 1 << 20)
        with progress_bar(f"reading {os.path.basename(path)}", raw.size >> 20, "MB") as advance:
            number, shown, blank = 0, 0, 0
            while line := lines.readline(_LONGEST_LINE + 1):
                number += 1
                if raw.consumed >> 20 > shown:
                    advance((raw.consumed >> 20) - shown)
                    shown = raw.consumed >> 20
                if len(line) > _LONGEST_LINE:
                    raise InputError(
                        f"is longer than {_LONGEST_LINE >> 20} MB: a row must be a line.", path=path, line=number
                    )
                if not line.strip():
                    blank = blank or number
                    continue
                if blank:
                    raise InputError("is blank: each line must hold a JSON object.", path=path, line=blank)
                yield number, _parse(line, path, number)


def _parse(line: bytes, path: str | os.PathLike[str], number: int) -> Any:
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"byte {error.start + 1} is not UTF-8 (0x{line[error.start]:02x}): convert the file.",
            path=path,
            line=number,
        ) from None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"is not valid JSON: {error.msg} at character {error.pos + 1}.", path=path, line=number
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not valid JSON: {error}.", path=path, line=number) from None


def _fields(record: Any, path: str | os.PathLike[str], line: int, labels_optional: bool) -> tuple[str, list[str]]:
    if not isinstance(record, dict):
        raise InputError("must be a JSON object with 'text' and 'labels'.", path=path, line=line)
    for key in ("text",) if labels_optional else ("text", "labels"):
        if key not in record:
            raise InputError(f"has no '{key}': each line needs 'text' and 'labels'.", path=path, line=line)
    text, labels = record["text"], record.get("labels", [])
    if not isinstance(text, str):
        raise InputError(f"'text' must be a string, it is {_kind(text)}.", path=path, line=line)
    _check_names(labels, "labels", path, line)
    if len(set(labels)) != len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise InputError(f"label {twice!r} stands twice in this row: remove one.", path=path, line=line)
    for string in (text, *labels):
        if not string.isascii() and any("\ud800" <= character <= "\udfff" for character in string):
            raise InputError("has half of a surrogate pair, which is no character: clean it.", path=path, line=line)
    return text, labels


def _check_names(names: Any, key: str, path: str | os.PathLike[str], line: int) -> None:
    if not isinstance(names, list):
        raise InputError(f"'{key}' must be a list of names, it is {_kind(names)}.", path=path, line=line)
    for name in names:
        if not isinstance(name, str) or not name:
            what = "an empty string" if name == "" else _kind(name)
            raise InputError(f"'{key}' must hold names, one of them is {what}.", path=path, line=line)


def _row_id(record: dict[str, Any], path: str | os.PathLike[str], line: int) -> str:
    found = record.get("id")
    if found is None:
        return ""
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise InputError(f"'id' must be a string or a whole number, it is {_kind(found)}.", path=path, line=line)
    return str(found)


def _rejected(record: dict[str, Any], labels: list[str], path: str | os.PathLike[str], line: int) -> list[str]:
    found: list[str] = record.get("rejected", [])
    _check_names(found, "rejected", path, line)
    both = next((name for name in found if name in labels), None)
    if both is not None:
        raise InputError(f"label {both!r} is in 'labels' and in 'rejected': remove one.", path=path, line=line)
    return found


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
