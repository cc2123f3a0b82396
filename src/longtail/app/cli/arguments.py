"""Arguments as people type them, checked before any work starts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from longtail.errors import InputError, ParameterError

if TYPE_CHECKING:
    from longtail.corpus import Dataset
    from longtail.propensity import JainPropensity
    from longtail.store import Model


_PYTHON = {"None": None, "True": True, "False": False}


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """Read ``name=value`` pairs: a value is JSON or None, True or False, else text; a dot in a name leads to a part.

    Examples
    --------
    >>> parse_settings(["regularisation=0.5", "weighting.beta=0.99", "loss=hinge"])
    {'regularisation': 0.5, 'weighting__beta': 0.99, 'loss': 'hinge'}
    """
    parsed: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name = name.strip().replace(".", "__")
        if not equals or not name:
            raise ParameterError("--set", setting, "must be name=value")
        if name in parsed:
            raise ParameterError("--set", setting, f"must give {name} only once")
        try:
            parsed[name] = json.loads(text)
        except ValueError:
            parsed[name] = _PYTHON.get(text.strip(), text.strip())
    return parsed


def parse_places(text: str) -> tuple[int, ...]:
    """Read the places k of metrics.

    Examples
    --------
    >>> parse_places("1, 3,5")
    (1, 3, 5)
    """
    try:
        places = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        places = ()
    if not places or min(places) < 1:
        raise ParameterError("-k", text, "must be whole numbers of at least 1 with commas between, such as 1,3,5")
    return places


def parse_propensity(text: str) -> JainPropensity:
    """Read constants A,B, the name of a data set that has published ones, or a file of longtail propensity fit."""
    from longtail.propensity import PRESETS, JainPropensity, preset, read_propensity

    if text.endswith(".json") and Path(text).is_file():
        return read_propensity(text)
    try:
        if "," not in text:
            return preset(text)
        a, b = (float(part) for part in text.split(","))
        propensity = JainPropensity(a=a, b=b)
        propensity.inverse([0, 1], 3)
        return propensity
    except ValueError:
        close = get_close_matches(text, PRESETS, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise ParameterError(
            "--propensity",
            text,
            "must be A,B, two numbers with A at least 0 and B above 0, such as 0.55,1.5, "
            f"the name of a data set with published constants{hint}, or a file that longtail propensity fit saved",
        ) from None


def parse_position(text: str | None) -> float | None:
    """Read a position of the tail dial for one prediction, where it is given.

    Examples
    --------
    >>> parse_position("0.5"), parse_position(None)
    (0.5, None)
    """
    if text is None:
        return None
    tail = None if text == "auto" else parse_tail(text)
    if not isinstance(tail, float):
        raise ParameterError("--tail", text, "must be a number from 0 to 1; auto is for longtail train")
    return tail


def parse_tail(text: str) -> float | Literal["auto"]:
    """Read a position of the tail dial.

    Examples
    --------
    >>> parse_tail("0.5"), parse_tail("auto")
    (0.5, 'auto')
    """
    if text == "auto":
        return "auto"
    try:
        tail = float(text)
    except ValueError:
        tail = -1.0
    if not 0 <= tail <= 1:
        raise ParameterError("--tail", text, "must be a number from 0 to 1, or auto")
    return tail


def load_labelled(source: str, label_names: list[str] | None) -> Dataset:
    """Load rows with the label ids of a model, whose names are given; rows with other labels are refused."""
    from longtail.corpus import load

    try:
        return load(source, label_names=label_names)
    except InputError:
        n_labels = load(source).n_labels  # which fails too where the rows themselves are wrong
        if label_names is None or n_labels == len(label_names):
            raise
        raise InputError(
            f"has {n_labels:,} labels, and the model was trained on {len(label_names):,}, which are others: "
            "use rows with the labels of its training data.",
            path=source,
        ) from None


def check_out_file(path: Path, ending: str = "") -> None:
    """Refuse a file that can't be written, or that has a name of another kind."""
    if ending and path.suffix.lower() != ending:
        raise InputError(f"must end in {ending}: that is what is written.", path=path)
    if path.is_dir():
        raise InputError("is a directory: give the name of a file.", path=path)
    if not path.resolve().parent.is_dir():
        raise InputError(f"can't be written: {path.resolve().parent} is not a directory.", path=path)


def capped(k: int, model: Model) -> int:
    """Number of labels to rank, as many as there are at most: more would only be padding, for which memory is held."""
    return min(k, max(model.n_labels, 1))


def find_label(name: str, model: Model, argument: str = "--label") -> int:
    """Id of a label that is given by its name, or by its id, as an argument of the command."""
    if model.label_names is not None and name in model.label_names:
        return model.label_names.index(name)
    if name.isdecimal() and int(name) < model.n_labels:
        return int(name)
    close = get_close_matches(name, model.label_names or [], n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise ParameterError(argument, name, f"must be the name of a label, or an id below {model.n_labels}{hint}")
