"""A tree over the labels, with a linear classifier for each node and label."""

from __future__ import annotations

import math
from functools import cache, partial
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from longtail.engine.augmentation import Augmentation
from longtail.engine.block_solver import LOGISTIC, SQUARED_HINGE
from longtail.engine.memory import parse_memory
from longtail.engine.pool import thread_count
from longtail.engine.spool import BlockSpool, is_resumable
from longtail.engine.topk import TopK
from longtail.errors import ParameterError
from longtail.learners.base import Learner, checked_k
from longtail.learners.estimate import Estimate
from longtail.learners.explanation import Explanation
from longtail.learners.label_trees.budget import affordable_threads, estimate_nodes, make_room
from longtail.learners.label_trees.chunk_weights import PRECISIONS, ChunkWeights, NodePrecision
from longtail.learners.label_trees.explaining import explain_label
from longtail.learners.label_trees.forest import Branches, LabelForest
from longtail.learners.label_trees.given import branches_from_pairs, check_pairs
from longtail.learners.label_trees.growing import Negatives, grow
from longtail.learners.label_trees.insertion import insert_labels
from longtail.learners.label_trees.node_training import NodeTrainer, level_bytes
from longtail.learners.label_trees.overlap import with_overlap
from longtail.learners.label_trees.partition import partition_labels
from longtail.learners.label_trees.representation import represent_labels
from longtail.learners.label_trees.search import TreeSearch
from longtail.learners.label_trees.updating import updated_trees
from longtail.learners.linear.problem import Settings
from longtail.learners.linear.training import row_scales
from longtail.learners.norms import norms_of_chunks
from longtail.learners.updates import MoreRows
from longtail.losses import Logistic, Loss, SquaredHinge, get_loss
from longtail.propensity import GivenPropensity, get_propensity
from longtail.propensity.base import is_number
from longtail.weighting import PropensityWeighting, Weighting, get_weighting

Search = Literal["beam", "best-first"]
_SEED_STEP = 1_000_003  # between the trees, so that those of neighbouring seeds differ
_CODES: dict[type[Loss], int] = {SquaredHinge: SQUARED_HINGE, Logistic: LOGISTIC}


