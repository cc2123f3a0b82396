"""Label trees with a linear classifier for each node and label."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from longtail.data.concept_pairs import HIERARCHY
from longtail.data.sparse import column_counts
from longtail.errors import ParameterError
from longtail.kernels.augmentation import Augmentation
from longtail.kernels.types import Flags, Float32, Float64, Int32
from longtail.learners.base import Learner
from longtail.learners.cost import TrainingCost
from longtail.learners.explanation import Explanation
from longtail.learners.label_trees.chunk_weights import PRECISIONS, ChunkWeights, NodePrecision
from longtail.learners.label_trees.estimate import estimate_nodes
from longtail.learners.label_trees.explaining import explain_label
from longtail.learners.label_trees.forest import Branches, LabelForest
from longtail.learners.label_trees.given import branches_from_pairs
from longtail.learners.label_trees.insertion import insert_labels
from longtail.learners.label_trees.node_training import NodeTrainer
from longtail.learners.label_trees.overlap import with_overlap
from longtail.learners.label_trees.partition import partition_labels
from longtail.learners.label_trees.representation import represent_labels
from longtail.learners.label_trees.search import TreeSearch
from longtail.learners.label_trees.training import train_trees
from longtail.learners.label_trees.updating import updated_trees
from longtail.learners.linear.problem import SOLVER_CONSTRAINTS, SolverSettings
from longtail.learners.prediction import checked_k
from longtail.learners.rows import row_scales
from longtail.learners.updates import UpdateBatch
from longtail.losses import Logistic, Loss, SquaredHinge, get_loss
from longtail.propensity import GivenPropensity, get_propensity
from longtail.runtime.block_file import BlockFile, is_resumable
from longtail.topk import TopK
from longtail.validation import Boolean, Constraint, Integer, Number, OneOf, Optional, check, numbers_per_label
from longtail.weighting import PropensityWeighting, Weighting, get_weighting

SearchMethod = Literal["beam", "best-first"]
_SEED_STEP = 1_000_003  # between the seeds of trees, so that learners with adjacent seeds have no tree in common
_LABEL_WEIGHT = Number(low=0, below=1e30)
_SEARCH_CONSTRAINTS: dict[str, Constraint] = {
    "discount": Number(above=0, high=1),
    "search": OneOf(*get_args(SearchMethod)),
    "beam": Integer(1),
}


class LabelTree(Learner):
    """Trees over the labels; a row descends to the few leaves whose labels it is likely to have.

    Every node has a linear classifier for each node and label under it, trained on the rows that reach the node: those
    with a label under it and, with `n_hard_negatives`, those that the levels above would wrongly send there. The search
    finds the best labels of a row without scoring most of the others.

    The score of a label is exp(s), from 0 to 1, where s is accumulated along the path from the root:
    ``s = value + discount * s of the parent``. The value of a linear score z is -max(0, 1 - z)^2 for the squared hinge,
    so that a confident step (z at least 1) costs nothing, and -log(1 + exp(-z)) for the logistic loss. With the
    logistic loss and a discount of 1, the score is the product of the probabilities along the path, an estimate of the
    probability of the label; otherwise `longtail calibrate` turns scores into probabilities. Scores are averaged over
    the trees; a label that the search of a tree does not reach has score 0 there.

    Parameters
    ----------
    n_trees : int
        Number of trees, each with its own seed.
    representation : {"centroids", "co-occurrence", "both"}, matrix or sequence of str
        Features of labels for the clustering: the sum of their rows; the labels they occur with; both; given features
        (one row per label); or one text per label.
    n_components : int, optional
        Dimensions of a random projection of the representation; None for no projection, which takes longer.
    leaf_size : int
        Maximum number of labels in a leaf.
    arity : int
        Maximum number of children of a node.
    balanced : bool
        Make leaves of equal size. Otherwise labels are partitioned by k-means into `arity` clusters, recursively until
        these have at most `leaf_size` labels or `max_depth` is reached.
    max_depth : int, optional
        Maximum number of levels under the root, even if leaves then exceed `leaf_size`.
    overlap : float
        Share of the labels that are put into a second leaf: those that lie closest to another one.
    tree : list of pairs, or Hierarchy, optional
        Your own tree instead of clustering: pairs (child, parent), where labels are ids and other concepts are strings;
        or a hierarchy whose concepts are label ids. Labels without a pair are clustered.
    loss : {"squared-hinge", "logistic"} or Loss
    C : float
        Inverse regularisation strength: the larger, the closer the fit to the training rows.
    weighting : Weighting or str, optional
        Costs of labels from their counts, and of nodes from the number of rows with labels under them; all 1 by
        default.
    n_hard_negatives : int
        Hard negatives: each row is also a training row of the nodes of each level that the levels above rank best for
        it, this many. 0 trains a node only on rows with labels under it.
    discount : float
        Weight of the parent's score, above 0 and at most 1.
    search : {"beam", "best-first"}
        Beam search, level by level; or exact search in one tree, which opens as many nodes as it needs.
    beam : int
        Number of nodes kept per level and tree.
    normalise, bias, bias_centre, tol, max_iter, random_state, n_jobs
        As in `OneVsRest`.
    prune_below : float
        Weights smaller than this are dropped after training.
    precision : {"float32", "bfloat16", "float16", "int8"}
        Storage type of the weights; int8 in units of 1/127 of the classifier's largest weight.

    Attributes
    ----------
    forest_ : LabelForest
        The structure of the trees.
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
    >>> LabelTree(leaf_size=1, arity=2, n_jobs=1).fit(X, Y).predict_topk([[1, 0]], k=1).labels
    array([[0]], dtype=int32)
    """

    _stored: ClassVar[tuple[str, ...]] = ("forest_", "weights_")

    forest_: LabelForest
    weights_: ChunkWeights

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **SOLVER_CONSTRAINTS,
        "tree": Optional(HIERARCHY),
        "n_trees": Integer(1),
        "n_components": Optional(Integer(1)),
        "leaf_size": Integer(1),
        "arity": Integer(2),
        "balanced": Boolean(),
        "max_depth": Optional(Integer(1)),
        "overlap": Number(low=0, high=1),
        "n_hard_negatives": Integer(0),
        **_SEARCH_CONSTRAINTS,
        "precision": OneOf(*PRECISIONS),
    }

    @property
    def _gives_probabilities(self) -> bool:  # type: ignore[override]
        return isinstance(get_loss(self.loss), Logistic) and self.discount == 1

    def __init__(
        self,
        *,
        n_trees: int = 1,
        representation: Any = "centroids",
        n_components: int | None = 128,
        leaf_size: int = 64,
        arity: int = 512,
        balanced: bool = True,
        max_depth: int | None = None,
        overlap: float = 0.0,
        tree: Any = None,
        loss: str | Loss = "squared-hinge",
        C: float = 1.0,
        weighting: Weighting | str | None = None,
        n_hard_negatives: int = 16,
        discount: float = 0.2,
        search: SearchMethod = "beam",
        beam: int = 10,
        normalise: bool = True,
        bias: float = 1.0,
        bias_centre: float | None = None,
        prune_below: float = 0.05,
        tol: float = 0.1,
        max_iter: int | None = 6,
        precision: NodePrecision = "int8",
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_trees = n_trees
        self.representation = representation
        self.n_components = n_components
        self.leaf_size = leaf_size
        self.arity = arity
        self.balanced = balanced
        self.max_depth = max_depth
        self.overlap = overlap
        self.tree = tree
        self.loss = loss
        self.C = C
        self.weighting = weighting
        self.n_hard_negatives = n_hard_negatives
        self.discount = discount
        self.search = search
        self.beam = beam
        self.normalise = normalise
        self.bias = bias
        self.bias_centre = bias_centre
        self.prune_below = prune_below
        self.tol = tol
        self.max_iter = max_iter
        self.precision = precision
        self.random_state = random_state
        self.n_jobs = n_jobs

    @property
    def _decision_threshold(self) -> float:  # type: ignore[override]
        """Score of a label with the linear score 0 in its leaf and a path without losses."""
        return 0.5 if isinstance(get_loss(self.loss), Logistic) else math.exp(-1)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.search == "best-first" and self.n_trees > 1:
            raise ParameterError("search", self.search, "must be beam where there is more than one tree")
        try:
            is_known = type(get_loss(self.loss)) in (SquaredHinge, Logistic)
        except ParameterError:
            is_known = False
        if not is_known:
            raise ParameterError("loss", self.loss, "must be squared-hinge or logistic")
        weighting = get_weighting(self.weighting)
        if isinstance(weighting, PropensityWeighting) and isinstance(
            get_propensity(weighting.propensity), GivenPropensity
        ):
            raise ParameterError(
                "weighting", self.weighting, "must have propensities by count: given ones are for labels, not for nodes"
            )

    def predict_weighted_topk(self, X: Any, label_weights: Any, k: int = 5) -> TopK:
        """Rank exactly the k labels with the largest ``label_weights[label] * score``.

        With inverse propensities as weights, and scores that are probabilities, this ranking is optimal for PSP@k. It
        opens as many nodes as it needs.

        Parameters
        ----------
        X : matrix, shape (n, n_features_in_)
        label_weights : array-like, shape (n_labels_,)
            At least 0; labels with weight 0 are not ranked.
        k : int

        Returns
        -------
        TopK
            With weight times score as scores.

        Examples
        --------
        >>> X, Y = [[1, 0], [0, 1], [1, 1]], [[1, 0], [0, 1], [1, 1]]
        >>> LabelTree().fit(X, Y).predict_weighted_topk([[1, 0]], [1, 1000], k=1).labels
        array([[1]], dtype=int32)
        """
        check_is_fitted(self, "n_labels_")
        rows = self._check_rows(X)
        weights = numbers_per_label("label_weights", label_weights, _LABEL_WEIGHT, self.n_labels_)
        return self._search.best_first(rows, self._scales(rows), checked_k(k), weights, weights > 0)[0]

    def add_labels(self, X: Any, y: Any) -> Self:
        """Insert new labels into the tree; the classifiers of the others do not change by a bit.

        A new label goes to the leaf that holds most of the labels predicted for its rows. There it is trained on its
        rows, and on those with another label of the leaf among their predictions.

        Parameters
        ----------
        X, y
            As for `OneVsRest.add_labels`.

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
        rows, labels = self._check_new_labels(X, y)
        with self._whole_or_unchanged():
            self._insert(rows, labels)
            self._remember_new_labels(labels)
        return self

    def _update(self, batch: UpdateBatch) -> None:
        self.forest_, self.weights_ = updated_trees(self, batch)

    def _insert(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        self.forest_, self.weights_ = insert_labels(
            self._search, self._settings(), X, Y, self._scales(X), get_weighting(self.weighting), beam=self.beam,
        )  # fmt: skip

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        self._train(self._trainer(X, Y))

    def _fit_augmented(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation) -> None:
        self._train(self._trainer(X, Y, augmentation))

    def _train(self, trainer: NodeTrainer) -> None:
        fingerprint = trainer.fingerprint(self.n_hard_negatives, self.discount) if is_resumable() else None
        with BlockFile(fingerprint) as block_file:
            self.forest_ = trainer.forest
            self.weights_ = train_trees(trainer, block_file, self.n_hard_negatives, self.discount)

    def _trainer(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation | None = None) -> NodeTrainer:
        scales, weighting = self._scales(X), get_weighting(self.weighting)
        return NodeTrainer(
            self._settings(), X, Y, scales, self._partition(X, Y, scales), weighting, self.precision,
            augmentation=augmentation, normalise=bool(self.normalise),
        )  # fmt: skip

    def _partition(self, X: sp.csr_array, Y: sp.csr_array, scales: Float64) -> LabelForest:
        """Partition the labels that occur."""
        present = np.flatnonzero(column_counts(Y)).astype(np.int32)
        given = list(self.tree) if isinstance(self.tree, Iterator) else self.tree

        @cache
        def points() -> Any:
            return represent_labels(
                self.representation, X, Y, scales, n_components=self.n_components, random_state=self.random_state
            )

        def part(labels: Int32, seed: int) -> Branches:
            return partition_labels(
                points(),
                labels,
                arity=self.arity,
                leaf_size=self.leaf_size,
                balanced=self.balanced,
                max_depth=self.max_depth,
                random_state=seed,
            )

        made = []
        for tree in range(self.n_trees):
            seed = self.random_state + _SEED_STEP * tree
            if given is None:
                branches = part(present, seed)
            else:
                branches = branches_from_pairs(given, present, partial(part, seed=seed), n_labels=Y.shape[1])
                if self.n_trees > 1 and points.cache_info().currsize == 0:
                    raise ParameterError(
                        "n_trees", self.n_trees, "must be 1 with a tree of your own that has every label"
                    )
            made.append(with_overlap(branches, points(), share=self.overlap) if self.overlap else branches)
        return LabelForest.from_branches(made)

    def _settings(self) -> SolverSettings:
        return SolverSettings.of(self, get_loss(self.loss))

    @property
    def _search(self) -> TreeSearch:
        for name, constraint in _SEARCH_CONSTRAINTS.items():  # they may be set on a fitted learner
            check(name, getattr(self, name), constraint)
        self.weights_.check(self.forest_, self.n_labels_)
        settings = self._settings()
        return TreeSearch(
            self.forest_, self.weights_, settings.loss, float(self.discount), settings.bias, self.n_labels_
        )

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> TrainingCost:
        return estimate_nodes(self._trainer(X, Y), self.n_hard_negatives)

    def _label_norms(self) -> Float64:
        return self.weights_.norms(self.n_labels_)

    def _explain(self, X: sp.csr_array, labels: Int32) -> list[Explanation]:
        search, scale = self._search, float(self._scales(X)[0])
        return [explain_label(search, X, scale, int(label)) for label in labels]

    def _topk(self, X: sp.csr_array, k: int, allowed: Flags | None) -> TopK:
        return self._weighted_topk(X, k, allowed, None)

    def _weighted_topk(self, X: sp.csr_array, k: int, allowed: Flags | None, factors: Float32 | None) -> TopK:
        """Exact for best-first search; otherwise among all labels that the beam reaches."""
        if self.search == "best-first":
            weights = None if factors is None else factors.astype(np.float64)
            return self._search.best_first(X, self._scales(X), k, weights, allowed)[0]
        return self._search.labels(X, self._scales(X), k, self.beam, allowed, factors)

    def _scales(self, X: sp.csr_array) -> Float64:
        return row_scales(X, self.normalise)
