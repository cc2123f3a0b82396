"""Recipes of networks over texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longtail.recipes.definition import PW_PAPER, Build, Recipe
from longtail.recipes.settings import weighting_named

if TYPE_CHECKING:
    from longtail.learners import Learner
    from longtail.learners.neural.neural_classifier import LossName
    from longtail.propensity import Propensity

_XGRANK = (
    "Xiong, Li, Duan and Du: Towards Extreme Multi-label Text Classification Through Group-wise Label Ranking. 2022."
)
_ATTENTIONXML = (
    "You, Zhang, Wang, Dai, Mamitsuka and Zhu: AttentionXML: Label Tree-based Attention-Aware Deep Model for "
    "High-Performance Extreme Multi-Label Text Classification. NeurIPS 2019."
)
_APLC = (
    "Ye, Chen, Wang and Davison: Pretrained Generalized Autoregressive Model with Adaptive Probabilistic Label "
    "Clusters for Extreme Multi-label Text Classification. ICML 2020."
)
_LIGHTXML = (
    "Jiang, Wang, Sun, Yang, Zhao and Zhuang: LightXML: Transformer with Dynamic Negative Sampling for "
    "High-Performance Extreme Multi-label Text Classification. AAAI 2021."
)
_FASTTEXT = "Joulin, Grave, Bojanowski and Mikolov: Bag of Tricks for Efficient Text Classification. EACL 2017."
_XML_CNN = "Liu, Chang, Wu and Yang: Deep Learning for Extreme Multi-label Text Classification. SIGIR 2017."


def _xgrank(weighting: str | None, loss: LossName = "grank") -> Build:
    """Constants of the paper; its backbones are three times as large as the one that is at hand without a hub.

    GRank's rows count by the root of their labels, so that those with many are not neglected; BCE adds up over labels.
    """

    def build(propensity: Propensity | str | None) -> Learner:
        from longtail.learners import NeuralClassifier, Pretrained, RankingHead

        return NeuralClassifier(
            encoder=Pretrained("minilm", layers=5), head=RankingHead(dimensions=512, retrieved=32),
            loss=loss, weighting=weighting and weighting_named(weighting, propensity),
            row_power=0.5 if loss == "grank" else 0.0, rate=1e-4, head_rate=1e-3, warm_up=0.1, batch=32,
        )  # fmt: skip

    return build


def _lightxml(propensity: Propensity | str | None) -> Learner:
    """Constants of the paper's code; what it calls the group of a label is a cluster here."""
    from longtail.learners import NeuralClassifier, Pretrained, RankingHead

    head = RankingHead(dimensions=512, texts=False, cluster_size=100, retrieved=75, ramp=False)
    return NeuralClassifier(
        encoder=Pretrained("minilm", layers=5), head=head, loss="bce", rate=1e-4, head_rate=1e-3, warm_up=0.1,
        batch=16, average_from=0.5,
    )  # fmt: skip


def _attentionxml(weighting: str | None) -> Build:
    def build(propensity: Propensity | str | None) -> Learner:
        from longtail.learners import AttentionHead, BiLSTM, NeuralClassifier

        return NeuralClassifier(
            encoder=BiLSTM(hidden=256, dropout=0.2, state_dropout=0.5), head=AttentionHead(hidden=(256,)), loss="bce",
            weighting=weighting and weighting_named(weighting, propensity), rate=1e-3, head_rate=1e-3, warm_up=0.02,
            weight_decay=0.0, batch=40, passes=15, average_from=0.5,
        )  # fmt: skip

    return build


def _aplc(weighting: str | None) -> Build:
    def build(propensity: Propensity | str | None) -> Learner:
        from longtail.learners import AdaptiveHead, NeuralClassifier, Pretrained

        return NeuralClassifier(
            encoder=Pretrained("minilm", layers=1), head=AdaptiveHead(clusters=2, hidden=768, shrink=2), loss="bce",
            weighting=weighting and weighting_named(weighting, propensity), rate=5e-5, head_rate=2e-3, batch=12,
            passes=8,
        )  # fmt: skip

    return build


