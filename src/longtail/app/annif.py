"""longtail inside Annif: a backend that trains, suggests in batches and learns on from more documents.

Annif has no entry points for backends of others. It does import the configuration class that the environment variable
ANNIF_CONFIG names, for its commands and its server alike, and importing this module adds the backend to its registry::

    export ANNIF_CONFIG=longtail.app.annif.ProductionConfig

A project then says ``backend=longtail``; `docs/annif.md` has the rest.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

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
    from longtail.corpus import Dataset
    from longtail.store import Model

DIRECTORY = "longtail-model"


class LongtailBackend(AnnifLearningBackend):
    """Annif's backend ``longtail``: a recipe over longtail's own text features.

    Settings of a project: ``recipe`` (pw-cb-dismec when left out), ``limit``, ``tail`` (position of the tail dial),
    ``threads``, ``seed``, and those of the recipe and of its features, with ``longtail_`` before the name and ``__`` in
    place of a dot: ``longtail_regularisation=0.5``, ``longtail_features__ngrams=2``. The project's analyser is not
    used, but its transforms are.

    Annif wants scores from 0 to 1: margins become 1 / (1 + exp(-3 margin)), as everywhere in longtail.
    """

    name = "longtail"
    DEFAULT_PARAMETERS = {"recipe": "pw-cb-dismec", "seed": 0}  # noqa: RUF012 - as Annif has it

    _model: Model | None = None
    _ids: tuple[Model, Any, Any] | None = None

    @property
    def is_trained(self) -> bool:
        """Whether there is a model."""
        return os.path.isfile(os.path.join(self._path, "model.json"))

    def initialize(self, parallel: bool = False) -> None:
        """Load the model, whose arrays stay on disk."""
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
        from longtail.app.plans import compose
        from longtail.propensity import JainPropensity
        from longtail.store import Model

        dataset = self._dataset(corpus)
        tail = params.get("tail")
        try:
            plan = compose(
                params["recipe"],
                {name.removeprefix("longtail_"): _value(value) for name, value in params.items() if _is_ours(name)},
                JainPropensity(),
                threads=jobs or _whole(params.get("threads")),
                seed=int(params["seed"]),
                memory_limit=None,
                tail=None if tail is None else float(tail),
            )
            self.info(f"training {params['recipe']} on {dataset.n_rows} documents")
            learner = plan.fit(dataset.texts or [], dataset.Y)
            self._model = Model(learner, label_names=dataset.label_names, recipe=params["recipe"])
            self._model.save(self._path)
        except LongtailError as error:
            raise OperationFailedException(str(error)) from error

    def _learn(self, corpus: Any, params: dict[str, Any]) -> None:
        """Let the model learn on: see `Model.update`."""
        self.initialize()
        if self._model is None or corpus.is_empty():
            raise NotSupportedException("Cannot learn from no documents")
        try:
            self._model.update(self._dataset(corpus))
            self._model.save(self._path)
            self._ids = None
        except LongtailError as error:
            raise OperationFailedException(str(error)) from error

    def _suggest_batch(self, documents: list[Any], params: dict[str, Any]) -> Any:
        if self._model is None:
            raise NotInitializedException("the model is not loaded", backend_id=self.backend_id)
        subjects, model = self.project.subjects, self._model
        top = model.predict_topk([document.text for document in documents], min(int(params["limit"]), model.n_labels))
        scores = np.exp(model.learner._log_scores(top.scores))
        ids = self._subject_ids(model)[top.labels]
        row, place = np.nonzero((top.labels >= 0) & (ids >= 0) & (scores > 0))
        values = np.minimum(scores[row, place], 1).astype(np.float32)
        size = len(documents), len(subjects)
        return SuggestionBatch(sp.csr_array((values, (row, ids[row, place])), shape=size))

    def _subject_ids(self, model: Model) -> Any:
        """Id of each label in the vocabulary now; -1 for one that has left it."""
        if self._ids is None or self._ids[0] is not model or self._ids[1] is not self.project.subjects:
            found = [self.project.subjects.by_uri(uri, warnings=False) for uri in model.label_names or []]
            ids = np.array([-1 if number is None else number for number in found], np.int64)
            self._ids = model, self.project.subjects, ids
        return self._ids[2]

    def _dataset(self, corpus: Any) -> Dataset:
        """Documents with the URIs of their subjects."""
        from longtail.corpus import Dataset

        texts: list[str] = []
        rows: list[int] = []
        entries: list[int] = []
        ids: dict[str, int] = {}
        for document in corpus.documents:
            for subject_id in document.subject_set:
                uri = self.project.subjects[subject_id].uri
                entries.append(ids.setdefault(uri, len(ids)))
                rows.append(len(texts))
            texts.append(document.text)
        ones = np.ones(len(entries), np.float32)
        Y = sp.csr_array((ones, (rows, entries)), shape=(len(texts), len(ids)))
        return Dataset(None, Y, label_names=list(ids), texts=texts)


class Config(_Config):
    """Annif's default configuration, with the backend added."""


class ProductionConfig(_ProductionConfig):
    """Annif's configuration for servers, with the backend added."""


def _is_ours(name: str) -> bool:
    return name.startswith("longtail_")


def _value(text: Any) -> Any:
    from longtail.app.cli.arguments import parse_settings

    return parse_settings([f"value={text}"])["value"]


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


annif.backend._backend_fns["longtail"] = lambda: LongtailBackend
