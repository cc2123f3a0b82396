"""The code that runs in Ray workers, which cache the data of a run for their next blocks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from longtail import __version__, errors
from longtail.config import limit_threads
from longtail.errors import InputError, LongtailError
from longtail.runtime.mmap import writable
from longtail.runtime.task import with_arrays

_held: dict[str, Any] = {}  # data of one run: the owner of the work, and its shared arguments


@dataclass(frozen=True)
class Refusal:
    """An error of longtail in a form that can be sent to the driver."""

    kind: str
    arguments: tuple[Any, ...]
    state: dict[str, Any]

    @classmethod
    def of(cls, error: LongtailError) -> Refusal:
        """Convert an error."""
        state = {name: _sayable(value) for name, value in vars(error).items()}
        return cls(type(error).__name__, tuple(map(_sayable, error.args)), state)

    def error(self) -> LongtailError:
        """Return the error."""
        kind = getattr(errors, self.kind, LongtailError)
        made: LongtailError = kind.__new__(kind, *self.arguments)
        made.__dict__.update(self.state)
        return made


def _sayable(value: Any) -> Any:
    """Return an attribute of an error, as text unless it is a number or text."""
    return value if isinstance(value, str | int | float | None) else str(value)


def run_block(version: str, references: Sequence[Any], method: str, block: Any, cpus: int) -> Any:
    """Run one block.

    Parameters
    ----------
    version : str
        Version of longtail of the driver.
    references : sequence
        Object references of the owner of the method and of the shared arguments.
    method, block, cpus
        See `RemoteTask`.
    """
    limit_threads(cpus)
    try:
        check_version(version)
        owner, shared = _found(references)
        return getattr(owner, method)(*shared, block, np.zeros(1, np.uint8))
    except LongtailError as error:
        return Refusal.of(error)


def warm_up(modules: Sequence[str]) -> None:
    """Import the modules that the blocks will need."""
    for name in modules:
        if name not in sys.modules:
            import_module(name)


def check_version(version: str) -> None:
    """Raise an error for blocks from another version of longtail."""
    if version != __version__:
        raise InputError(
            f"The cluster has longtail {__version__}, and this is {version}: install the same on all nodes."
        )


def _found(references: Sequence[Any]) -> list[Any]:
    """Return the objects behind references, read from the object store without a copy and cached.

    A process caches the data of one run at a time, so that its memory is bounded. Where two runs alternate, reading the
    data again takes milliseconds.
    """
    import ray

    keys = [reference.hex() for reference in references]
    for key in [key for key in _held if key not in keys]:
        del _held[key]
    for key, reference in zip(keys, references, strict=True):
        if key not in _held:
            _held[key] = with_arrays(ray.get(reference), writable)
    return [_held[key] for key in keys]
