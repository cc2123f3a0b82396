"""The state of a training that goes over the rows many times: written after each pass, whole or not at all."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.engine.disk import writing
from longtail.engine.spool import next_file, other_training
from longtail.errors import InputError


class Checkpoint:
    """A place for the newest state of a training; it forgets everything outside of `resumable`.

    Parameters
    ----------
    fingerprint : bytes
        Says what the state belongs to; only a state with the same one is taken up again.
    own : int
        Number of this process among those that train together: only the first one writes.

    Examples
    --------
    >>> import tempfile
    >>> from longtail.engine.spool import resumable
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
        """Whether what is saved is kept at all."""
        return self._path is not None and self._writes

    def load(self) -> list[npt.NDArray[Any]] | None:
        """Arrays that were saved last, by this run or an earlier one; None if there are none."""
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
        """Keep these arrays in the place of those before; a run that is killed meanwhile leaves those before."""
        if self._path is None or not self._writes:
            return  # as `is_kept` says
        new = self._path.with_name(f"new-{self._path.name}")
        named = {f"array{number}": array for number, array in enumerate(arrays)}
        try:
            with writing(self._path):
                with open(new, "wb") as file:
                    np.savez(file, fingerprint=self._fingerprint, **named)  # type: ignore[arg-type]
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(new, self._path)
        except BaseException:
            with suppress(OSError):
                new.unlink()
            raise


def as_numbers(drawn: Mapping[str, Any]) -> npt.NDArray[np.uint64]:
    """State of a PCG64 generator, which `numpy.random.default_rng` gives, as an array for a checkpoint.

    Examples
    --------
    >>> state = np.random.default_rng(7).bit_generator.state
    >>> from_numbers(as_numbers(state)) == state
    True
    """
    parts = [drawn["state"]["state"], drawn["state"]["inc"]]
    halves = [half for part in parts for half in (part >> 64, part & (2**64 - 1))]
    return np.array([*halves, drawn["has_uint32"], drawn["uinteger"]], np.uint64)


def from_numbers(numbers: npt.NDArray[np.uint64]) -> dict[str, Any]:
    """State of a generator that `as_numbers` gave."""
    high, low, inc_high, inc_low, has, value = (int(number) for number in numbers)
    state = {"state": (high << 64) + low, "inc": (inc_high << 64) + inc_low}
    return {"bit_generator": "PCG64", "state": state, "has_uint32": has, "uinteger": value}
