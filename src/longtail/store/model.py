"""A trained model: a fitted learner with all that is needed to use and evaluate it, saved as a directory."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from longtail.data.dataset import Dataset
from longtail.data.label_index import LabelIndex
from longtail.data.sparse import as_indicator, with_columns
from longtail.errors import InputError, ModelError, ParameterError, counted
from longtail.kernels.types import Float32, Float64, Int32, Int64
from longtail.learners import Calibration, Explanation, Learner
from longtail.learners.calibration import Method
from longtail.learners.prediction import checked_k
from longtail.metrics import Evaluator, Scores, calibration_error
from longtail.metrics.frequency import NamedBins
from longtail.propensity import GivenPropensity, Propensity
from longtail.store.manifest import read_model, write_model
from longtail.store.shards import topk_in_shards
from longtail.store.updating import check_ids, labels_of_update, replaced_rows
from longtail.topk import TopK


@dataclass(eq=False)
class Model:
    """A fitted learner with its label names, the propensities of its training data and a record of its training.

    Parameters
    ----------
    learner : Learner
        Fitted.
    label_names : list of str, optional
        One per label, in the order of label ids.
    propensity : Propensity, optional
        Propensity model for the propensity-scored metrics. By default the one that the learner weights by, or the one
        with default constants.
    recipe : str, optional
        Name of the learner's recipe.
    training : dict, optional
        Record of the training, such as seconds and rows: numbers and text.
    calibration : Calibration, optional
        Maps scores to probabilities; set by `calibrate`.

    Examples
    --------
    >>> import tempfile
    >>> from longtail import Model, Popularity
    >>> learner = Popularity().fit([[1], [2]], [[0, 1], [1, 1]])
    >>> path = tempfile.mkdtemp() + "/model"
    >>> Model(learner, label_names=["rare", "common"]).save(path)
    >>> Model.load(path).predict_names([[3]], k=2)
    [[('common', 1.0), ('rare', 0.5)]]
    """

    learner: Learner
    label_names: list[str] | None = None
    propensity: Propensity = None  # type: ignore[assignment]  # __post_init__ finds one
    recipe: str | None = None
    training: dict[str, Any] = field(default_factory=dict)
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.learner, Learner):
            raise ParameterError(
                "learner",
                self.learner,
                "must be a fitted learner of longtail: for texts a TextLearner in place of a Pipeline, of a search its "
                "best_estimator_",
            )
        check_is_fitted(self.learner, "n_labels_")
        if self.propensity is None:
            self.propensity = self.learner.propensity_model()
        for _, part in self.learner.parts(fitted=True):
            part._data_propensity = self.propensity
        _ = self.labels  # checks the number of names

    def __repr__(self) -> str:
        what = self.recipe or self.learner.display_name
        rows = "texts" if self.takes_texts else counted(self.learner.n_features_in_, "feature")
        calibrated = "" if self.calibration is None else ", calibrated"
        trained = counted(self.n_rows, "training row")
        return f"Model({what!r}: {trained}, {rows}, {counted(self.n_labels, 'label')}{calibrated})"

    @property
    def n_labels(self) -> int:
        """Number of labels, including those without a training row."""
        return self.learner.n_labels_

    @property
    def n_rows(self) -> int:
        """Number of training rows, including those without labels."""
        return self.learner.n_rows_

    @property
    def label_counts(self) -> Int64:
        """Number of training rows per label."""
        return self.learner.label_counts_

    @property
    def labels(self) -> LabelIndex:
        """Names and ids of the labels."""
        names, index = self.__dict__.get("_indexed", (None, None))
        if index is None or names is not self.label_names or len(index) != self.n_labels:
            index = LabelIndex(self.label_names, self.n_labels)
            self.__dict__["_indexed"] = (self.label_names, index)
        return index  # type: ignore[no-any-return]

    @cached_property
    def takes_texts(self) -> bool:
        """Whether rows are texts; otherwise they are features."""
        return bool(get_tags(self.learner).input_tags.string)

    @property
    def label_embeddings(self) -> Float32 | None:
        """Label embeddings, 0 for labels without one; None if the learner has none."""
        embedded = _embedded(self.learner)
        return None if embedded is None else embedded.label_embeddings_

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model as a directory, completely or not at all; an older model at `path` is replaced.

        Raises
        ------
        ModelError
            When `path` can't be written, or holds something that is not a longtail model.
        """
        write_model(
            {
                "learner": self.learner,
                "label_names": self.label_names,
                "propensity": self.propensity,
                "recipe": self.recipe,
                "training": self.training,
                "calibration": self.calibration,
            },
            Path(path),
        )

    @classmethod
    def load(cls, path: str | PathLike[str], *, verify: bool = False) -> Self:
        """Load a model directory; its arrays stay on disk, mapped into memory.

        Parameters
        ----------
        path : path-like
        verify : bool
            Also check the checksums of files above 128 MB, which takes time; other files are always checked.

        Raises
        ------
        ModelError
            When a file is missing, truncated or changed, or when a newer version of longtail wrote the model.
        """
        contents = read_model(Path(path), verify=verify)
        if not isinstance(contents.get("learner"), Learner):
            raise ModelError(f"{path} contains no learner: train it again.")
        try:
            return cls(**{name: contents[name] for name in cls.__dataclass_fields__ if name in contents})
        except (NotFittedError, ParameterError) as error:
            raise ModelError(f"{path} is not a usable model: {error}") from error

    def predict_topk(
        self,
        X: Any,
        k: int = 5,
        *,
        tail: float | None = None,
        only: Any = None,
        exclude: Any = None,
        probabilities: bool = False,
    ) -> TopK:
        """Rank the k best labels of each row; see `Learner.predict_topk`.

        Parameters
        ----------
        X : matrix, sequence of texts, or Dataset
        k : int
        tail : float, optional
            Position of the tail dial, from 0 to 1, with the propensities of the learner or else of the model. By
            default the learner's own position.
        only, exclude : sequence of label ids or names, optional
            Labels to rank (`only`), or to leave out (`exclude`).
        probabilities : bool
            Return probabilities instead of scores, in the same order; the model must be calibrated.
        """
        how, calibration = self._checked(tail=tail, only=only, exclude=exclude, probabilities=probabilities)
        top = self.learner.predict_topk(self.rows(X), k, **how)
        return top if calibration is None else calibration.probabilities(top)

    def iter_topk(self, X: Any, k: int = 5, **how: Any) -> Iterator[TopK]:
        """Iterate over the rankings of `predict_topk` for a few thousand rows at a time, in bounded memory.

        The settings of the run are those of the call, wherever the iterator is used.
        """
        checked, calibration = self._checked(**how)
        tops = topk_in_shards(self.learner, self.rows(X), k=k, **checked)
        return tops if calibration is None else map(calibration.probabilities, tops)

    def predict_names(self, X: Any, k: int = 5, **how: Any) -> list[list[tuple[str, float]]]:
        """Return the rankings of `predict_topk` as (name, score) pairs, with ids as text if labels have no names."""
        return self.names(self.predict_topk(X, k, **how))

    def calibrate(
        self, dataset: Dataset, *, method: Method = "isotonic", bins: NamedBins | None = "head-torso-tail", k: int = 20
    ) -> Self:
        """Fit probabilities on held-out rows; see `Calibration`.

        Parameters
        ----------
        dataset : Dataset
            Held-out rows with their labels.
        method, bins
            See `Calibration`.
        k : int
            Labels per row that are used.
        """
        Y, counts, _ = self.truth(dataset)
        top = self.predict_topk(dataset, k)
        self.calibration = Calibration(method=method, bins=bins).fit(top, Y, counts)
        return self

    def explain(self, row: Any, labels: Any = None, *, k: int = 5) -> list[Explanation]:
        """Explain the scores of labels for one text or one row of features.

        Parameters
        ----------
        row : str, or matrix with one row
        labels : sequence of label ids or names, optional
            The k best of the row by default.
        k : int

        Examples
        --------
        >>> from longtail import OneVsRest
        >>> model = Model(OneVsRest(n_jobs=1).fit([[1, 0], [0, 1]], [[1, 0], [0, 1]]), label_names=["left", "right"])
        >>> explanation = model.explain([[1, 0]], ["left"])[0]
        >>> abs(explanation.bias + sum(effect for _, effect in explanation.parts) - explanation.score) < 1e-6
        True
        """
        rows = [row] if isinstance(row, str) else row
        ids = self._ids("labels", labels)
        if ids is not None and self.label_names is not None:
            for label in ids:
                if self.label_counts[label] == 0:
                    raise InputError(
                        f"Label {self.label_names[label]!r} has no training row, so there is no score to explain."
                    )
        found = self.learner.explain(self.rows(rows), ids, k=k)
        return [
            explanation.renamed(name=None if self.label_names is None else self.label_names[explanation.label])
            for explanation in found
        ]

    def similar(self, label: int | str, k: int = 10) -> list[tuple[str, float]]:
        """Return the labels with the nearest embeddings, for a model with label embeddings.

        Parameters
        ----------
        label : int or str
            Id or name.
        k : int
            Number of labels; fewer are returned if fewer have an embedding.

        Returns
        -------
        list of (str, float)
            Names, as in `predict_names`, and inner products, at most 1; nearest first.
        """
        return self.names(self.similar_topk(label, k))[0]

    def similar_topk(self, label: int | str, k: int = 10) -> TopK:
        """Return the labels of `similar` as ids and inner products in one row."""
        k = min(checked_k(k), max(self.n_labels, 1))
        embedded = _embedded(self.learner)
        if embedded is None:
            raise InputError("The model has no label embeddings: models of the recipes glas and embedding have them.")
        chosen = self.labels.id_of(label)
        if self.label_counts[chosen] == 0:
            name = chosen if self.label_names is None else repr(self.labels.shown(chosen))
            raise InputError(f"Label {name} has no training row, so it has no embedding.")
        found = embedded.similar(chosen, k)
        labels = np.array([near for near, _ in found], np.int32).reshape(1, -1)
        return TopK(labels, np.array([product for _, product in found], np.float32).reshape(1, -1))

    def add_labels(self, X: Any, y: Any, label_names: Sequence[str] | None = None) -> Self:
        """Learn new labels and leave the others unchanged; see `OneVsRest.add_labels`.

        Parameters
        ----------
        X : matrix, sequence of texts, or Dataset
        y : matrix, rows by new labels
        label_names : sequence of str, optional
            Names of the new labels; needed if the model has names.
        """
        learner: Any = copy.copy(self.learner)
        if not hasattr(learner, "add_labels"):
            raise InputError(f"{type(learner).__name__} can't add labels: refit on all rows.")
        new = as_indicator(y, name="y")
        names = [] if label_names is None else list(label_names)
        if (self.label_names is not None or names) and len(names) != new.shape[1]:
            raise ParameterError("label_names", len(names), f"must hold one name for each of {new.shape[1]} new labels")
        if isinstance(self.propensity, GivenPropensity):
            raise InputError("The propensities were given per label, and new labels have none: refit on all rows.")
        labels = LabelIndex(self.label_names, self.n_labels)
        for expected, name in enumerate(names, len(labels)):
            if labels.extend([name])[0] != expected:
                raise ParameterError("label_names", name, "must hold names that no other label has")
        grown = learner.add_labels(self.rows(X), new)
        self.learner, self.label_names, self.calibration = grown, labels.names, None
        return self

    def update(self, rows: Dataset, *, train: Dataset | None = None) -> Self:
        """Learn from additional or corrected rows without refitting; see `Learner.update`.

        Labels are matched by name, and new labels are learned. The numbers are recorded in `training`.

        Parameters
        ----------
        rows : Dataset
        train : Dataset, optional
            The training rows of the model. A new row replaces those with its id, or else with its text or features.
            A row that only rejects labels keeps its other labels.

        Examples
        --------
        >>> from longtail import TextLearner, Tfidf
        >>> texts, names = ["a red ship", "a blue ship", "a red tree", "a blue tree"], ["ship", "tree"]
        >>> learner = TextLearner(features=Tfidf(min_df=1)).fit(texts, [[1, 0], [1, 0], [0, 1], [0, 1]])
        >>> model = Model(learner, names)
        >>> late = Dataset(None, [[1, 1]], label_names=["ship", "red"], texts=["a red red ship"])
        >>> model.update(late).label_names
        ['ship', 'tree', 'red']
        """
        _check_dataset("rows", rows)
        if train is not None:
            _check_dataset("train", train)
        if not rows.Y.nnz and rows.rejected is None:
            raise InputError("The rows have no labels: there is nothing to learn.")
        labels = LabelIndex(self.label_names, self.n_labels)
        if labels.names is not None and not labels.is_unique:
            raise InputError("Two labels of the model have the same name, so rows can't be matched: refit on all rows.")
        check_ids(rows)
        given = self.rows(rows)
        replaced = [] if train is None else replaced_rows(train, rows)
        gone = [row for found in replaced for row in found]
        earlier = train if train is None or not gone else train.take(np.setdiff1d(np.arange(train.n_rows), gone))
        Y = labels_of_update(rows, labels, train, replaced, lambda some: self.learner.predict(self.rows(some)))
        earlier_Y = None if earlier is None else labels.align(earlier.Y, earlier.label_names, extend=True)
        n_new = len(labels) - self.n_labels
        if n_new and isinstance(self.propensity, GivenPropensity):
            raise InputError("The propensities were given per label, and new labels have none: refit on all rows.")
        before = None if earlier_Y is None else (self.rows(earlier), with_columns(earlier_Y, len(labels)))
        counts = self.label_counts
        self.learner = copy.copy(self.learner).update(given, with_columns(Y, len(labels)), train=before)
        self.label_names = labels.names
        if self.calibration is not None:
            self.calibration = self.calibration.with_labels(self.n_labels)
        rejected = dict.fromkeys(name for names in rows.rejected or () for name in names)
        done: dict[str, Any] = {
            "rows": rows.n_rows,
            "replaced": 0 if train is None or earlier is None else train.n_rows - earlier.n_rows,
            "new_labels": n_new,
            "forgotten_labels": int(np.count_nonzero((counts > 0) & (self.label_counts[: len(counts)] == 0))),
            "unknown_rejections": [name for name in rejected if labels.get(name) is None],
            "with_training_rows": train is not None,
        }
        sizes = {"rows": self.n_rows, "labels": self.n_labels}
        self.training = {**self.training, **sizes, "updates": [*self.training.get("updates", []), done]}
        return self

    def names(self, top: TopK) -> list[list[tuple[str, float]]]:
        """Return label names with scores, without padding."""
        shown = self.labels.shown
        return [
            [(shown(label), score) for label, score in zip(*row, strict=True) if label >= 0]
            for row in zip(top.labels.tolist(), top.scores.tolist(), strict=True)
        ]

    def evaluate(self, dataset: Dataset, *, ks: Sequence[int] = (1, 3, 5), tail: float | None = None) -> Scores:
        """Evaluate the rankings of a test set; labels that the model doesn't know count as missed.

        Propensities come from the training rows of this model; if they were given, unknown labels get the smallest.
        Labels are matched by name if both sides have names, else by id. For a calibrated model the scores include the
        calibration error ECE@k of its probabilities.
        """
        Y, _, inverse = self.truth(dataset)
        evaluator = Evaluator(len(inverse), inverse_propensity=inverse, ks=ks)
        likely = []
        for top in self.iter_topk(dataset, max(evaluator.ks), tail=tail):
            seen = evaluator.n_rows
            evaluator.update(top, Y[seen : seen + len(top)])
            if self.calibration is not None and tail is None:
                likely.append(self.calibration.probabilities(top))
        scores = evaluator.scores()
        if not likely:
            return scores
        errors = {f"ECE@{k}": calibration_error(TopK.concat(likely), Y, k) for k in evaluator.ks}
        return Scores({**scores, **errors}, n_rows=scores.n_rows, rerank=scores.rerank)

    def rows(self, X: Any) -> Any:
        """Return rows in the form that the learner takes: texts, or a checked matrix."""
        if isinstance(X, Dataset):
            found, wanted = (X.texts, "texts") if self.takes_texts else (X.X, "features")
            if found is None:
                has = "features" if self.takes_texts else "texts"
                raise InputError(f"The model takes {wanted}, and the data set has {has} only: give rows with {wanted}.")
            X = found
        return X if self.takes_texts else self.learner._check_rows(X)

    def truth(self, dataset: Dataset) -> tuple[sp.csr_array, Int64, Float64]:
        """Return the labels of a data set by the ids of the model, new labels last, with counts and propensities.

        Returns
        -------
        Y : csr_array
        label_counts : ndarray of int64
            Training rows of each column of `Y`, 0 for labels that the model doesn't know.
        inverse_propensity : ndarray of float64
        """
        _check_dataset("dataset", dataset)
        Y = self.labels.align(dataset.Y, dataset.label_names)
        counts = np.pad(self.label_counts, (0, Y.shape[1] - self.n_labels))
        return Y, counts, self.propensity.inverse(counts, self.n_rows)

    def _checked(
        self, tail: float | None = None, only: Any = None, exclude: Any = None, probabilities: bool = False
    ) -> tuple[dict[str, Any], Calibration | None]:
        """Return the parameters for the learner's `predict_topk`, and the calibration for probabilities."""
        if probabilities and self.calibration is None:
            raise InputError("The model has no probabilities yet: calibrate it on held-out rows first.")
        if probabilities and tail is not None:
            raise ParameterError("tail", tail, "must be left out with probabilities: they were learned without it")
        how = {"tail": tail, "only": self._ids("only", only), "exclude": self._ids("exclude", exclude)}
        return how, self.calibration if probabilities else None

    def _ids(self, name: str, labels: Any) -> Int32 | None:
        return None if labels is None else self.labels.ids_of(labels, name)


def _check_dataset(name: str, given: Any) -> None:
    if not isinstance(given, Dataset):
        made = "Dataset(X, Y) makes one of a matrix, Dataset(None, Y, texts=texts) of texts"
        raise InputError(f"{name} must be a Dataset, rows with their labels, got {type(given).__name__}: {made}.")


def _embedded(learner: Learner) -> Any:
    """Return the outermost learner with label embeddings, None if there is none."""
    return next((part for _, part in learner.parts(fitted=True) if hasattr(part, "label_embeddings_")), None)


def load(path: str | PathLike[str], *, verify: bool = False) -> Model:
    """Load a saved model; the same as `Model.load`.

    Examples
    --------
    >>> import tempfile
    >>> from longtail import Popularity
    >>> path = tempfile.mkdtemp() + "/model"
    >>> Model(Popularity().fit([[1], [2]], [[0, 1], [1, 1]]), label_names=["rare", "common"]).save(path)
    >>> load(path).label_names
    ['rare', 'common']
    """
    return Model.load(path, verify=verify)
