"""Load and save data sets in any format, or load them by name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources

from longtail.data.dataset import Dataset
from longtail.data.readers.jsonl import read_jsonl, write_jsonl
from longtail.data.readers.label_names import check_names, read_names, write_names
from longtail.data.readers.mapped import is_mapped_data, read_mapped, write_mapped
from longtail.data.readers.npz import npz_prefix, read_npz, write_npz
from longtail.data.readers.xc import convert_xc, read_xc, write_xc
from longtail.data.registry import DatasetInfo, names, parse_name
from longtail.data.streams import ByteReader, split_suffix
from longtail.errors import InputError, did_you_mean

ACCEPTED = (
    "XC text (.txt, .xc) and JSONL (.jsonl, .ndjson), both also with .gz, .xz or .zst, "
    "npz pairs (NAME.X.npz, NAME.Y.npz), and directories of arrays (NAME without a suffix)"
)
_XC, _JSONL = (".txt", ".xc"), (".jsonl", ".ndjson")


def load(
    source: str | os.PathLike[str],
    *,
    label_names: Sequence[str] | None = None,
    labels_optional: bool = False,
    corrections: bool = False,
    repeated_ids: bool = False,
) -> Dataset:
    """Load a data set from a file in any format, or by its name.

    Parameters
    ----------
    source : str or path-like
        A file in XC text or JSONL (plain or .gz, .xz, .zst), one file or the NAME of an npz pair, a directory of arrays
        (which is memory-mapped), or the name of a bundled data set, with a split other than train after a colon, as in
        ``"debian-tags:test"``. The format follows from the suffix and the first bytes.
    label_names : sequence of str, optional
        Names that define the label ids, such as those of a model; see `read_jsonl`. The other formats have ids and need
        one name for each. By default they are in ``NAME.labels.txt`` beside the file (``train.labels.txt`` for
        ``train.txt.gz``) or, for XC text, in ``label_names.txt`` in the same directory.
    labels_optional, corrections, repeated_ids : bool
        For JSONL; see `read_jsonl`.

    Examples
    --------
    >>> load("debian-tags:test")
    Dataset('debian-tags:test': 5,592 rows, texts, 598 labels with names, 3.82 labels per row)
    """
    path = os.fspath(source)
    if is_mapped_data(path):
        return _named(read_mapped(path), label_names, path)
    if not os.path.isfile(path):
        named = parse_name(path) if isinstance(source, str) else None
        if named is not None:
            return load_bundled(*named, label_names=label_names)
        if not os.path.exists(npz_prefix(path) + ".X.npz"):
            raise InputError(_not_there(path), path=path)
    kind = _kind(path)
    if kind == "jsonl":
        return read_jsonl(
            path, label_names=label_names, labels_optional=labels_optional, corrections=corrections,
            repeated_ids=repeated_ids,
        )  # fmt: skip
    if kind == "npz":
        return _named(read_npz(path), label_names, path)
    dataset = read_xc(path)
    return _named(dataset, _names_beside(path, dataset.n_labels) if label_names is None else label_names, path)


def save(dataset: Dataset, path: str | os.PathLike[str]) -> None:
    """Save a data set in the format of the suffix.

    Parameters
    ----------
    dataset : Dataset
    path : path-like
        ``.txt`` or ``.xc`` for XC text and ``.jsonl`` for texts with label names, optionally with .gz, .xz or .zst;
        ``.npz`` for a pair of matrices; no suffix for a directory of arrays, for data larger than memory. XC text and
        npz have label names in ``NAME.labels.txt`` beside them.

    Examples
    --------
    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "toy.txt.gz")
    >>> save(Dataset([[0, 1.5]], [[1, 0]], label_names=["cat", "dog"]), path)
    >>> load(path)
    Dataset('toy': 1 rows, 2 features, 2 labels with names, 1.00 labels per row)
    """
    stem, compression = split_suffix(path)
    if stem.lower().endswith(_JSONL):
        write_jsonl(dataset, path)
    elif stem.lower().endswith(_XC):
        check_names(dataset.label_names or (), path)
        write_xc(dataset, path)
        if dataset.label_names is not None:
            write_names(dataset.label_names, _own_names(path))
    elif stem.lower().endswith(".npz") and not compression:
        write_npz(dataset, path)
    elif is_directory_name(path):
        write_mapped(dataset, path)
    else:
        raise InputError(f"has an unknown suffix; accepted: {ACCEPTED}.", path=path)


def is_directory_name(path: str | os.PathLike[str]) -> bool:
    """Return whether a name has no suffix, as directories of arrays.

    Examples
    --------
    >>> is_directory_name("data/train"), is_directory_name("data/train.txt")
    (True, False)
    """
    return "." not in os.path.basename(os.fspath(path).rstrip("/")).lstrip(".")


def convert(source: str | os.PathLike[str], out: str | os.PathLike[str]) -> int:
    """Write a data set in the format of the suffix and return the number of rows.

    XC text is converted to a directory of arrays in pieces; all other conversions load the whole data set into memory.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> save(Dataset([[0, 1.5]], [[1, 0]]), f"{folder}/toy.txt")
    >>> convert(f"{folder}/toy.txt", f"{folder}/toy")
    1
    """
    path = os.fspath(source)
    if is_directory_name(out) and os.path.isfile(path) and _kind(path) == "xc":
        return convert_xc(path, out, lambda count: _names_beside(path, count))
    dataset = load(source)
    save(dataset, out)
    return dataset.n_rows


def load_bundled(info: DatasetInfo, split: str, *, label_names: Sequence[str] | None = None) -> Dataset:
    """Load a split of a bundled data set; see `longtail.datasets.load`."""
    if not info.bundled:
        raise InputError(
            f"{info.name} does not come with longtail: get it from {info.source}, check the file with "
            f"'longtail data verify {info.name} PATH', then give the path."
        )
    folder = resources.files("longtail.data.bundled")
    if label_names is None:
        with resources.as_file(folder / f"{info.name}.labels.txt.xz") as path:
            label_names = read_names(path, info.labels)
    with resources.as_file(folder / f"{info.name}.{split}.jsonl.xz") as path:
        return replace(read_jsonl(path, label_names=label_names), name=f"{info.name}:{split}")


def _kind(path: str) -> str:
    stem = split_suffix(path)[0].lower()
    if not os.path.isfile(path) or stem.endswith(".npz"):
        return "npz"
    if stem.endswith(_JSONL):
        return "jsonl"
    with ByteReader(path) as stream:
        head = stream.read(64) or b""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"{"):
        return "jsonl"
    if stem.endswith(_XC) or start[:1].isdigit() or not head:
        return "xc"
    raise InputError(f"is not in a supported format; accepted: {ACCEPTED}.", path=path)


def _names_beside(path: str, count: int) -> list[str] | None:
    for candidate in (_own_names(path), os.path.join(os.path.dirname(path), "label_names.txt")):
        if os.path.isfile(candidate):
            return read_names(candidate, count)
    return None


def _own_names(path: str | os.PathLike[str]) -> str:
    return os.path.splitext(split_suffix(path)[0])[0] + ".labels.txt"


def _named(dataset: Dataset, label_names: Sequence[str] | None, path: str) -> Dataset:
    if label_names is None:
        return dataset
    if len(label_names) != dataset.n_labels:
        raise InputError(
            f"has {dataset.n_labels} labels, but {len(label_names)} label names are given: use rows with the same "
            "labels, in the same order as their names.",
            path=path,
        )
    return replace(dataset, label_names=list(label_names))


def _not_there(path: str) -> str:
    if os.path.isfile(os.path.join(path, "model.json")):
        return "is a model, and rows are wanted here: give a file of rows or the name of a data set."
    if os.path.isdir(path):
        return f"is a directory without a data.json: give a file in it; accepted: {ACCEPTED}."
    name = path.partition(":")[0]
    if name.lower() in map(str.lower, names()):
        return "there is no such file; give a file, not the name of a data set."
    hint = did_you_mean(name, names(), key=str.lower) or f": known are {', '.join(names())}"
    return f"there is no such file, and no data set of that name{hint}."
