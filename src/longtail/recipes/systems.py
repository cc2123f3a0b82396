"""Every recipe: who published it, and the few lines that compose it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from longtail.recipes.definition import PW_PAPER, Build, Recipe
from longtail.recipes.networks import NETWORKS
from longtail.recipes.settings import weighting_named

if TYPE_CHECKING:
    from longtail.learners import Learner
    from longtail.propensity import Propensity
    from longtail.weighting import Weighting

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


class Around(NamedTuple):
    """What goes around a recipe: in a sentence, and how."""

    summary: str
    wrap: Callable[[Learner, Propensity | str | None], Learner]


def _popularity(propensity: Propensity | str | None) -> Learner:
    from longtail.learners import Popularity

    return Popularity()


def _dismec(propensity: Propensity | str | None) -> Learner:
    return _one_vs_rest(None)


def _pw_dismec(propensity: Propensity | str | None) -> Learner:
    return _one_vs_rest(weighting_named("pw", propensity))


def _pw_cb_dismec(propensity: Propensity | str | None) -> Learner:
    return _one_vs_rest(weighting_named("pw-cb", propensity))


def _one_vs_rest(weighting: Weighting | None) -> Learner:
    from longtail.learners import OneVsRest

    return OneVsRest(loss="squared-hinge", regularisation=1.0, prune_below=0.01, weighting=weighting)


def _parabel(weighting: str | None) -> Build:
    """Three balanced binary trees; the solver's limits are those of the published code."""

    def build(propensity: Propensity | str | None) -> Learner:
        from longtail.learners import LabelTree

        return LabelTree(
            trees=3, arity=2, leaf_size=100, dimensions=None, negatives=0, discount=1.0, beam=10, bias_centre=0.0,
            prune_below=0.1, tolerance=0.1, max_passes=20, precision="float32",
            weighting=weighting and weighting_named(weighting, propensity),
        )  # fmt: skip

    return build


def _bonsai(weighting: str | None) -> Build:
    def build(propensity: Propensity | str | None) -> Learner:
        from longtail.learners import bonsai_trees

        return bonsai_trees(None if weighting is None else weighting_named(weighting, propensity))

    return build


def _plt(propensity: Propensity | str | None) -> Learner:
    from longtail.learners import LabelTree

    return LabelTree(
        loss="logistic", regularisation=10.0, arity=2, leaf_size=100, dimensions=None, negatives=0, discount=1.0,
        search="best-first", bias_centre=0.0, prune_below=0.1, tolerance=0.1, precision="float32",
    )  # fmt: skip


def _fastxml(propensity: Propensity | str | None) -> Learner:
    from longtail.learners import InstanceForest

    return InstanceForest(trees=50, leaf_size=10, leaf_labels=100, regularisation=1.0)


def _pfastxml(propensity: Propensity | str | None) -> Learner:
    from longtail.learners import InstanceForest

    return InstanceForest(
        trees=50, leaf_size=10, leaf_labels=100, regularisation=1.0, ideal=False,
        weighting=weighting_named("inverse-propensity", propensity),
    )  # fmt: skip


def _pfastrexml(propensity: Propensity | str | None) -> Learner:
    from longtail.tail import CentroidReranker

    return CentroidReranker(learner=_pfastxml(propensity), gamma=30.0, alpha=0.8, candidates=1000, drop=0.1)


def _longtail_tree(propensity: Propensity | str | None) -> Learner:
    from longtail.learners import LabelTree
    from longtail.weighting import PowerFrequency

    return LabelTree(regularisation=0.5, weighting=PowerFrequency(beta=0.1, factor=1.5), beam=8)


def _ips(learner: Learner, propensity: Propensity | str | None) -> Learner:
    from longtail.tail import TailDial

    return TailDial(learner=learner, tail=1.0, propensity=propensity)


def _ranknet(learner: Learner, propensity: Propensity | str | None) -> Learner:
    from longtail.tail import RankNet

    return RankNet(learner=learner, propensity=propensity)


def _taug(learner: Learner, propensity: Propensity | str | None) -> Learner:
    from longtail.tail import TAug

    return TAug(learner=learner, tau=0.1, copies=4)


def wrapped(around: str, build: Build) -> Build:
    """Builder of a recipe with something around it."""
    return lambda propensity: AROUND[around].wrap(build(propensity), propensity)


AROUND = {
    "ips": Around("Scores times inverse propensities.", _ips),
    "ranknet": Around("Ranked anew by RankNet, which is trained to bring rare labels up.", _ranknet),
    "taug": Around("Head and tail learned apart, the tail from augmented rows.", _taug),
}


def _glas(propensity: Propensity | str | None) -> Learner:
    return _embedding_classifier(regulariser="glas")


def _embedding(propensity: Propensity | str | None) -> Learner:
    return _embedding_classifier(regulariser=None)


def _embedding_classifier(**params: Any) -> Learner:
    from longtail.learners import EmbeddingClassifier

    return EmbeddingClassifier(**params)


