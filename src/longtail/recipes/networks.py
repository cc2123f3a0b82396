"""Recipes of networks over texts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from longtail.recipes.definition import PropensityLike, Recipe, weighted_forms
from longtail.recipes.settings import weighting_named

if TYPE_CHECKING:
    from longtail.learners import Learner
    from longtail.losses import TorchLossName

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


def _xgrank(propensity: PropensityLike, weighting: str | None = None, loss: TorchLossName = "grank") -> Learner:
    """Return XGrank with the constants of the paper; its backbones are three times as large as this one.

    With GRank, rows are weighted by the square root of their number of labels, so that those with many are not
    neglected; BCE is a sum over labels already.
    """
    from longtail.learners import NeuralClassifier, Pretrained, RankingHead

    return NeuralClassifier(
        encoder=Pretrained("minilm", layers=5), head=RankingHead(embedding_dim=512, retrieved=32), loss=loss,
        weighting=weighting_named(weighting, propensity), row_power=0.5 if loss == "grank" else 0.0,
        learning_rate=1e-4, head_learning_rate=1e-3, warmup_fraction=0.1, batch_size=32,
    )  # fmt: skip


def _lightxml(propensity: PropensityLike) -> Learner:
    """Return LightXML with the constants of the paper's code; its groups of labels are called clusters here."""
    from longtail.learners import NeuralClassifier, Pretrained, RankingHead

    return NeuralClassifier(
        encoder=Pretrained("minilm", layers=5),
        head=RankingHead(embedding_dim=512, texts=False, cluster_size=100, retrieved=75, ramp=False), loss="logistic",
        learning_rate=1e-4, head_learning_rate=1e-3, warmup_fraction=0.1, batch_size=16, average_from=0.5,
    )  # fmt: skip


def _attentionxml(propensity: PropensityLike, weighting: str | None = None) -> Learner:
    from longtail.learners import AttentionHead, BiLSTM, NeuralClassifier

    return NeuralClassifier(
        encoder=BiLSTM(hidden_size=256, dropout=0.2, state_dropout=0.5),
        head=AttentionHead(hidden_layer_sizes=(256,)), loss="logistic",
        weighting=weighting_named(weighting, propensity), learning_rate=1e-3, head_learning_rate=1e-3,
        warmup_fraction=0.02, weight_decay=0.0, batch_size=40, epochs=15, average_from=0.5,
    )  # fmt: skip


def _aplc(propensity: PropensityLike, weighting: str | None = None) -> Learner:
    from longtail.learners import AdaptiveHead, NeuralClassifier, Pretrained

    return NeuralClassifier(
        encoder=Pretrained("minilm", layers=1), head=AdaptiveHead(n_clusters=2, hidden_size=768, shrink=2),
        loss="logistic", weighting=weighting_named(weighting, propensity), learning_rate=5e-5, head_learning_rate=2e-3,
        batch_size=12, epochs=8,
    )  # fmt: skip


def _xml_cnn(propensity: PropensityLike) -> Learner:
    from longtail.learners import CNN, NeuralClassifier, RankingHead

    return NeuralClassifier(
        encoder=CNN(n_filters=128, kernel_sizes=(2, 4, 8), pool_chunks=8, hidden_size=512, dropout=0.25),
        head=RankingHead(embedding_dim=512, texts=False, cluster_size=None), loss="logistic",
        learning_rate=1e-3, head_learning_rate=1e-3, warmup_fraction=0.02, weight_decay=0.0, batch_size=64, epochs=15,
    )  # fmt: skip


def _word_bag(propensity: PropensityLike) -> Learner:
    from longtail.learners import NeuralClassifier, RankingHead, WordBag

    return NeuralClassifier(
        encoder=WordBag(embedding_dim=512, dropout=0.3),
        head=RankingHead(embedding_dim=512, texts=False, cluster_size=None), loss="logistic",
        learning_rate=6e-3, head_learning_rate=6e-3, warmup_fraction=0.05, weight_decay=0.0, batch_size=128,
        micro_batch_size=128, epochs=14,
    )  # fmt: skip


NETWORKS = (
    Recipe(
        "xgrank", "A transformer; label clusters are retrieved, and their labels ranked by a group-wise loss.",
        _XGRANK, _xgrank,
    ),
    *weighted_forms("xgrank", _xgrank, "for true labels, scaled to a mean of 1"),
    Recipe(
        "xgrank-bce", "xgrank with binary cross-entropy, as a baseline for its loss.",
        _XGRANK, partial(_xgrank, loss="logistic"),
    ),
    Recipe(
        "lightxml", "A transformer with binary cross-entropy; the retriever of label clusters gives the negatives.",
        _LIGHTXML, _lightxml,
    ),
    Recipe(
        "attentionxml", "A BiLSTM over words with label-wise attention; level by level for many labels.",
        _ATTENTIONXML, _attentionxml,
    ),
    *weighted_forms(
        "attentionxml", _attentionxml, "for true labels, scaled to a mean of 1; clusters by their own counts"
    ),
    Recipe(
        "aplc-xlnet", "A transformer with an adaptive head: rare labels in clusters, with ever smaller layers.",
        _APLC, _aplc,
    ),
    *weighted_forms("aplc-xlnet", _aplc, "for true labels, scaled in each cluster"),
    Recipe("xml-cnn", "Convolutions over words, max-pooled in eight parts of a text.", _XML_CNN, _xml_cnn),
    Recipe(
        "word-bag", "A weighted sum of word vectors, as in fastText: the network that takes minutes on a CPU.",
        _FASTTEXT, _word_bag,
    ),
)  # fmt: skip
