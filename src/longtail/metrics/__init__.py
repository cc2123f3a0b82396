"""What is measured: plain and propensity-scored ranking metrics, coverage, results by frequency and by label."""

from longtail.metrics.evaluation import by_frequency, evaluate, per_label
from longtail.metrics.evaluator import Evaluator
from longtail.metrics.frequency import FrequencyBin, FrequencyTable, frequency_bins
from longtail.metrics.labels import LabelScores
from longtail.metrics.ranking import top_k_from_sparse
from longtail.metrics.scores import EQUATION_30, Scores, relative_change

__all__ = [
    "EQUATION_30",
    "Evaluator",
    "FrequencyBin",
    "FrequencyTable",
    "LabelScores",
    "Scores",
    "by_frequency",
    "evaluate",
    "frequency_bins",
    "per_label",
    "relative_change",
    "top_k_from_sparse",
]
