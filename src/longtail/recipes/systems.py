"""The recipes: their papers, and the learners that they compose."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from longtail.recipes.definition import Build, PropensityLike, Recipe, weighted_forms
from longtail.recipes.networks import NETWORKS
from longtail.recipes.settings import weighting_named

if TYPE_CHECKING:
    from longtail.learners import Learner

RANKNET = (
    "Improving Tail Label Prediction for Extreme Multi-label Learning. Under review for ICLR 2021, authors not named."
)
_DISMEC = "Babbar and Schölkopf: DiSMEC: Distributed Sparse Machines for Extreme Multi-label Classification. WSDM 2017."
_PARABEL = (
    "Prabhu, Kag, Harsola, Agrawal and Varma: Parabel: Partitioned Label Trees for Extreme Classification with "
    "Application to Dynamic Search Advertising. WWW 2018."
)
_BONSAI = (
    "Khandagale, Xiao and Babbar: Bonsai: Diverse and Shallow Trees for Extreme Multi-label Classification. "
    "Machine Learning 109, 2020."
)
_PLT = (
    "Wydmuch, Jasinska, Kuznetsov, Busa-Fekete and Dembczyński: A No-regret Generalization of Hierarchical Softmax to "
    "Extreme Multi-label Classification. NeurIPS 2018."
)
_FASTXML = (
    "Prabhu and Varma: FastXML: A Fast, Accurate and Stable Tree-classifier for Extreme Multi-label Learning. KDD 2014."
)
_PFASTREXML = (
    "Jain, Prabhu and Varma: Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking and Other Missing "
    "Label Applications. KDD 2016."
)
_GLAS = (
    "Guo, Mousavi, Wu, Holtmann-Rice, Kale, Reddi and Kumar: Breaking the Glass Ceiling for Embedding-Based "
    "Classifiers for Large Output Spaces. NeurIPS 2019."
)


def _popularity(propensity: PropensityLike) -> Learner:
    from longtail.learners import Popularity

    return Popularity()


def _dismec(propensity: PropensityLike, weighting: str | None = None) -> Learner:
    from longtail.learners import OneVsRest

    return OneVsRest(loss="squared-hinge", C=1.0, prune_below=0.01, weighting=weighting_named(weighting, propensity))


def _parabel(propensity: PropensityLike, weighting: str | None = None) -> Learner:
    from longtail.learners.label_trees.published import parabel_trees

    return parabel_trees(weighting_named(weighting, propensity))


def _bonsai(propensity: PropensityLike, weighting: str | None = None) -> Learner:
    from longtail.learners import bonsai_trees

    return bonsai_trees(weighting_named(weighting, propensity))


def _plt(propensity: PropensityLike) -> Learner:
    from longtail.learners.label_trees.published import plt_tree

    return plt_tree()


def _fastxml(propensity: PropensityLike, weighting: str | None = None) -> Learner:
    from longtail.learners import InstanceForest

    return InstanceForest(
        n_trees=50, leaf_size=10, leaf_labels=100, C=1.0, criterion="ndcg" if weighting is None else "dcg",
        weighting=weighting_named(weighting, propensity),
    )  # fmt: skip


_pfastxml = partial(_fastxml, weighting="inverse-propensity")


def _pfastrexml(propensity: PropensityLike) -> Learner:
    from longtail.rerank import CentroidReranker

    return CentroidReranker(learner=_pfastxml(propensity), gamma=30.0, alpha=0.8, top_k=1000, drop=0.1)


def _embedding(propensity: PropensityLike, regulariser: Literal["glas"] | None = None) -> Learner:
    from longtail.learners import EmbeddingClassifier

    return EmbeddingClassifier(regulariser=regulariser)


_glas = partial(_embedding, regulariser="glas")


def _longtail_tail(propensity: PropensityLike) -> Learner:
    """Return a stack of a plain and a weighted learner; the dial is low for rank 1 and high for the others."""
    from longtail.rerank import Stacked, TailDial

    stacked = Stacked(learner=_dismec(propensity), second=_dismec(propensity, "pw-cb"), top_k=50)
    return TailDial(learner=stacked, tail=1.0, first_tail=0.26, propensity=propensity)


def _longtail_tree(propensity: PropensityLike) -> Learner:
    from longtail.learners import LabelTree
    from longtail.weighting import PowerFrequency

    return LabelTree(C=0.5, weighting=PowerFrequency(beta=0.1, factor=1.5), beam=8)


def _ips(learner: Learner, propensity: PropensityLike) -> Learner:
    from longtail.rerank import TailDial

    return TailDial(learner=learner, tail=1.0, propensity=propensity)


def _ranknet(learner: Learner, propensity: PropensityLike) -> Learner:
    from longtail.rerank import RankNet

    return RankNet(learner=learner, propensity=propensity)


def _taug(learner: Learner, propensity: PropensityLike) -> Learner:
    from longtail.rerank import TAug

    return TAug(learner=learner, tau=0.1, copies=4)


class Wrapper(NamedTuple):
    """A learner that wraps any other: its summary, and how it is built."""

    summary: str
    wrap: Callable[[Learner, PropensityLike], Learner]


WRAPPERS = {
    "ips": Wrapper("Scores times inverse propensities.", _ips),
    "ranknet": Wrapper("Reranked by RankNet, which is trained to rank rare labels higher.", _ranknet),
    "taug": Wrapper("Head and tail learned separately, the tail from augmented rows.", _taug),
}


def wrapped(wrapper: str, build: Build) -> Build:
    """Return the builder of a recipe in a wrapper."""
    return lambda propensity: WRAPPERS[wrapper].wrap(build(propensity), propensity)


def _reranked(name: str, build: Build) -> Recipe:
    summary = f"{name} reranked by RankNet, which is trained to rank rare labels higher."
    return Recipe(f"ranknet+{name}", summary, RANKNET, wrapped("ranknet", build))


RECIPES = (
    Recipe("popularity", "The most frequent labels for every row: the baseline to beat.", None, _popularity),
    Recipe(
        "dismec", "One linear classifier per label: squared hinge, C = 1, weights below 0.01 pruned.", _DISMEC, _dismec
    ),
    *weighted_forms("dismec", _dismec, "for positive rows, against missing labels"),
    Recipe(
        "parabel", "Three balanced binary label trees with leaves of 100 labels, weights below 0.1 pruned.",
        _PARABEL, _parabel,
    ),
    weighted_forms("parabel", _parabel, "for positive rows, at leaves and at inner nodes")[0],
    Recipe(
        "bonsai", "Three shallow, unbalanced label trees of arity 100, weights below 0.01 pruned.", _BONSAI, _bonsai
    ),
    *weighted_forms("bonsai", _bonsai, "for positive rows, at leaves and at inner nodes"),
    Recipe(
        "plt", "A probabilistic label tree: logistic loss, C = 10, exact search; scores are probabilities.", _PLT, _plt
    ),
    Recipe("fastxml", "Fifty trees that split rows by nDCG, with leaves of 10 rows.", _FASTXML, _fastxml),
    Recipe("pfastxml", "fastxml with gains of 1/p per label, against missing labels.", _PFASTREXML, _pfastxml),
    Recipe(
        "pfastrexml",
        "pfastxml reranked by the distance to the label centroids, alpha = 0.8, gamma = 30, for rare labels.",
        _PFASTREXML, _pfastrexml,
    ),
    Recipe("embedding", "Rows and labels embedded on one sphere, the labels of a row close to it.", _GLAS, _embedding),
    Recipe("glas", "embedding with label vectors regularised toward the co-occurrence of labels.", _GLAS, _glas),
    Recipe(
        "glas+ranknet", "glas reranked by RankNet, which is trained to rank rare labels higher.",
        RANKNET, wrapped("ranknet", _glas),
    ),
    *NETWORKS,
    _reranked("fastxml", _fastxml),
    _reranked("parabel", _parabel),
    _reranked("bonsai", _bonsai),
    Recipe(
        "taug+bonsai",
        "bonsai for the most frequent tenth of the labels, and another for the rest, trained on augmented rows.",
        RANKNET, wrapped("taug", _bonsai),
    ),
    Recipe(
        "ranknet+taug+bonsai", "taug+bonsai reranked by RankNet.", RANKNET, wrapped("ranknet", wrapped("taug", _bonsai))
    ),
    Recipe(
        "ips+bonsai", "bonsai with scores multiplied by inverse propensities: the tail dial at 1.",
        RANKNET, wrapped("ips", _bonsai),
    ),
    Recipe(
        "longtail-tail",
        "Probabilities from dismec and pw-cb-dismec, the tail dial low for rank 1 and high for the others: "
        "the best for the tail at a high P@1.",
        None,
        _longtail_tail,
    ),
    Recipe(
        "longtail-tree",
        "A shallow tree that trains each leaf on the rows that the search reaches it with: for many labels.",
        None, _longtail_tree,
    ),
)  # fmt: skip
