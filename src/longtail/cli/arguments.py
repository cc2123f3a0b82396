"""Values of arguments, parsed and checked before any work starts."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from longtail.cli.console import step
from longtail.errors import InputError, ParameterError, UnknownNameError, did_you_mean
from longtail.validation import LARGEST_INT, TAIL, Integer, Optional, check

if TYPE_CHECKING:
    from longtail.data import Dataset
    from longtail.propensity import JainPropensity
    from longtail.store import Model


AnyNumber = TypeVar("AnyNumber", int, float)
_OPTIONS = {
    "seed": "--seed", "random_state": "--seed", "threads": "--threads", "n_jobs": "--threads",
    "memory_limit": "--memory-limit",
}  # fmt: skip
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """Read ``name=value`` pairs: values are JSON or Python literals, or else text; a dot leads to a nested parameter.

    Examples
    --------
    >>> parse_settings(["C=0.5", "weighting.beta=0.99", "loss=hinge", "features.ngram_range=(1, 2)"])
    {'C': 0.5, 'weighting__beta': 0.99, 'loss': 'hinge', 'features__ngram_range': (1, 2)}
    """
    parsed: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name = name.strip().replace(".", "__")
        if not equals or not name:
            raise ParameterError("--set", setting, "must be NAME=VALUE, such as C=0.5")
        if name in parsed:
            raise ParameterError("--set", setting, f"must give {name} only once")
        parsed[name] = _parse_value(text.strip())
    return parsed


def parse_parameters(settings: Iterable[str] | None) -> dict[str, Any]:
    """Read the parameters of a recipe; those that have options of their own are refused.

    Examples
    --------
    >>> parse_parameters(["seed=1"])
    Traceback (most recent call last):
    longtail.errors.UnknownNameError: --set seed isn't possible: give the option --seed.
    """
    parsed = parse_settings(settings or [])
    for name, value in parsed.items():
        if name in _OPTIONS:
            raise UnknownNameError(f"--set {name}", value, f"isn't possible: give the option {_OPTIONS[name]}")
    return parsed


def _parse_value(text: str) -> Any:
    """Read a value as JSON, or as Python writes a constant, a tuple or a list; other values are text."""
    for parse in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            value = parse(text)
            if parse is json.loads or isinstance(value, tuple | list | str | float | int | None):
                return value
    return text


def parse_cutoffs(given: Iterable[str] | None) -> tuple[int, ...]:
    """Read the cutoffs k of metrics: 1, 3 and 5 by default.

    Examples
    --------
    >>> parse_cutoffs(["1, 3", "10"]), parse_cutoffs(None)
    ((1, 3, 10), (1, 3, 5))
    """
    text = "1,3,5" if given is None else ",".join(given)
    ks = parse_numbers(text, int)
    if not ks or not all(map(Integer(1).accepts, ks)):
        what = f"must be integers from 1 to {LARGEST_INT}, separated by commas, such as 1,3,5"
        raise ParameterError("-k", text, what)
    return tuple(dict.fromkeys(ks))


def parse_numbers(text: str, kind: Callable[[str], AnyNumber]) -> list[AnyNumber]:
    """Read numbers separated by commas; an empty list where one of them is not a number.

    Examples
    --------
    >>> parse_numbers("0.5, 1", float), parse_numbers("0.5, x", float)
    ([0.5, 1.0], [])
    """
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        return []


def parse_recipes(text: str) -> list[str]:
    """Read the names of recipes separated by commas, each once.

    Examples
    --------
    >>> parse_recipes("dismec, pw-dismec")
    ['dismec', 'pw-dismec']
    """
    from longtail.recipes import find

    names = parse_names(text)
    if not names:
        raise ParameterError("--recipes", text, "must be names of recipes, separated by commas")
    for name in names:
        find(name)
    return names


def parse_seconds(text: str, option: str) -> float:
    """Read a time such as 90s, 10m or 2h, in seconds.

    Examples
    --------
    >>> parse_seconds("1.5m", "--budget")
    90.0
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if not found or not float(found[1]):
        raise ParameterError(option, text, "must be a time such as 90s, 10m or 2h; a number alone is seconds")
    return float(found[1]) * _SECONDS[found[2] or "s"]


def parse_names(text: str) -> list[str]:
    """Read names separated by commas, each once.

    Examples
    --------
    >>> parse_names("one, two,,one")
    ['one', 'two']
    """
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def parse_propensity(text: str) -> JainPropensity:
    """Read constants A,B, the name of a data set with published ones, or a file that longtail propensity fit saved."""
    from longtail.propensity import PRESETS, JainPropensity, preset, read_propensity

    if Path(text).is_file():
        return read_propensity(text)
    try:
        if "," not in text:
            return preset(text)
        a, b = (float(part) for part in text.split(","))
        propensity = JainPropensity(a=a, b=b)
        propensity.inverse([0, 1], 3)
        return propensity
    except ValueError:
        raise ParameterError(
            "--propensity",
            text,
            "must be A,B, two numbers with A at least 0 and B above 0, such as 0.55,1.5, "
            f"the name of a data set with published constants{did_you_mean(text, PRESETS)}, or a file that longtail "
            "propensity fit saved",
        ) from None


def propensity_for(text: str | None, source: str) -> JainPropensity:
    """Return the propensity model of the option, else the published one of the training data, else the default."""
    from longtail.propensity import published_propensity

    return parse_propensity(text) if text else published_propensity(source)


def parse_tail(text: str) -> float | Literal["auto"]:
    """Read the position of the tail dial.

    Examples
    --------
    >>> parse_tail("0.5"), parse_tail("auto")
    (0.5, 'auto')
    """
    tail: Any = text
    with suppress(ValueError):
        tail = float(text)
    check("--tail", tail, Optional(TAIL, "auto"))
    return tail  # type: ignore[no-any-return]


def check_not_input(source: str | Path, out: Path) -> None:
    """Refuse to overwrite the input."""
    if out.exists() and os.path.exists(source) and os.path.samefile(source, out):
        raise InputError("is both the input and the output: give another name.", path=out)


def read(source: str, **options: Any) -> Dataset:
    """Load a data set; options are those of `longtail.data.load`."""
    from longtail.data import load

    with step(f"reading {source}"):
        return load(source, **options)


def capped(k: int, model: Model) -> int:
    """Return k, or the number of labels where that is less: more would only be padding."""
    return min(k, max(model.n_labels, 1))
