"""Neural learners over texts: encoders, heads and the classifier that trains them together."""

from longtail.learners.neural.encoders import CNN, BiLSTM, Encoder, Pretrained, WordBag
from longtail.learners.neural.heads import AdaptiveHead, AttentionHead, Head, RankingHead
from longtail.learners.neural.neural_classifier import NeuralClassifier

__all__ = [
    "CNN",
    "AdaptiveHead",
    "AttentionHead",
    "BiLSTM",
    "Encoder",
    "Head",
    "NeuralClassifier",
    "Pretrained",
    "RankingHead",
    "WordBag",
]
