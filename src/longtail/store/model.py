"""A trained model: the learner and what is needed to use and to judge it, kept in a directory."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from longtail.corpus.dataset import Dataset
from longtail.corpus.sparse import as_indicator
from longtail.engine.topk import TopK
from longtail.errors import InputError, ModelError, ParameterError
from longtail.learners import Calibration, Explanation, Learner
from longtail.learners.base import checked_k
from longtail.learners.calibration import Bins, Method
from longtail.learners.dial import propensity_of
from longtail.metrics import Evaluator, Scores, calibration_error
from longtail.propensity import GivenPropensity, Propensity
from longtail.store.manifest import read_model, write_model
from longtail.store.shards import topk_in_shards
from longtail.store.updating import LabelIds, check_ids, labels_to_learn, replaced_rows, unknown_rejections, widened


@dataclass(eq=False)
class Model:
    """A fitted learner with its label names, the propensities of its training data and how it came about.

    Parameters
    ----------
    learner : Learner
        Fitted.
    label_names : list of str, optional
        One a label, in the order of label ids.
    propensity : Propensity, optional
        Propensity model of the data, with which `evaluate` scores; when left out, the one that the learner weights by,
        or the one with default constants.
    recipe : str, optional
        Name of the recipe that made the learner.
    training : dict, optional
        What is worth knowing of the training: seconds, rows and the like; numbers and text.
    calibration : Calibration, optional
        Turns scores into probabilities; `calibrate` makes it.

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
        check_is_fitted(self.learner, "n_labels_")
        if self.propensity is None:
            self.propensity = propensity_of(self.learner)
        part: Any = self.learner
        while part is not None:
            part._data_propensity = self.propensity
            part = getattr(part, "learner_", None)
        if self.label_names is not None and len(self.label_names) != self.n_labels:
            raise ParameterError(
                "label_names", len(self.label_names), f"must hold one name for each of {self.n_labels} labels"
            )

    @property
    def n_labels(self) -> int:
        """Labels that the learner knows, those without a training row included."""
        return self.learner.n_labels_

    @property
    def n_rows(self) -> int:
        """Training rows, those without labels included."""
        return self.learner.n_rows_

    @property
    def label_counts(self) -> npt.NDArray[np.int64]:
        """Training rows of each label."""
        return self.learner.label_counts_

    @cached_property
    def takes_texts(self) -> bool:
        """Whether the rows to predict are texts, rather than features."""
        return bool(get_tags(self.learner).input_tags.string)

    @property
    def label_embeddings(self) -> npt.NDArray[np.float32] | None:
        """Embedding of each label, 0 for labels without one; None for a model whose learner has no embeddings."""
        embedded = _embedded(self.learner)
        return None if embedded is None else embedded.label_embeddings_

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model as a directory, whole or not at all; an older model at `path` is replaced.

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
            Also compare the checksums of files above 128 MB, which takes time; those of others, and sizes, always are.

        Raises
        ------
        ModelError
            When a file is missing, cut off or changed, or when the model comes from a newer longtail.
        """
        contents = read_model(Path(path), verify=verify)
        if not isinstance(contents.get("learner"), Learner):
            raise ModelError(f"{path} holds no learner: train it anew.")
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
            The tail dial, from 0 to 1, by the propensities that the learner was given, or those of the model; as the
            learner has it when left out.
        only, exclude : sequence of label ids or names, optional
            Rank these labels alone, or all but these.
        probabilities : bool
            Give probabilities in the place of scores; the model must have been calibrated. The order stays that of
            the scores.
        """
        self._check_calibrated(probabilities, tail)
        top = self.learner.predict_topk(
            self.rows(X), k, tail=tail, only=self._ids("only", only), exclude=self._ids("exclude", exclude)
        )
        return self._scored(top, probabilities)

    def iter_topk(
        self,
        X: Any,
        k: int = 5,
        *,
        tail: float | None = None,
        only: Any = None,
        exclude: Any = None,
        probabilities: bool = False,
    ) -> Iterator[TopK]:
        """Rank the k best labels some thousand rows at a time, under one progress bar, so that memory stays bounded."""
        self._check_calibrated(probabilities, tail)
        rows = self.rows(X)
        how = {"tail": tail, "only": self._ids("only", only), "exclude": self._ids("exclude", exclude)}
        for top in topk_in_shards(self.learner, rows, k=k, **how):
            yield self._scored(top, probabilities)

    def predict_names(self, X: Any, k: int = 5, **how: Any) -> list[list[tuple[str, float]]]:
        """Rank the k best labels of each row as (name, score); a model without names gives ids as text.

        Takes what `predict_topk` takes.
        """
        return self.names(self.predict_topk(X, k, **how))

    def calibrate(
        self, dataset: Dataset, *, method: Method = "isotonic", bins: Bins | None = "head-torso-tail", k: int = 20
    ) -> Self:
        """Learn probabilities from rows that the model wasn't trained on; see `Calibration`.

        Parameters
        ----------
        dataset : Dataset
            Held-out rows with their labels.
        method, bins
            See `Calibration`.
        k : int
            Labels a row from which it learns.

        Returns
        -------
        self
        """
        Y, n_new = self.aligned_labels(dataset)
        counts = np.pad(self.label_counts, (0, n_new))
        top = self.predict_topk(dataset, k)
        self.calibration = Calibration(method=method, bins=bins).fit(top, Y, counts)
        return self

    def explain(self, row: Any, labels: Any = None, *, k: int = 5) -> list[Explanation]:
        """Say what made up the scores of some labels for one text or one row of features.

        Parameters
        ----------
        row : str, or matrix with one row
        labels : sequence of label ids or names, optional
            Which labels; the k best of the row when left out.
        k : int

        Returns
        -------
        list of Explanation

        Examples
        --------
        >>> from longtail import OneVsRest
        >>> model = Model(OneVsRest(threads=1).fit([[1, 0], [0, 1]], [[1, 0], [0, 1]]), label_names=["left", "right"])
        >>> why = model.explain([[1, 0]], ["left"])[0]
        >>> abs(why.bias + sum(effect for _, effect in why.parts) - why.score) < 1e-6
        True
        """
        rows = [row] if isinstance(row, str) else row
        ids = self._ids("labels", labels)
        if ids is not None and self.label_names is not None:
            chosen = self.learner._label_ids("labels", ids)
            unseen = next((self.label_names[label] for label in chosen if self.label_counts[label] == 0), None)
            if unseen is not None:
                raise InputError(f"Label {unseen!r} has no training row, so there is no score to explain.")
        found = self.learner.explain(self.rows(rows) if not self.takes_texts else rows, ids, k=k)
        return [why.renamed(name=None if self.label_names is None else self.label_names[why.label]) for why in found]

    def similar(self, label: int | str, k: int = 10) -> list[tuple[str, float]]:
        """Find the labels whose embeddings are nearest to that of a label, for a model that has label embeddings.

        Parameters
        ----------
        label : int or str
            Id or name.
        k : int
            Labels to give, fewer where there are fewer with an embedding.

        Returns
        -------
        list of (str, float)
            Names, as `predict_names` gives them, and inner products, which are 1 at most; nearest first.
        """
        return self.names(self.similar_topk(label, k))[0]

    def similar_topk(self, label: int | str, k: int = 10) -> TopK:
        """Find the labels that `similar` names, as ids and inner products in one row."""
        k = min(checked_k(k), max(self.n_labels, 1))
        embedded = _embedded(self.learner)
        if embedded is None:
            raise InputError("The model has no label embeddings: models of the recipes glas and embedding have them.")
        chosen = self._id(label)
        if self.label_counts[chosen] == 0:
            name = chosen if self.label_names is None else repr(self.label_names[chosen])
            raise InputError(f"Label {name} has no training row, so it has no embedding.")
        found = embedded.similar(chosen, k)
        labels = np.array([near for near, _ in found], np.int32).reshape(1, -1)
        return TopK(labels, np.array([product for _, product in found], np.float32).reshape(1, -1))

    def add_labels(self, X: Any, Y: Any, label_names: Sequence[str] | None = None) -> Self:
        """Learn new labels from rows or texts and leave the others as they are; see `OneVsRest.add_labels`.

        Parameters
        ----------
        X : matrix, sequence of texts, or Dataset
        Y : matrix, rows by new labels
        label_names : sequence of str, optional
            Names of the new labels; needed if the model has names.

        Returns
        -------
        self
        """
        learner: Any = copy.copy(self.learner)
        if not hasattr(learner, "add_labels"):
            raise InputError(f"{type(learner).__name__} can't learn new labels later: train it anew.")
        new = as_indicator(Y)
        names = [] if label_names is None else list(label_names)
        if (self.label_names is not None or names) and len(names) != new.shape[1]:
            raise ParameterError("label_names", len(names), f"must hold one name for each of {new.shape[1]} new labels")
        if isinstance(self.propensity, GivenPropensity):
            raise InputError("The propensities were given label by label, and new labels have none: train it anew.")
        all_names = None
        if names:
            all_names = [*(self.label_names or map(str, range(self.n_labels))), *names]
            repeated = next((name for name, count in Counter(all_names).items() if count > 1), None)
            if repeated is not None:
                raise ParameterError("label_names", repeated, "must hold names that no other label has")
        grown = learner.add_labels(self.rows(X), new)
        self.learner, self.label_names, self.calibration = grown, all_names or self.label_names, None
        return self

    def update(self, rows: Dataset, *, train: Dataset | None = None) -> Self:
        """Learn from rows that came later, such as corrected ones, without starting over; see `Learner.update`.

        Labels are matched by name; those that the model doesn't know are learned. `training` counts what was done.

        Parameters
        ----------
        rows : Dataset
        train : Dataset, optional
            The rows that the model was trained on. A new row replaces those with its id, or else with its text or
            features. A row that only rejects labels keeps what was known of the others.

        Returns
        -------
        self

        Examples
        --------
        >>> from longtail import TextLearner, Tfidf
        >>> texts, names = ["a red ship", "a blue ship", "a red tree", "a blue tree"], ["ship", "tree"]
        >>> learner = TextLearner(features=Tfidf(min_rows=1)).fit(texts, [[1, 0], [1, 0], [0, 1], [0, 1]])
        >>> model = Model(learner, names)
        >>> late = Dataset(None, [[1, 1]], label_names=["ship", "red"], texts=["a red red ship"])
        >>> model.update(late).label_names
        ['ship', 'tree', 'red']
        """
        if not rows.Y.nnz and rows.rejected is None:
            raise InputError("The rows have no labels: there is nothing to learn.")
        if self.label_names is not None and len(set(self.label_names)) < len(self.label_names):
            raise InputError("Two labels of the model have the same name, so rows can't be matched: train it anew.")
        check_ids(rows)
        given, ids = self.rows(rows), LabelIds(self.label_names, self.n_labels)
        places = [] if train is None else replaced_rows(train, rows)
        gone = [row for found in places for row in found]
        earlier = train if train is None or not gone else train.take(np.setdiff1d(np.arange(train.n_rows), gone))
        learned = labels_to_learn(rows, ids, train, places, lambda some: self.learner.predict(self.rows(some)))
        matched = [learned, *(() if earlier is None else (ids.of(earlier),))]
        labels = [widened(Y, ids.n_labels) for Y in matched]
        unheard, n_new = unknown_rejections(rows, ids), ids.n_labels - self.n_labels
        if n_new and isinstance(self.propensity, GivenPropensity):
            raise InputError("The propensities were given label by label, and new labels have none: train it anew.")
        before = None if earlier is None else (self.rows(earlier), labels[1])
        counts = self.label_counts
        self.learner = copy.copy(self.learner).update(given, labels[0], train=before)
        forgotten = int(np.count_nonzero((counts > 0) & (self.label_counts[: len(counts)] == 0)))
        if self.label_names is not None:
            self.label_names = [*self.label_names, *ids.new_names]
        if self.calibration is not None:
            self.calibration = self.calibration.with_labels(self.n_labels)
        replaced = 0 if train is None or earlier is None else train.n_rows - earlier.n_rows
        done: dict[str, Any] = {"rows": rows.n_rows, "replaced": replaced, "new_labels": n_new}
        done |= {"forgotten_labels": forgotten, "unknown_rejections": unheard, "with_training_rows": train is not None}
        sizes = {"rows": self.n_rows, "labels": self.n_labels}
        self.training = {**self.training, **sizes, "updates": [*self.training.get("updates", []), done]}
        return self

    def names(self, top: TopK) -> list[list[tuple[str, float]]]:
        """Put label names in place of ids and leave the padding out."""
        names = self.label_names
        return [
            [
                (str(label) if names is None else names[label], score)
                for label, score in zip(*row, strict=True)
                if label >= 0
            ]
            for row in zip(top.labels.tolist(), top.scores.tolist(), strict=True)
        ]

    def evaluate(self, dataset: Dataset, *, ks: Sequence[int] = (1, 3, 5), tail: float | None = None) -> Scores:
        """Score the ranking of a test set; labels that the model has never seen count as missed.

        Propensities come from the training rows of this model; where they were given, labels that it has never seen
        get the smallest. Labels are matched by name where both sides have names, else by id. A calibrated model also
        gets the calibration error ECE@k of its probabilities.
        """
        Y, inverse = self.truth_and_weights(dataset)
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
        together = TopK(*(np.concatenate([getattr(top, part) for top in likely]) for part in ("labels", "scores")))
        errors = {f"ECE@{k}": calibration_error(together, Y, k) for k in evaluator.ks}
        return Scores({**scores, **errors}, n_rows=scores.n_rows, rerank=scores.rerank)

    def _check_calibrated(self, probabilities: bool, tail: float | None) -> None:
        if probabilities and self.calibration is None:
            raise InputError("The model has no probabilities yet: calibrate it on held-out rows first.")
        if probabilities and tail is not None:
            raise ParameterError("tail", tail, "must be left out with probabilities: they were learned without it")

    def _scored(self, top: TopK, probabilities: bool) -> TopK:
        return top if self.calibration is None or not probabilities else self.calibration.probabilities(top)

    def rows(self, X: Any) -> Any:
        """Give the rows in the form that the learner takes: texts, or a checked matrix."""
        if isinstance(X, Dataset):
            found, wanted = (X.texts, "texts") if self.takes_texts else (X.X, "features")
            if found is None:
                has = "features" if self.takes_texts else "texts"
                raise InputError(f"The model takes {wanted}, and the data set has {has} only: give rows with {wanted}.")
            X = found
        return X if self.takes_texts else self.learner._check_rows(X)

    def _ids(self, name: str, labels: Any) -> Any:
        if isinstance(labels, str):
            raise ParameterError(name, labels, "must be a sequence of labels, not one text")
        if labels is None or self.label_names is None or not any(isinstance(label, str) for label in labels):
            return labels
        ids = {label: index for index, label in enumerate(self.label_names)}
        unknown = [label for label in labels if isinstance(label, str) and label not in ids]
        if unknown:
            raise ParameterError(name, unknown[0], "must hold names of labels that the model knows")
        return [ids[label] if isinstance(label, str) else label for label in labels]

    def _id(self, label: Any) -> int:
        """Id of one label that is given by its name or id."""
        names = self.label_names or []
        if isinstance(label, str) and label in names:
            return names.index(label)
        if isinstance(label, int | np.integer) and not isinstance(label, bool) and 0 <= label < self.n_labels:
            return int(label)
        raise ParameterError("label", label, f"must be the name of a label, or an id below {self.n_labels}")

    def truth_and_weights(self, dataset: Dataset) -> tuple[sp.csr_array, npt.NDArray[np.float64]]:
        """Labels of the data set as `aligned_labels` gives them, and the inverse propensity of each."""
        Y, n_new = self.aligned_labels(dataset)
        return Y, self.propensity.inverse(np.pad(self.label_counts, (0, n_new)), self.n_rows)

    def aligned_labels(self, dataset: Dataset) -> tuple[sp.csr_array, int]:
        """Labels of the data set by the ids of the model, those the model doesn't know after its own."""
        ours, theirs = self.label_names, dataset.label_names
        if ours is None or theirs is None or theirs == ours or len(set(ours)) < len(ours):
            if dataset.n_labels != self.n_labels:
                raise InputError(
                    f"The data set has {dataset.n_labels} labels and the model {self.n_labels}: "
                    "use rows of the data set that it was trained on."
                )
            return dataset.Y, 0
        ids = {label: index for index, label in enumerate(ours)}
        new_ids = np.array([ids.setdefault(label, len(ids)) for label in theirs], np.int32)
        Y = sp.csr_array(
            (dataset.Y.data, new_ids[dataset.Y.indices], dataset.Y.indptr), shape=(dataset.n_rows, len(ids))
        )
        Y.sort_indices()
        if Y.nnz and Y.indices.min() >= self.n_labels:
            raise InputError(
                "No row has a label that the model was trained on: use rows with the labels of its training data."
            )
        return Y, len(ids) - self.n_labels


def _embedded(learner: Any) -> Any:
    """The learner that has label embeddings: this one, or the one that it goes around; None where there is none."""
    while learner is not None and not hasattr(learner, "label_embeddings_"):
        learner = getattr(learner, "learner_", None)
    return learner


def load(path: str | PathLike[str], *, verify: bool = False) -> Model:
    """Load a saved model; the same as `Model.load`."""
    return Model.load(path, verify=verify)
