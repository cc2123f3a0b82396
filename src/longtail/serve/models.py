"""The served models: loading, warm-up, description, and replacement by a new version while requests continue."""

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

from longtail.data.sparse import canonical_rows
from longtail.errors import InputError, LongtailError, ModelError
from longtail.rerank import TailDial
from longtail.runtime.progress import show_progress
from longtail.serve.labels import Labels
from longtail.serve.neighbours import Space, space_of
from longtail.serve.problems import ProblemDetails, seven_digits
from longtail.store import Model
from longtail.store.manifest import check_model, model_checksum
from longtail.topk import TopK
from longtail.tree_view.outline import Outline, outline

logger = logging.getLogger("longtail.serve")

_VERSION_DIGITS = 16
_TRIES = 3  # reads of a directory that is replaced while it is read
_WARM_TEXT = "The quick brown fox jumps over the lazy dog and reads 1 short text about labels."
_KEPT_LABELS = 4096
_ALL = 2**31  # neighbours: all of them are cached
_KEPT_NEIGHBOURS = 50  # per label


@dataclass(eq=False)
class Served:
    """One version of a model, ready for requests."""

    name: str
    model: Model
    checksum: str
    """Checksum of model.json, which contains those of all other files."""
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
        """The similarity of labels, None if the learner has none."""
        return space_of(self.model)

    @cached_property
    def outline(self) -> Outline | None:
        """The label trees, None if there are none."""
        try:
            return outline(self.model)
        except InputError:
            return None

    @cached_property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.model.learner.n_features_in_)

    def predict(self, rows: Sequence[Any], k: int, tail: float | None, only: Any, exclude: Any) -> tuple[TopK, Any]:
        """Rank labels of texts or rows of features; return the ranking and, if calibrated, probabilities."""
        with show_progress(False):
            top = self.model.predict_topk(
                list(rows) if self.model.takes_texts else self.matrix(rows), k, tail=tail, only=only, exclude=exclude
            )
        calibration = self.model.calibration
        probabilities = None if calibration is None or tail is not None else calibration.probabilities(top).scores
        return top, probabilities

    def matrix(self, rows: Sequence[Any]) -> sp.csr_array:
        """Return rows of features, each a pair of sorted indices and values, as a matrix."""
        indptr = np.concatenate([[0], np.cumsum([len(indices) for indices, _ in rows])]).astype(np.int32)
        indices = np.concatenate([np.empty(0, np.int32), *(indices for indices, _ in rows)]).astype(np.int32)
        values = np.concatenate([np.empty(0, np.float32), *(values for _, values in rows)]).astype(np.float32)
        return canonical_rows(values, indices, indptr, (len(rows), self.n_features))

    def nearest(self, label: int, k: int) -> list[dict[str, Any]]:
        """Return the most similar labels, nearest first; recent results are cached."""
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
        return [{**self.labels.entry(near), "similarity": seven_digits(value)} for near, value in found[:k]]

    def describe(self) -> dict[str, Any]:
        """Return the description of the model."""
        model, training = self.model, self.model.training
        dial = model.learner.find(TailDial)
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
            "dial": None if dial is None else float(dial.tail_),
            "has_explanations": self.explains,
            "has_tree": self.outline is not None,
            "nearest_by": None if self.space is None else self.space.by,
            "trained_on": training.get("data"),
            "training": {key: value for key, value in training.items() if isinstance(value, int | float | str)},
            "frequencies": self.labels.summary(),
        }

    def warm_up(self) -> None:
        """Predict and explain once, so that kernels are compiled and files read before the first request."""
        row: Any = _WARM_TEXT
        if not self.model.takes_texts:
            row = (np.array([0], np.int32), np.ones(1, np.float32))
        _ = self.model.labels.is_unique  # builds the table of names, which takes a while for many labels
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
    """Load and warm up a model, with the checksums of all its files verified."""
    for attempt in range(_TRIES):
        before = model_checksum(directory)
        try:
            model = Model.load(directory, verify=True)
        except (ModelError, OSError):
            if attempt + 1 < _TRIES and model_checksum(directory) != before:
                continue
            raise
        if model_checksum(directory) == before:
            served = Served(name, model, before)
            served.warm_up()
            return served
    raise ModelError(f"{directory} was replaced {_TRIES} times while it was read: reload it later.")


def is_intact(directory: Path, checksum: str) -> bool:
    """Return whether a directory still contains a version, with all checksums verified; refuse a damaged one."""
    if model_checksum(directory) != checksum:
        return False
    try:
        check_model(directory)
    except (ModelError, OSError):
        if model_checksum(directory) == checksum:
            raise
    return model_checksum(directory) == checksum


class ServedModels:
    """The models by name, each in its current version.

    A request uses one version throughout; a replaced version is freed when the last request that uses it has its
    response.
    """

    def __init__(self, directories: dict[str, str]) -> None:
        self._directories = {name: Path(directory).resolve() for name, directory in directories.items()}
        self._served: dict[str, Served] = {}
        self._damaged: set[str] = set()  # models whose memory-mapped files were changed on disk
        self._loading = {name: threading.Lock() for name in directories}

    @property
    def names(self) -> list[str]:
        """Names of all models, loaded or not."""
        return list(self._directories)

    @property
    def is_ready(self) -> bool:
        """Whether all models are loaded and warm."""
        return len(self._served) == len(self._directories)

    def get(self, name: str | None) -> Served:
        """Return the current version of a model, by default of the first."""
        wanted = next(iter(self._directories)) if name is None else name
        served = self._served.get(wanted)
        if served is not None:
            return served
        if wanted in self._directories:
            raise ProblemDetails(
                "not_ready", f"The model {wanted} is being loaded: try again in a moment.", {"Retry-After": "1"}
            )
        shown = wanted if len(wanted) <= 64 else wanted[:64] + "..."
        raise ProblemDetails("not_found", f"There is no model {shown!r}: /v1/models lists them.")

    def load(self, name: str) -> tuple[Served, Served | None]:
        """Load a model in the calling thread and make it current; return the current and the previous version.

        If the directory still contains the current version, undamaged, nothing is loaded and both are the same. A
        version that was found damaged is loaded again.
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
        """Load a model as `load` does; if that fails, keep the current version and raise an error for the client."""
        if name not in self._directories:
            self.get(name)
        try:
            return self.load(name)
        except (LongtailError, OSError) as error:
            logger.error("model %s was not loaded: %s", name, error)
            reason = " ".join(str(error).split()).replace(str(self._directories[name]), name)
            raise ProblemDetails("reload_failed", f"The version before is still served. {reason}") from None