def _xml_cnn(propensity: Propensity | str | None) -> Learner:
    from longtail.learners import CNN, NeuralClassifier, RankingHead

    return NeuralClassifier(
        encoder=CNN(filters=128, sizes=(2, 4, 8), parts=8, hidden=512, dropout=0.25),
        head=RankingHead(dimensions=512, texts=False, cluster_size=None), loss="bce", rate=1e-3, head_rate=1e-3,
        warm_up=0.02, weight_decay=0.0, batch=64, passes=15,
    )  # fmt: skip


def _word_bag(propensity: Propensity | str | None) -> Learner:
    from longtail.learners import NeuralClassifier, RankingHead, WordBag

    return NeuralClassifier(
        encoder=WordBag(dimensions=512, dropout=0.3), head=RankingHead(dimensions=512, texts=False, cluster_size=None),
        loss="bce", rate=6e-3, head_rate=6e-3, warm_up=0.05, weight_decay=0.0, batch=128, at_once=128, passes=14,
    )  # fmt: skip


NETWORKS = (
    Recipe(
        "xgrank",
        "A transformer, and labels in clusters that are retrieved and then ranked, the true ones against the others.",
        _XGRANK,
        _xgrank(None),
    ),
    Recipe(
        "pw-xgrank",
        "xgrank whose true labels cost 2/p - 1, scaled to a mean of 1.",
        PW_PAPER,
        _xgrank("pw"),
    ),
    Recipe(
        "pw-cb-xgrank",
        "pw-xgrank with costs balanced by label frequency, beta = 0.9, for the rare labels.",
        PW_PAPER,
        _xgrank("pw-cb"),
    ),
    Recipe(
        "xgrank-bce",
        "xgrank with each label on its own: what its loss is compared with.",
        _XGRANK,
        _xgrank(None, loss="bce"),
    ),
    Recipe(
        "lightxml",
        "A transformer, and clusters of labels whose retriever gives the negatives; each label on its own.",
        _LIGHTXML,
        _lightxml,
    ),
    Recipe(
        "attentionxml",
        "A BiLSTM over words at which each label looks with attention of its own; level by level for many labels.",
        _ATTENTIONXML,
        _attentionxml(None),
    ),
    Recipe(
        "pw-attentionxml",
        "attentionxml whose true labels cost 2/p - 1, scaled to a mean of 1; clusters by their own counts.",
        PW_PAPER,
        _attentionxml("pw"),
    ),
    Recipe(
        "pw-cb-attentionxml",
        "pw-attentionxml with costs balanced by label frequency, beta = 0.9, for the rare labels.",
        PW_PAPER,
        _attentionxml("pw-cb"),
    ),
    Recipe(
        "aplc-xlnet",
        "A transformer; frequent labels at once, rare ones behind gates, in ever thinner layers.",
        _APLC,
        _aplc(None),
    ),
    Recipe(
        "pw-aplc-xlnet",
        "aplc-xlnet whose true labels cost 2/p - 1, scaled in each cluster.",
        PW_PAPER,
        _aplc("pw"),
    ),
    Recipe(
        "pw-cb-aplc-xlnet",
        "pw-aplc-xlnet with costs balanced by label frequency, beta = 0.9, for the rare labels.",
        PW_PAPER,
        _aplc("pw-cb"),
    ),
    Recipe(
        "xml-cnn",
        "Convolutions over words, pooled by their largest values in eight parts of a text.",
        _XML_CNN,
        _xml_cnn,
    ),
    Recipe(
        "word-bag",
        "Vectors of words, weighted by how rare they are and added up: the network that takes minutes on a CPU.",
        _FASTTEXT,
        _word_bag,
    ),
)
