"""What learns: estimators that rank labels, and what goes with every one of them."""

from longtail.learners.base import Learner
from longtail.learners.blend import Blend
from longtail.learners.calibration import Calibration
from longtail.learners.embedding import EmbeddingClassifier
from longtail.learners.estimate import Estimate
from longtail.learners.explanation import Explanation
from longtail.learners.instance_trees import InstanceForest, InstanceTrees
from longtail.learners.label_trees import ChunkWeights, LabelForest, LabelTree, bonsai_trees
from longtail.learners.linear import BlockWeights, OneVsRest
from longtail.learners.neural import (
    CNN,
    AdaptiveHead,
    AttentionHead,
    BiLSTM,
    NeuralClassifier,
    Pretrained,
    RankingHead,
    WordBag,
)
from longtail.learners.popularity import Popularity
from longtail.learners.text import TextLearner

__all__ = [
    "CNN",
    "AdaptiveHead",
    "AttentionHead",
    "BiLSTM",
    "Blend",
    "BlockWeights",
    "Calibration",
    "ChunkWeights",
    "EmbeddingClassifier",
    "Estimate",
    "Explanation",
    "InstanceForest",
    "InstanceTrees",
    "LabelForest",
    "LabelTree",
    "Learner",
    "NeuralClassifier",
    "OneVsRest",
    "Popularity",
    "Pretrained",
    "RankingHead",
    "TextLearner",
    "WordBag",
    "bonsai_trees",
]
