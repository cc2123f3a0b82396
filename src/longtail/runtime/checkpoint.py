"""Checkpoints of a training with several epochs: the state after the last one, written atomically."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.errors import InputError
from longtail.kernels.types import UInt64
from longtail.runtime.block_file import next_file, other_training
from longtail.runtime.disk import replacing_file, writing


class Checkpoint:
    """The newest state of a training on disk; nothing is kept outside of `resumable`.

    Parameters
    ----------
    fingerprint : bytes
        Identifies the training; only a state with the same fingerprint is loaded.
    own : int
        Rank of this process among those that train together: only rank 0 writes.

    Examples
    --------
    >>> import tempfile
    >>> from longtail.runtime.block_file import resumable
    >>> with resumable(tempfile.mkdtemp() + "/unfinished"):
    ...     checkpoint = Checkpoint(b"mine")
    ...     checkpoint.save([np.arange(3)])
    ...     checkpoint.load()
    [array([0, 1, 2])]
    """

    def __init__(self, fingerprint: bytes, own: int = 0) -> None:
        self._fingerprint = np.frombuffer(fingerprint, np.uint8)
        self._path = next_file()
        self._writes = own == 0

    @property
    def is_kept(self) -> bool:
        """Whether saved states are kept."""
        return self._path is not None and self._writes

    def load(self) -> list[npt.NDArray[Any]] | None:
        """Return the arrays saved last, by this run or an earlier one; None if there are none."""
        if self._path is None or not self._path.exists():
            return None
        try:
            with np.load(self._path, allow_pickle=False) as file:
                if not np.array_equal(file["fingerprint"], self._fingerprint):
                    raise other_training(self._path)
                return [file[f"array{number}"] for number in range(len(file.files) - 1)]
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile):
            raise other_training(self._path) from None
        except OSError as error:
            raise InputError(f"can't be read: {error.strerror or error}.", path=self._path) from None

    def save(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        """Replace the saved arrays; a run that is killed meanwhile leaves the old ones."""
        if self._path is None or not self._writes:
            return
        named = {f"array{number}": array for number, array in enumerate(arrays)}
        with writing(self._path), replacing_file(self._path) as file:
            np.savez(file, fingerprint=self._fingerprint, **named)  # type: ignore[arg-type]


def as_numbers(state: Mapping[str, Any]) -> UInt64:
    """Return the state of a PCG64 generator, the default of numpy, as an array for a checkpoint.

    Examples
    --------
    >>> state = np.random.default_rng(7).bit_generator.state
    >>> from_numbers(as_numbers(state)) == state
    True
    """
    parts = [state["state"]["state"], state["state"]["inc"]]
    halves = [half for part in parts for half in (part >> 64, part & (2**64 - 1))]
    return np.array([*halves, state["has_uint32"], state["uinteger"]], np.uint64)


def from_numbers(numbers: UInt64) -> dict[str, Any]:
    """Return the state of a generator from the result of `as_numbers`."""
    high, low, inc_high, inc_low, has, value = (int(number) for number in numbers)
    state = {"state": (high << 64) + low, "inc": (inc_high << 64) + inc_low}
    return {"bit_generator": "PCG64", "state": state, "has_uint32": has, "uinteger": value}
