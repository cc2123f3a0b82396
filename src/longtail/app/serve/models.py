"""Models that are served: loaded, warmed up, described, and swapped for a new version while requests go on."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.app.serve.labels import Labels
from longtail.app.serve.manifests import read_checksum
from longtail.app.serve.neighbours import Space, space_of
from longtail.app.serve.numbers import shortened
from longtail.app.serve.problems import Problem
from longtail.app.tree.outline import Outline, outline
from longtail.engine.progress import show_progress
from longtail.engine.topk import TopK
from longtail.errors import InputError, LongtailError, ModelError
from longtail.store import Model
from longtail.store.manifest import check_model
from longtail.tail import TailDial

logger = logging.getLogger("longtail.serve")

_VERSION_DIGITS = 16
_TRIES = 3  # a directory that is replaced while it is read is read again
_WARM_TEXT = "The quick brown fox jumps over the lazy dog and reads 1 short text about labels."
_KEPT_LABELS = 4096
_ALL = 2**31  # neighbours: there are no more than those that are kept
_KEPT_NEIGHBOURS = 50  # of a label


@dataclass(eq=False)
class Served:
    """One version of a model, ready to answer.

    Parameters
    ----------
    name : str
    directory : Path
    model : Model
    checksum : str
        Of model.json, which holds those of all other files.
    loaded_at : float
        Seconds since 1970.
    """

    name: str
    directory: Path
    model: Model
    checksum: str
    loaded_at: float = field(default_factory=time.time)
    explains: bool = False

    def __post_init__(self) -> None:
        self.labels = Labels(self.model)
        self._neighbours: OrderedDict[int, tuple[list[tuple[int, float]], int]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def version(self) -> str:
        """The first digits of the checksum."""
        return self.checksum[:_VERSION_DIGITS]

    @cached_property
    def space(self) -> Space | None:
        """Where labels are near to one another."""
        return space_of(self.model)

    @cached_property
    def outline(self) -> Outline | None:
        """The label trees, where there are some."""
        try:
            return outline(self.model)
        except InputError:
            return None

    @cached_property
    def n_features(self) -> int:
        """Features that a row may have."""
        return int(self.model.learner.n_features_in_)

    def predict(self, rows: Sequence[Any], k: int, tail: float | None, only: Any, exclude: Any) -> tuple[TopK, Any]:
        """Rank labels of texts or of rows of features; the scores, and probabilities where the model has them."""
        with show_progress(False):
            top = self.model.predict_topk(
                list(rows) if self.model.takes_texts else self.matrix(rows), k, tail=tail, only=only, exclude=exclude
            )
        calibration = self.model.calibration
        likely = None if calibration is None or tail is not None else calibration.probabilities(top).scores
        return top, likely

    def matrix(self, rows: Sequence[Any]) -> sp.csr_array:
        """Rows of features, each a pair of sorted indices and values, as a matrix."""
        indptr = np.concatenate([[0], np.cumsum([len(indices) for indices, _ in rows])]).astype(np.int32)
        indices = np.concatenate([np.empty(0, np.int32), *(indices for indices, _ in rows)]).astype(np.int32)
        values = np.concatenate([np.empty(0, np.float32), *(values for _, values in rows)]).astype(np.float32)
        matrix = sp.csr_array((values, indices, indptr), shape=(len(rows), self.n_features))
        matrix.has_canonical_format = True
        return matrix

    def nearest(self, label: int, k: int) -> list[dict[str, Any]]:
        """Labels that are most like a label, nearest first; those asked for lately are kept."""
        space = self.space
        if space is None:
            return []
        with self._lock:
            found, asked = self._neighbours.get(label, ([], 0))
            if asked < k:
                asked = max(k, _KEPT_NEIGHBOURS)
                found = space.nearest(label, asked)
                is_all = len(found) < asked
                kept = found[:_KEPT_NEIGHBOURS]
                asked = _ALL if is_all and len(kept) == len(found) else _KEPT_NEIGHBOURS
                self._neighbours[label] = (kept, asked)
                if len(self._neighbours) > _KEPT_LABELS:
                    self._neighbours.popitem(last=False)
            self._neighbours.move_to_end(label)
        return [{**self.labels.entry(near), "similarity": shortened(value)} for near, value in found[:k]]

    def describe(self) -> dict[str, Any]:
        """What is worth knowing of the model."""
        model, training = self.model, self.model.training
        learner: Any = model.learner
        while learner is not None and not isinstance(learner, TailDial):
            learner = getattr(learner, "learner_", None)
        return {
            "name": self.name,
            "version": self.version,
            "checksum": self.checksum,
            "loaded_at": round(self.loaded_at, 3),
            "recipe": model.recipe,
            "takes": "texts" if model.takes_texts else "features",
            "features": self.n_features,
            "labels": model.n_labels,
            "rows": model.n_rows,
            "has_names": model.label_names is not None,
            "calibrated": model.calibration is not None,
            "has_dial": True,
            "dial": None if learner is None else float(learner.tail_),
            "has_explanations": self.explains,
            "has_tree": self.outline is not None,
            "nearest_by": None if self.space is None else self.space.by,
            "trained_on": training.get("data"),
            "training": {key: value for key, value in training.items() if isinstance(value, int | float | str)},
            "frequencies": self.labels.summary(),
        }

    def warm_up(self) -> None:
        """Ask the model everything once, so that the first request finds all kernels compiled and all pages read."""
        row: Any = _WARM_TEXT
        if not self.model.takes_texts:
            row = (np.array([0], np.int32), np.ones(1, np.float32))
        self.labels.prepare()
        k = min(5, max(1, self.model.n_labels))
        self.predict([row], k, None, None, None)
        self.predict([row] * 3, k, 0.5, None, [0] if self.model.n_labels > 1 else None)
        try:
            with show_progress(False):
                self.model.explain(row if isinstance(row, str) else self.matrix([row]), k=1)
            self.explains = True
        except InputError:
            self.explains = False


def load(name: str, directory: Path) -> Served:
    """Load and warm up a model, with all of its files checked against their checksums."""
    for attempt in range(_TRIES):
        before = read_checksum(directory)
        try:
            model = Model.load(directory, verify=True)
        except (ModelError, OSError):
            if attempt + 1 < _TRIES and read_checksum(directory) != before:
                continue
            raise
        if read_checksum(directory) == before:
            served = Served(name, directory, model, before)
            served.warm_up()
            return served
    raise ModelError(f"{directory} was replaced {_TRIES} times while it was read: reload it when it is done.")


def is_intact(directory: Path, checksum: str) -> bool:
    """Whether a directory still holds a version, all files compared with their checksums; refuse a damaged one."""
    if read_checksum(directory) != checksum:
        return False
    try:
        check_model(directory)
    except (ModelError, OSError):
        if read_checksum(directory) == checksum:
            raise
    return read_checksum(directory) == checksum


class Registry:
    """The models by name, each in the version that is served now.

    A request takes a version once and keeps it; a version that was swapped for another goes when the last request that
    holds it is answered.
    """

    def __init__(self, directories: dict[str, str]) -> None:
        self._directories = {name: Path(directory).resolve() for name, directory in directories.items()}
        self._served: dict[str, Served] = {}
        self._damaged: set[str] = set()  # files that are mapped into memory were changed under the version served
        self._loading = {name: threading.Lock() for name in directories}

    @property
    def names(self) -> list[str]:
        """All models, loaded or not."""
        return list(self._directories)

    @property
    def is_ready(self) -> bool:
        """Whether all models are loaded and warm."""
        return len(self._served) == len(self._directories)

    def get(self, name: str | None) -> Served:
        """Version of a model that is served now; of the first where no name is given."""
        wanted = next(iter(self._directories)) if name is None else name
        served = self._served.get(wanted)
        if served is not None:
            return served
        if wanted in self._directories:
            raise Problem(
                "not_ready", f"The model {wanted} is being loaded: try again in a moment.", {"Retry-After": "1"}
            )
        shown = wanted if len(wanted) <= 64 else wanted[:64] + "..."
        raise Problem("not_found", f"There is no model {shown!r}: /v1/models lists them.")

    def load(self, name: str) -> tuple[Served, Served | None]:
        """Load a model anew, in the thread of the caller, and swap it in; the version served now, and the one before.

        Where the directory holds the version that is served already, and whole, nothing is loaded and both are the
        same; but it is loaded once more if it was found damaged meanwhile.
        """
        with self._loading[name]:
            old, directory = self._served.get(name), self._directories[name]
            if old is not None:
                try:
                    holds_old = is_intact(directory, old.checksum)
                except (ModelError, OSError):
                    self._damaged.add(name)
                    raise
                if holds_old and name not in self._damaged:
                    return old, old
            new = load(name, directory)
            self._served[name] = new
            self._damaged.discard(name)
            return new, old

    def reload(self, name: str) -> tuple[Served, Served | None]:
        """As `load`, with an answer for the client where it fails; the version served before stays."""
        if name not in self._directories:
            self.get(name)
        try:
            return self.load(name)
        except (LongtailError, OSError) as error:
            logger.error("model %s was not loaded: %s", name, error)
            reason = " ".join(str(error).split()).replace(str(self._directories[name]), name)
            raise Problem("reload_failed", f"The version before is still served. {reason}") from None