class LabelTree(Learner):
    """Labels parted into a tree; a row goes down to the few leaves whose labels it may have.

    Every node has a linear classifier for each node and label under it, trained on the rows that reach the node: those
    with a label under it and, with `negatives`, those that the levels above would send there wrongly. The tree finds
    the best labels of a row without looking at most of the others.

    The score of a label is exp(s), from 0 to 1, where s adds up a value for each step of the path from the root:
    ``s = value + discount * s of the node above``. The value of a step with the linear score z is -max(0, 1 - z)^2 for
    the squared hinge, so that a step that the classifier is sure of (z at least 1) costs nothing, and -log(1 + exp(-z))
    for the logistic loss. With the logistic loss and a discount of 1 the score is the product of the estimated
    probabilities of all steps, an estimate of the label's own; otherwise it ranks, and `longtail calibrate` turns it
    into a probability. Of several trees the mean counts; a label that the search of a tree does not reach counts 0.

    Parameters
    ----------
    trees : int
        How many trees, each from another seed.
    representation : {"centroids", "co-occurrence", "both"}, matrix or sequence of str
        What makes labels alike: the sum of their rows; the labels they occur with; both; given features of the labels
        (a row a label); or a text for each label.
    dimensions : int, optional
        Random projection of the representation to so many dimensions; None for none, which takes longer.
    leaf_size : int
        Most labels of a leaf.
    arity : int
        Most nodes under a node.
    balanced : bool
        Whether the leaves have the same size. If not, labels are parted by k-means into `arity` parts, and these again
        until they have at most `leaf_size` labels or `max_depth` is reached.
    max_depth : int, optional
        Levels of nodes under the root at most, even where leaves must then have more than `leaf_size` labels.
    overlap : float
        Share of the labels that stand in a second leaf, those that lie closest to another one.
    tree : list of pairs, optional
        A tree of your own in place of the partition: pairs (child, parent), where label ids are whole numbers and other
        concepts are texts. Labels it leaves out are partitioned.
    loss : {"squared-hinge", "logistic"} or Loss
    regularisation : float
        C: the larger, the closer the fit to the training rows.
    weighting : Weighting or str, optional
        Costs of labels from their counts, and of nodes from the rows that have any label under them; all 1 when left
        out.
    negatives : int
        Each row also trains the best so many nodes of each level, as the levels above rank them for it: the negatives
        that prediction will meet. 0 for none: a node is trained on the rows with labels under it alone.
    discount : float
        How much the score of a node counts for what is under it, above 0 and at most 1.
    search : {"beam", "best-first"}
        Go down level by level with the best `beam` nodes of each tree; or find exactly the best labels of one tree,
        opening as many nodes as it takes.
    beam : int
        Nodes that are kept at each level.
    normalise, bias, bias_centre, tolerance, max_passes, seed, threads
        As in `OneVsRest`.
    prune_below : float
        Weights smaller than this are dropped after training.
    precision : {"float32", "bfloat16", "float16", "int8"}
        How weights are kept after training; int8 in units of 1/127 of the classifier's largest weight.
    memory_limit : int or str, optional
        Memory that the process should hold at most while nodes are trained, in bytes or as text such as ``"2GB"``:
        fewer threads are used where it would be passed, and training is refused where even one doesn't fit. Weights
        that would pass it lie in temporary files, mapped into memory.

    Attributes
    ----------
    forest_ : LabelForest
        The shape of the trees.
    weights_ : ChunkWeights

    References
    ----------
    Prabhu, Kag, Harsola, Agrawal, Varma: Parabel. WWW 2018. Khandagale, Xiao, Babbar: Bonsai. Machine Learning 2020.
    Jasinska et al.: Extreme F-measure Maximization using Sparse Probability Estimates (PLT). ICML 2016.

    Examples
    --------
    >>> from longtail import LabelTree
    >>> X = [[1, 0], [0, 1], [1, 1]]
    >>> Y = [[1, 0], [0, 1], [1, 1]]
    >>> LabelTree(leaf_size=1, arity=2, threads=1).fit(X, Y).predict_topk([[1, 0]], k=1).labels
    array([[0]], dtype=int32)
    """

    _stored: ClassVar[tuple[str, ...]] = ("forest_", "weights_")

    forest_: LabelForest
    weights_: ChunkWeights

    def __init__(
        self,
        *,
        trees: int = 1,
        representation: Any = "centroids",
        dimensions: int | None = 128,
        leaf_size: int = 64,
        arity: int = 512,
        balanced: bool = True,
        max_depth: int | None = None,
        overlap: float = 0.0,
        tree: Any = None,
        loss: str | Loss = "squared-hinge",
        regularisation: float = 1.0,
        weighting: Weighting | str | None = None,
        negatives: int = 16,
        discount: float = 0.2,
        search: Search = "beam",
        beam: int = 10,
        normalise: bool = True,
        bias: float = 1.0,
        bias_centre: float | None = None,
        prune_below: float = 0.05,
        tolerance: float = 0.1,
        max_passes: int | None = 6,
        precision: NodePrecision = "int8",
        seed: int = 0,
        threads: int | None = None,
        memory_limit: int | str | None = None,
    ) -> None:
        self.trees = trees
        self.representation = representation
        self.dimensions = dimensions
        self.leaf_size = leaf_size
        self.arity = arity
        self.balanced = balanced
        self.max_depth = max_depth
        self.overlap = overlap
        self.tree = tree
        self.loss = loss
        self.regularisation = regularisation
        self.weighting = weighting
        self.negatives = negatives
        self.discount = discount
        self.search = search
        self.beam = beam
        self.normalise = normalise
        self.bias = bias
        self.bias_centre = bias_centre
        self.prune_below = prune_below
        self.tolerance = tolerance
        self.max_passes = max_passes
        self.precision = precision
        self.seed = seed
        self.threads = threads
        self.memory_limit = memory_limit

    @property
    def _decision_threshold(self) -> float:  # type: ignore[override]
        """Score of a label with the linear score 0 at the end of a path without doubts."""
        return 0.5 if self._loss_code == LOGISTIC else math.exp(-1)

    @property
    def _loss_code(self) -> int:
        return _CODES[type(get_loss(self.loss))]

    def _check_parameters(self) -> None:
        numbers = (
            ("regularisation", 0.0, True, math.inf),
            ("bias", 0.0, False, math.inf),
            ("prune_below", 0.0, False, math.inf),
            ("tolerance", 0.0, True, math.inf),
            ("overlap", 0.0, False, 1.0),
        )
        for name, least, exclusive, most in numbers:
            value = getattr(self, name)
            if not (is_number(value) and math.isfinite(value) and least <= value <= most) or (
                exclusive and value == least
            ):
                wanted = f"{'above' if exclusive else 'of at least'} {least:g}"
                raise ParameterError(name, value, f"must be a number {wanted}{f' and at most {most:g}' * (most < 2)}")
        whole = (
            *(("trees", 1), ("leaf_size", 1), ("arity", 2), ("negatives", 0), ("seed", 0)),
            *((name, 1) for name in ("max_depth", "max_passes", "dimensions") if getattr(self, name) is not None),
        )
        for name, least_int in whole:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least_int <= value < 2**31:
                raise ParameterError(name, value, f"must be a whole number from {least_int} to {2**31 - 1}")
        for name in ("normalise", "balanced"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ParameterError(name, getattr(self, name), "must be True or False")
        if self.precision not in PRECISIONS:
            raise ParameterError("precision", self.precision, f"must be one of {', '.join(PRECISIONS)}")
        self._check_search()
        if self.search == "best-first" and self.trees > 1:
            raise ParameterError("search", self.search, "must be beam where there is more than one tree")
        if self.bias_centre is not None and not (is_number(self.bias_centre) and math.isfinite(self.bias_centre)):
            raise ParameterError("bias_centre", self.bias_centre, "must be a number or None")
        try:
            is_known = type(get_loss(self.loss)) in _CODES
        except ParameterError:
            is_known = False
        if not is_known:
            raise ParameterError("loss", self.loss, "must be squared-hinge or logistic")
        check_pairs(self.tree)
        if self.memory_limit is not None:
            parse_memory(self.memory_limit)
        weighting = get_weighting(self.weighting)
        if isinstance(weighting, PropensityWeighting) and isinstance(
            get_propensity(weighting.propensity), GivenPropensity
        ):
            raise ParameterError(
                "weighting", self.weighting, "must have propensities by count: given ones are for labels, not for nodes"
            )
        thread_count(self.threads)

    def _check_search(self) -> None:
        """Refuse what a search can't work with; these may be set on a fitted learner, so every search asks."""
        if not (is_number(self.discount) and 0 < self.discount <= 1):
            raise ParameterError("discount", self.discount, "must be a number above 0 and at most 1")
        if isinstance(self.beam, bool) or not isinstance(self.beam, int | np.integer) or not 1 <= self.beam < 2**31:
            raise ParameterError("beam", self.beam, f"must be a whole number from 1 to {2**31 - 1}")
        if self.search not in get_args(Search):
            raise ParameterError("search", self.search, f"must be one of {', '.join(get_args(Search))}")

    def predict_weighted_topk(self, X: Any, label_weights: Any, k: int = 5) -> TopK:
        """Rank exactly the k labels with the largest ``label_weights[label] * score``.

        With inverse propensities as weights and a tree whose scores are probabilities this is the ranking that is best
        for PSP@k. It opens as many nodes as it takes to be sure.

        Parameters
        ----------
        X : matrix, shape (n, n_features_in_)
        label_weights : array-like, shape (n_labels_,)
            At least 0; labels with 0 are left out.
        k : int

        Returns
        -------
        TopK
            Scores are weight times score.

        Examples
        --------
        >>> X, Y = [[1, 0], [0, 1], [1, 1]], [[1, 0], [0, 1], [1, 1]]
        >>> LabelTree().fit(X, Y).predict_weighted_topk([[1, 0]], [1, 1000], k=1).labels
        array([[1]], dtype=int32)
        """
        check_is_fitted(self, "n_labels_")
        rows, weights = self._check_rows(X), self._checked_weights(label_weights)
        top, _ = self._search.best_first(rows, self._scales(rows), checked_k(k), weights, weights > 0, self.threads)
        return top

    def add_labels(self, X: Any, Y: Any) -> Self:
        """Insert new labels into the tree, and leave the classifiers of the others as they are, to the last bit.

        A new label goes to the leaf that holds most of what its rows are predicted to have, and is trained there on
        its rows and on those that are predicted to have another label of the leaf.

        Parameters
        ----------
        X : matrix, shape (n, n_features_in_)
            Rows of which it is known whether they have the new labels.
        Y : matrix, shape (n, new labels)
            The new labels of these rows; they get the ids from the old `n_labels_` on.

        Returns
        -------
        self

        Examples
        --------
        >>> X = [[1, 0], [0, 1], [1, 1]]
        >>> learner = LabelTree().fit(X, [[1, 0], [0, 1], [1, 1]])
        >>> learner.add_labels(X, [[0], [1], [0]]).n_labels_
        3
        """
        rows, labels = self._check_new_labels(X, Y)
        with self._whole_or_unchanged():
            self._insert(rows, labels)
            self._remember_new_labels(labels)
        return self

    def _update(self, more: MoreRows) -> None:
        self.forest_, self.weights_ = updated_trees(self, more)

    def _insert(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        self.forest_, self.weights_ = insert_labels(
            self._search, self._settings(), X, Y, self._scales(X), get_weighting(self.weighting), beam=self.beam,
            threads=thread_count(self.threads), memory_limit=self.memory_limit,
        )  # fmt: skip

    def _checked_weights(self, label_weights: Any) -> npt.NDArray[np.float64]:
        try:
            weights = np.asarray(label_weights, np.float64)
        except (TypeError, ValueError):
            raise ParameterError("label_weights", type(label_weights).__name__, "must hold numbers alone") from None
        if weights.shape != (self.n_labels_,):
            got = len(weights) if weights.ndim == 1 else weights.shape
            raise ParameterError("label_weights", got, f"must hold a number for each of {self.n_labels_} labels")
        wrong = np.flatnonzero(~((weights >= 0) & (weights < 1e30)))
        if len(wrong):
            raise ParameterError(
                "label_weights",
                float(weights[wrong[0]]),
                f"must hold numbers from 0 to 1e30, also for label {wrong[0]}",
            )
        return weights

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        self._grow(self._trainer(X, Y))

    def _fit_augmented(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation) -> None:
        self._grow(self._trainer(X, Y, augmentation))

    def _grow(self, trainer: NodeTrainer) -> None:
        negatives = Negatives(self.negatives, self.discount) if self.negatives else None
        fingerprint = trainer.fingerprint(negatives) if is_resumable() else None
        with BlockSpool(fingerprint) as spool:
            self.forest_ = trainer.forest
            self.weights_ = grow(
                trainer,
                spool,
                negatives,
                lambda level: affordable_threads(
                    trainer, level, self.memory_limit, level_bytes(trainer, self.negatives)
                ),
                lambda size: make_room(trainer, size, self.memory_limit),
                self.memory_limit,
            )

    def _trainer(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation | None = None) -> NodeTrainer:
        scales = self._scales(X)
        return NodeTrainer(
            self._settings(),
            X,
            Y,
            scales,
            self._partition(X, Y, scales),
            get_weighting(self.weighting),
            self.precision,
            thread_count(self.threads),
            augmentation=augmentation,
            normalise=bool(self.normalise),
        )

    def _partition(self, X: sp.csr_array, Y: sp.csr_array, scales: npt.NDArray[np.float64]) -> LabelForest:
        """Make the trees, over the labels that any row has."""
        present = np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1])).astype(np.int32)
        pairs = None if self.tree is None else list(self.tree)

        @cache
        def points() -> Any:
            return represent_labels(
                self.representation, X, Y, scales, dimensions=self.dimensions, seed=self.seed, threads=self.threads
            )

        def part(labels: npt.NDArray[np.int32], seed: int) -> Branches:
            return partition_labels(
                points(),
                labels,
                arity=self.arity,
                leaf_size=self.leaf_size,
                balanced=self.balanced,
                max_depth=self.max_depth,
                seed=seed,
                threads=self.threads,
            )

        made = []
        for tree in range(self.trees):
            seed = self.seed + _SEED_STEP * tree
            if pairs is None:
                branches = part(present, seed)
            else:
                branches = branches_from_pairs(pairs, present, partial(part, seed=seed), n_labels=Y.shape[1])
                if self.trees > 1 and points.cache_info().currsize == 0:
                    raise ParameterError("trees", self.trees, "must be 1 with a tree of your own that has every label")
            made.append(
                with_overlap(branches, points(), share=self.overlap, threads=self.threads) if self.overlap else branches
            )
        return LabelForest.from_branches(made)

    def _settings(self) -> Settings:
        return Settings(
            loss=self._loss_code,
            regularisation=float(self.regularisation),
            bias=float(self.bias),
            bias_centre=self.bias_centre,
            prune_below=float(self.prune_below),
            prune_rise=None,
            tolerance=float(self.tolerance),
            max_passes=self.max_passes,
            seed=int(self.seed),
        )

    @property
    def _search(self) -> TreeSearch:
        self._check_search()
        self.weights_.check(self.forest_, self.n_labels_)
        return TreeSearch(
            self.forest_, self.weights_, self._loss_code, float(self.discount), float(self.bias), self.n_labels_
        )

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> Estimate:
        return estimate_nodes(self._trainer(X, Y), self.negatives, self.memory_limit)

    def _label_norms(self) -> npt.NDArray[np.float64]:
        return norms_of_chunks(self.weights_, self.n_labels_)

    def _explain(self, X: sp.csr_array, labels: npt.NDArray[np.int32]) -> list[Explanation]:
        scale = float(self._scales(X)[0])
        return [explain_label(self._search, X, scale, int(label)) for label in labels]

    def _topk(self, X: sp.csr_array, k: int, allowed: npt.NDArray[np.bool_] | None) -> TopK:
        if self.search == "best-first":
            return self._search.best_first(X, self._scales(X), k, None, allowed, self.threads)[0]
        return self._search.labels(X, self._scales(X), k, self.beam, allowed, self.threads)

    def _weighted_topk(
        self,
        X: sp.csr_array,
        k: int,
        allowed: npt.NDArray[np.bool_] | None,
        factors: npt.NDArray[np.float32] | None,
    ) -> TopK:
        """Exact for best-first search; among all labels that the beam meets otherwise."""
        if factors is None:
            return self._topk(X, k, allowed)
        if self.search == "best-first":
            weights = factors.astype(np.float64)
            return self._search.best_first(X, self._scales(X), k, weights, allowed, self.threads)[0]
        return self._search.labels(X, self._scales(X), k, self.beam, allowed, self.threads, factors)

    def _scales(self, X: sp.csr_array) -> npt.NDArray[np.float64]:
        return row_scales(X, self.normalise)