def _longtail_tail(propensity: Propensity | str | None) -> Learner:
    """Probabilities from a plain and a weighted learner; the dial is low for the first place and high for the rest."""
    from longtail.tail import Stacked, TailDial

    stacked = Stacked(learner=_dismec(propensity), second=_pw_cb_dismec(propensity), candidates=50)
    return TailDial(learner=stacked, tail=1.0, first=0.26, propensity=propensity)


RECIPES = (
    Recipe(
        "popularity",
        "The most frequent labels for every row: the baseline to beat.",
        None,
        _popularity,
    ),
    Recipe(
        "dismec",
        "One linear classifier a label: squared hinge, C = 1, weights below 0.01 pruned.",
        _DISMEC,
        _dismec,
    ),
    Recipe(
        "pw-dismec",
        "dismec whose positive rows cost 2/p - 1, for labels that went unrecorded.",
        PW_PAPER,
        _pw_dismec,
    ),
    Recipe(
        "pw-cb-dismec",
        "pw-dismec with costs balanced by label frequency, beta = 0.9, for the rare labels.",
        PW_PAPER,
        _pw_cb_dismec,
    ),
    Recipe(
        "parabel",
        "Three balanced binary label trees with leaves of 100 labels, weights below 0.1 pruned.",
        _PARABEL,
        _parabel(None),
    ),
    Recipe(
        "pw-parabel",
        "parabel whose positive rows cost 2/p - 1, at leaves and at nodes.",
        PW_PAPER,
        _parabel("pw"),
    ),
    Recipe(
        "bonsai",
        "Three shallow, unbalanced label trees of arity 100, weights below 0.01 pruned.",
        _BONSAI,
        _bonsai(None),
    ),
    Recipe(
        "pw-bonsai",
        "bonsai whose positive rows cost 2/p - 1, at leaves and at nodes.",
        PW_PAPER,
        _bonsai("pw"),
    ),
    Recipe(
        "pw-cb-bonsai",
        "pw-bonsai with costs balanced by label frequency, beta = 0.9, for the rare labels.",
        PW_PAPER,
        _bonsai("pw-cb"),
    ),
    Recipe(
        "plt",
        "A probabilistic label tree: logistic loss, C = 10, exact search; scores are probabilities.",
        _PLT,
        _plt,
    ),
    Recipe(
        "fastxml",
        "Fifty trees over rows that part them by nDCG, leaves of 10 rows.",
        _FASTXML,
        _fastxml,
    ),
    Recipe(
        "pfastxml",
        "fastxml whose trees gain 1/p by a label, for labels that went unrecorded.",
        _PFASTREXML,
        _pfastxml,
    ),
    Recipe(
        "pfastrexml",
        "pfastxml ranked anew by the distance to each label's centroid, alpha = 0.8, gamma = 30, for the rare labels.",
        _PFASTREXML,
        _pfastrexml,
    ),
    Recipe(
        "embedding",
        "Rows and labels as points on one sphere, the labels of a row near to it.",
        _GLAS,
        _embedding,
    ),
    Recipe(
        "glas",
        "embedding with labels drawn as near to each other as they are often together.",
        _GLAS,
        _glas,
    ),
    Recipe(
        "glas+ranknet",
        "glas ranked anew by RankNet, which is trained to bring rare labels up.",
        RANKNET,
        wrapped("ranknet", _glas),
    ),
    *NETWORKS,
    Recipe(
        "ranknet+fastxml",
        "fastxml ranked anew by RankNet, which is trained to bring rare labels up.",
        RANKNET,
        wrapped("ranknet", _fastxml),
    ),
    Recipe(
        "ranknet+parabel",
        "parabel ranked anew by RankNet, which is trained to bring rare labels up.",
        RANKNET,
        wrapped("ranknet", _parabel(None)),
    ),
    Recipe(
        "ranknet+bonsai",
        "bonsai ranked anew by RankNet, which is trained to bring rare labels up.",
        RANKNET,
        wrapped("ranknet", _bonsai(None)),
    ),
    Recipe(
        "taug+bonsai",
        "bonsai for the most frequent tenth of the labels, and for the others from augmented rows.",
        RANKNET,
        wrapped("taug", _bonsai(None)),
    ),
    Recipe(
        "ranknet+taug+bonsai",
        "taug+bonsai ranked anew by RankNet.",
        RANKNET,
        wrapped("ranknet", wrapped("taug", _bonsai(None))),
    ),
    Recipe(
        "ips+bonsai",
        "bonsai whose scores are multiplied by inverse propensities: the tail dial at 1.",
        RANKNET,
        wrapped("ips", _bonsai(None)),
    ),
    Recipe(
        "longtail-tail",
        "Probabilities from dismec and pw-cb-dismec, the tail dial low for the first place and high for the others: "
        "the most of the tail at a high P@1.",
        None,
        _longtail_tail,
    ),
    Recipe(
        "longtail-tree",
        "A shallow tree that trains each leaf on the rows that prediction would send there: for many labels.",
        None,
        _longtail_tree,
    ),
)
