"""Texts with label names: one JSON object per line."""

from __future__ import annotations

import io
import json
import os
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.data.dataset import Dataset
from longtail.data.label_index import LabelIndex
from longtail.data.streams import ByteReader, write_whole
from longtail.errors import InputError
from longtail.runtime.progress import progress_bar

_LONGEST_LINE = 1 << 28


def read_jsonl(
    path: str | os.PathLike[str],
    *,
    label_names: Sequence[str] | None = None,
    labels_optional: bool = False,
    corrections: bool = False,
    repeated_ids: bool = False,
) -> Dataset:
    """Read a plain or compressed JSONL file: an object per line with ``text`` and ``labels``, a list of names.

    Other keys are ignored; the list may be empty.

    Parameters
    ----------
    path : path-like
    label_names : sequence of str, optional
        Names that define the label ids, such as those of the training data. Further names in the file get the next ids,
        in sorted order, so that they count in test metrics. By default all names in the file, sorted.
    labels_optional : bool
        Accept objects without ``labels``, as for prediction.
    corrections : bool
        Also read ``id``, a string or an integer, and ``rejected``, a list of names, as for an update.
    repeated_ids : bool
        Accept several rows with the same ``id``, as in the rows before an update.

    Returns
    -------
    Dataset
        With `texts`, `Y` and `label_names`, and no features.

    Raises
    ------
    InputError
        With file, line and reason.

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
    index = LabelIndex(known)
    if not index.is_unique:
        twice = Counter(known).most_common(1)[0][0]
        raise InputError(f"label_names has {twice!r} twice: names that define ids must differ.")
    texts: list[str] = []
    row_ids: list[str] = []
    lines_of_ids: dict[str, int] = {}
    rejected: list[list[str]] = []
    sizes = array("q", [0])

    def labels_of_rows() -> Iterator[str]:
        for line, raw in _lines(path):
            try:
                record = _parse(raw, "utf-8-sig" if line == 1 else "utf-8")
                text, labels = _fields(record, labels_optional)
                if corrections:
                    row_ids.append(_row_id(record))
                    first = lines_of_ids.setdefault(row_ids[-1], line)
                    if row_ids[-1] and not repeated_ids and first != line:
                        raise InputError(f"has the id {row_ids[-1]!r} of line {first} again: remove one.")
                    rejected.append(_rejected(record, labels))
            except InputError as error:
                raise InputError(error.reason, path=path, line=line) from None
            texts.append(text)
            sizes.append(len(labels))
            yield from labels

    columns = index.extend(labels_of_rows())
    if not texts:
        raise InputError("is empty: it must have a JSON object with 'text' and 'labels' on each line.", path=path)
    found = sorted((index.names or [])[len(known) :])
    final = np.arange(len(index), dtype=np.int32)
    final[index.ids_of(found)] = np.arange(len(known), len(index))
    ones, indptr = np.ones(len(columns), np.float32), np.cumsum(sizes)
    Y = sp.csr_array((ones, final[columns], indptr), shape=(len(texts), len(index)))
    Y.sort_indices()
    return Dataset(
        None, Y, label_names=known + found, texts=texts, name=os.path.basename(path).split(".")[0],
        row_ids=row_ids if any(row_ids) else None, rejected=rejected if any(rejected) else None,
    )  # fmt: skip


def write_jsonl(dataset: Dataset, path: str | os.PathLike[str]) -> None:
    """Write texts and label names as JSONL, compressed if the name ends in .gz, .xz or .zst.

    Labels without names are written as their ids. The file appears only when it is complete.

    Parameters
    ----------
    dataset : Dataset
        With texts; features are not written.
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
    names, Y = dataset.labels.all_shown(), dataset.Y
    with write_whole(path) as file:
        for row, text in enumerate(dataset.texts):
            labels = [names[label] for label in Y.indices[Y.indptr[row] : Y.indptr[row + 1]]]
            record = json.dumps({"text": text, "labels": labels}, ensure_ascii=False)
            try:
                file.write(record.encode() + b"\n")
            except UnicodeEncodeError:
                raise InputError(f"row {row} has characters that UTF-8 can't encode: remove them.", path=path) from None


def _lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with their numbers; only the last ones may be blank."""
    with ByteReader(path) as raw:
        lines = io.BufferedReader(raw, 1 << 20)
        with progress_bar(f"reading {os.path.basename(path)}", raw.size >> 20, "MB") as advance:
            number, shown, blank = 0, 0, 0
            while line := lines.readline(_LONGEST_LINE + 1):
                number += 1
                if raw.consumed >> 20 > shown:
                    advance((raw.consumed >> 20) - shown)
                    shown = raw.consumed >> 20
                if not line.strip():
                    blank = blank or number
                    continue
                if blank:
                    raise InputError("is blank: each line must hold a JSON object.", path=path, line=blank)
                yield number, line


def _parse(line: bytes, encoding: str) -> Any:
    if len(line) > _LONGEST_LINE:
        raise InputError(f"is longer than {_LONGEST_LINE >> 20} MB: it must be one row.")
    try:
        return json.loads(line.decode(encoding))
    except UnicodeDecodeError as error:
        byte = line[error.start]
        raise InputError(f"byte {error.start + 1} is not UTF-8 (0x{byte:02x}): convert the file.") from None
    except json.JSONDecodeError as error:
        raise InputError(f"is not valid JSON: {error.msg.removesuffix(' at')} at character {error.pos + 1}.") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not valid JSON: {error}.") from None


def _fields(record: Any, labels_optional: bool) -> tuple[str, list[str]]:
    if not isinstance(record, dict):
        raise InputError("must be a JSON object with 'text' and 'labels'.")
    for key in ("text",) if labels_optional else ("text", "labels"):
        if key not in record:
            raise InputError(f"has no '{key}': each line needs 'text' and 'labels'.")
    text, labels = record["text"], record.get("labels", [])
    if not isinstance(text, str):
        raise InputError(f"'text' must be a string, got {_kind(text)}.")
    _check_names(labels, "labels")
    if len(set(labels)) != len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise InputError(f"label {twice!r} appears twice in this row: remove one.")
    for string in (text, *labels):
        if not string.isascii() and any("\ud800" <= character <= "\udfff" for character in string):
            raise InputError("has an unpaired surrogate, which is not a character: remove it.")
    return text, labels


def _check_names(names: Any, key: str) -> None:
    if not isinstance(names, list):
        raise InputError(f"'{key}' must be a list of names, got {_kind(names)}.")
    for name in names:
        if not isinstance(name, str) or not name:
            what = "an empty string" if name == "" else _kind(name)
            raise InputError(f"'{key}' must hold names, got {what}.")


def _row_id(record: dict[str, Any]) -> str:
    found = record.get("id")
    if isinstance(found, bool) or not isinstance(found, str | int | None):
        raise InputError(f"'id' must be a string or an integer, got {_kind(found)}.")
    return "" if found is None else str(found)


def _rejected(record: dict[str, Any], labels: list[str]) -> list[str]:
    found: list[str] = record.get("rejected", [])
    _check_names(found, "rejected")
    both = next((name for name in found if name in labels), None)
    if both is not None:
        raise InputError(f"label {both!r} is in 'labels' and in 'rejected': remove one.")
    return found


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
