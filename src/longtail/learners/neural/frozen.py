"""Cached output of frozen layers: they run once instead of in every epoch."""

from __future__ import annotations

import shutil
import tempfile

import numpy as np
import numpy.typing as npt
import torch

from longtail.errors import ParameterError
from longtail.kernels.types import Int64
from longtail.learners.neural.batches import TokenRows, by_length
from longtail.learners.neural.modules.encoder import Below, EncoderModule
from longtail.runtime.pool import in_chunks

Float16 = npt.NDArray[np.float16]

_AT_ONCE = 32  # rows


class FrozenStates:
    """Output of the frozen layers of an encoder for all rows, as float16 in a temporary file.

    Batches depend on the lengths of the rows alone, so the values are the same each time. The encoder must be on a CPU
    and have `is_split`; with `use_half`, matrix products are computed in bfloat16.
    """

    def __init__(self, encoder: EncoderModule, rows: TokenRows, use_half: bool = False) -> None:
        self._lengths = np.maximum(rows.lengths, 1)
        self._begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._lengths)])
        n_tokens, width = int(self._begins[-1]), encoder.width
        _check_disk(2 * n_tokens * width)
        self._file = tempfile.TemporaryFile(prefix="longtail-")  # noqa: SIM115
        self._states: Float16 = np.memmap(self._file, np.float16, "w+", shape=(n_tokens, width))
        batches = by_length(rows.lengths, _AT_ONCE)
        encoder.eval()
        with torch.inference_mode():
            cls_states = encoder.below(*rows.batch(np.zeros(1, np.int64), encoder.padding)).cls_states.shape[1]
        self._cls_states: Float16 = np.empty((len(rows), cls_states, width), np.float16)

        def run(first: int, last: int) -> None:
            torch.set_num_threads(1)  # of this thread
            with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=use_half):
                for chosen in batches[first:last]:
                    tokens, mask = rows.batch(chosen, encoder.padding)
                    found = encoder.below(tokens, mask)
                    self._states[self._places(chosen)] = found.states[mask].half().numpy()
                    self._cls_states[chosen] = found.cls_states.half().numpy()

        in_chunks(run, len(batches), 1, "running the frozen layers")

    def batch(self, rows: Int64) -> Below:
        """Return the states of some rows, padded on the right."""
        lengths = self._lengths[rows]
        inside = np.arange(int(lengths.max()))[None] < lengths[:, None]
        states = np.zeros((*inside.shape, self._states.shape[1]), np.float32)
        states[inside] = self._states[self._places(rows)]
        return Below(torch.from_numpy(states), torch.from_numpy(self._cls_states[rows].astype(np.float32)))

    def close(self) -> None:
        """Delete the file."""
        self._file.close()

    def _places(self, rows: Int64) -> Int64:
        """Positions of the tokens of some rows in the file."""
        lengths = self._lengths[rows]
        within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return np.asarray(np.repeat(self._begins[rows], lengths) + within)


def _check_disk(size: int) -> None:
    directory = tempfile.gettempdir()
    free = shutil.disk_usage(directory).free
    if size > free:
        needed = f"needs {size / 1e9:.1f} GB in {directory}, which has {free / 1e9:.1f}"
        raise ParameterError("cache_frozen", True, f"{needed}: set TMPDIR to another place, or cache_frozen to False")
