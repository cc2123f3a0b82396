"""Propensity models as JSON files."""

from __future__ import annotations

import json
import os
from typing import Any

from longtail.data.streams import ByteReader, write_whole
from longtail.errors import InputError, ParameterError
from longtail.propensity.fitting import FittedPropensity
from longtail.propensity.models import JainPropensity


def describe_propensity(propensity: JainPropensity) -> dict[str, Any]:
    """Return the constants of a model and the figures of its fit, for JSON.

    Examples
    --------
    >>> describe_propensity(JainPropensity(a=0.6, b=2.6))
    {'a': 0.6, 'b': 2.6}
    """
    described: dict[str, Any] = {"a": float(propensity.a), "b": float(propensity.b)}
    if isinstance(propensity, FittedPropensity):
        points = propensity.points_
        described |= {
            "a_interval": list(propensity.a_interval_),
            "b_interval": list(propensity.b_interval_),
            "level": propensity.level_,
            "error": propensity.error_,
            "at_bound": propensity.at_bound,
            "rows": points.n_rows,
            "labels": int(points.n_labels.sum()),
            "bins": len(points),
            "points": {
                "counts": points.counts.tolist(),
                "propensities": points.propensities.tolist(),
                "labels": points.n_labels.tolist(),
                "support": points.support.tolist(),
            },
        }
    return described


def write_propensity(propensity: JainPropensity, path: str | os.PathLike[str]) -> None:
    """Write a model to a JSON file that `read_propensity` reads.

    Examples
    --------
    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "propensity.json")
    >>> write_propensity(JainPropensity(a=0.6, b=2.6), path)
    >>> read_propensity(path)
    JainPropensity(a=0.6, b=2.6)
    """
    with write_whole(path) as file:
        file.write(json.dumps(describe_propensity(propensity), indent=1).encode() + b"\n")


def read_propensity(path: str | os.PathLike[str]) -> JainPropensity:
    """Read a model from a JSON file with ``a`` and ``b``; other keys are ignored.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "ours.json")
    >>> _ = path.write_text('{"a": 0.5, "b": 0.4}')
    >>> read_propensity(path)
    JainPropensity(a=0.5, b=0.4)
    """
    with ByteReader(path) as stream:
        data = stream.readall()
    try:
        values = json.loads(data)
        propensity = JainPropensity(a=values["a"], b=values["b"])
        propensity.inverse([0, 1], 3)
    except ParameterError as error:
        raise InputError(str(error), path=path) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(
            "contains no propensity model: it must be a JSON object with the numbers 'a' and 'b'.", path=path
        ) from None
    return propensity
