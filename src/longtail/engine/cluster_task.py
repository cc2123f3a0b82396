"""What a worker of a cluster does: it keeps what it was sent for the next block of the same run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from longtail import __version__, errors
from longtail.engine import pool
from longtail.engine.portable import with_arrays, writable
from longtail.errors import InputError, LongtailError

_held: dict[str, Any] = {}  # what the blocks of one run need: their owner and what they share


@dataclass(frozen=True)
class Refusal:
    """An error of longtail on its way to the person who made it."""

    kind: str
    arguments: tuple[Any, ...]
    state: dict[str, Any]

    @classmethod
    def of(cls, error: LongtailError) -> Refusal:
        """Take down what an error says."""
        state = {name: _sayable(value) for name, value in vars(error).items()}
        return cls(type(error).__name__, tuple(map(_sayable, error.args)), state)

    def error(self) -> LongtailError:
        """The error again."""
        kind = getattr(errors, self.kind, LongtailError)
        made: LongtailError = kind.__new__(kind, *self.arguments)
        made.__dict__.update(self.state)
        return made


def _sayable(value: Any) -> Any:
    """What an error holds, or its text where it is no number or text itself."""
    return value if isinstance(value, str | int | float | None) else str(value)


def run_block(version: str, references: Sequence[Any], method: str, block: Any, cpus: int) -> Any:
    """Work on one block.

    Parameters
    ----------
    version : str
        Of the longtail that sends the block.
    references : sequence
        Where the owner of the method is, and the tuple that its blocks share.
    method, block, cpus
        See `Portable`.
    """
    pool.limit_threads(cpus)
    try:
        check_version(version)
        owner, shared = _found(references)
        return getattr(owner, method)(*shared, block, np.zeros(1, np.uint8))
    except LongtailError as error:
        return Refusal.of(error)


def warm_up(modules: Sequence[str]) -> None:
    """Import what the blocks will need."""
    for name in modules:
        if name not in sys.modules:
            import_module(name)


def check_version(version: str) -> None:
    """Refuse blocks from another version of longtail."""
    if version != __version__:
        raise InputError(
            f"The cluster has longtail {__version__}, and this is {version}: install the same on all nodes."
        )


def _found(references: Sequence[Any]) -> list[Any]:
    """What references stand for, read from the store at their first use, without a copy.

    What the blocks of another run needed is let go first, its working memory too: a process has one run's at a time.
    Where two runs take turns, it is read anew, which takes milliseconds.
    """
    import ray

    keys = [reference.hex() for reference in references]
    for key in [key for key in _held if key not in keys]:
        del _held[key]
    for key, reference in zip(keys, references, strict=True):
        if key not in _held:
            _held[key] = with_arrays(ray.get(reference), writable)
    return [_held[key] for key in keys]
