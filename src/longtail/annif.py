"""A backend for Annif, with training, suggestions in batches and incremental learning.

Annif has no entry points for external backends. Its commands and its server import the configuration class named by the
environment variable ANNIF_CONFIG, and importing this module adds the backend to Annif's registry::

    export ANNIF_CONFIG=longtail.annif.ProductionConfig

A project then sets ``backend=longtail``; `docs/how-to/use-annif.md` has the rest.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from longtail.config import own_jobs
from longtail.errors import LongtailError, MissingExtraError

try:
    import annif.backend
    from annif.backend.backend import AnnifLearningBackend
    from annif.default_config import Config as _Config
    from annif.default_config import ProductionConfig as _ProductionConfig
    from annif.exception import NotInitializedException, NotSupportedException, OperationFailedException
    from annif.suggestion import SuggestionBatch
except ImportError as error:
    raise MissingExtraError("The Annif backend", "annif") from error

if TYPE_CHECKING:
    from longtail.data import Dataset
    from longtail.store import Model

DIRECTORY = "longtail-model"


class LongtailBackend(AnnifLearningBackend):
    """Annif's backend ``longtail``: a recipe with longtail's own text features.

    Settings of a project: ``recipe`` (pw-cb-dismec by default), ``limit``, ``tail`` (position of the tail dial),
    ``n_jobs``, ``random_state``, and the parameters of the recipe and its features, with the prefix ``longtail_`` and
    ``__`` in place of a dot: ``longtail_C=0.5``, ``longtail_features__min_df=3``. The project's transforms are used,
    its analyser is not.

    Annif needs scores from 0 to 1: margins become 1 / (1 + exp(-3 margin)), as for the tail dial.
    """

    name = "longtail"
    DEFAULT_PARAMETERS = {"recipe": "pw-cb-dismec", "random_state": 0}  # noqa: RUF012 - as Annif has it

    _model: Model | None = None
    _ids: tuple[Model, Any, Any] | None = None

    @property
    def is_trained(self) -> bool:
        """Whether the project has a model."""
        return os.path.isfile(os.path.join(self._path, "model.json"))

    def initialize(self, parallel: bool = False) -> None:
        """Load the model; its arrays stay on disk, mapped into memory."""
        if self._model is not None:
            return
        if not self.is_trained:
            raise NotInitializedException(f"model {self._path} not found", backend_id=self.backend_id)
        from longtail.store import Model

        self.debug(f"loading model from {self._path}")
        try:
            self._model = Model.load(self._path)
        except LongtailError as error:
            raise OperationFailedException(str(error)) from error

    @property
    def _path(self) -> str:
        return os.path.join(self.datadir, DIRECTORY)

    def _train(self, corpus: Any, params: dict[str, Any], jobs: int = 0) -> None:
        if corpus == "cached":
            raise NotSupportedException("The longtail backend keeps no training data: give the documents again.")
        if corpus.is_empty():
            raise NotSupportedException("Cannot train longtail project with no documents")
        from longtail.cli.arguments import parse_settings
        from longtail.propensity import JainPropensity
        from longtail.recipes.compose import compose
        from longtail.store import Model

        dataset = self._dataset(corpus)
        tail = params.get("tail")
        try:
            plan = compose(
                params["recipe"],
                parse_settings(
                    f"{name.removeprefix('longtail_')}={value}"
                    for name, value in params.items()
                    if name.startswith("longtail_")
                ),
                JainPropensity(),
                random_state=int(params["random_state"]),
                tail=None if tail is None else float(tail),
            )
            self.info(f"training {params['recipe']} on {dataset.n_rows} documents")
            with _jobs_of(params, jobs):
                learner = plan.fit(dataset.texts or [], dataset.Y)
            self._model = Model(learner, label_names=dataset.label_names, recipe=params["recipe"])
            self._model.save(self._path)
        except LongtailError as error:
            raise OperationFailedException(str(error)) from error

    def _learn(self, corpus: Any, params: dict[str, Any]) -> None:
        """Update the model with more documents, see `Model.update`."""
        self.initialize()
        if self._model is None or corpus.is_empty():
            raise NotSupportedException("Cannot learn from no documents")
        try:
            with _jobs_of(params):
                self._model.update(self._dataset(corpus))
            self._model.save(self._path)
            self._ids = None
        except LongtailError as error:
            raise OperationFailedException(str(error)) from error

    def _suggest_batch(self, documents: list[Any], params: dict[str, Any]) -> Any:
        if self._model is None:
            raise NotInitializedException("the model is not loaded", backend_id=self.backend_id)
        subjects, model = self.project.subjects, self._model
        with _jobs_of(params):
            top = model.predict_topk([one.text for one in documents], min(int(params["limit"]), model.n_labels))
        scores = np.exp(model.learner._log_scores(top.scores))
        ids = self._subject_ids(model)[top.labels]
        row, place = np.nonzero((top.labels >= 0) & (ids >= 0) & (scores > 0))
        values = np.minimum(scores[row, place], 1).astype(np.float32)
        size = len(documents), len(subjects)
        return SuggestionBatch(sp.csr_array((values, (row, ids[row, place])), shape=size))

    def _subject_ids(self, model: Model) -> Any:
        """Return the id of each label in the vocabulary, -1 if it is no longer part of it."""
        if self._ids is None or self._ids[0] is not model or self._ids[1] is not self.project.subjects:
            found = [self.project.subjects.by_uri(uri, warnings=False) for uri in model.label_names or []]
            ids = np.array([-1 if number is None else number for number in found], np.int64)
            self._ids = model, self.project.subjects, ids
        return self._ids[2]

    def _dataset(self, corpus: Any) -> Dataset:
        """Return documents as a data set with the URIs of their subjects as labels."""
        from longtail.data import Dataset
        from longtail.data.label_index import LabelIndex

        texts: list[str] = []
        rows: list[int] = []
        entries: list[int] = []
        labels = LabelIndex([])
        for document in corpus.documents:
            own = labels.extend(self.project.subjects[subject_id].uri for subject_id in document.subject_set).tolist()
            entries += own
            rows += [len(texts)] * len(own)
            texts.append(document.text)
        ones = np.ones(len(entries), np.float32)
        Y = sp.csr_array((ones, (rows, entries)), shape=(len(texts), len(labels)))
        return Dataset(None, Y, label_names=labels.names, texts=texts)


def _jobs_of(params: dict[str, Any], jobs: int = 0) -> AbstractContextManager[None]:
    """Return a context with the threads of a project, or with `jobs` of them."""
    return own_jobs(jobs or (int(params["n_jobs"]) if "n_jobs" in params else None))


class Config(_Config):
    """Annif's default configuration, with the backend added."""


class ProductionConfig(_ProductionConfig):
    """Annif's configuration for servers, with the backend added."""


annif.backend._backend_fns["longtail"] = lambda: LongtailBackend
