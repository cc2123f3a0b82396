"""Metrics: ranking metrics, plain and propensity-scored, by frequency and label, with intervals and tests."""

from longtail.metrics.calibration import CalibrationCurve, calibration_curve, calibration_error
from longtail.metrics.comparison import Comparison, Difference, adjust, compare
from longtail.metrics.estimators import ESTIMATORS, concentration_bound, unbiased_estimate, unbiased_rows
from longtail.metrics.evaluation import Evaluator, by_frequency, evaluate, per_label
from longtail.metrics.frequency import FrequencyBin, FrequencyTable, frequency_bins
from longtail.metrics.intervals import Interval, bootstrap, bootstrap_by_frequency
from longtail.metrics.labels import LabelScores
from longtail.metrics.ranking import top_k_from_sparse
from longtail.metrics.scores import EQUATION_30, Scores, relative_change
from longtail.metrics.sensitivity import Sensitivity, sensitivity

__all__ = [
    "EQUATION_30",
    "ESTIMATORS",
    "CalibrationCurve",
    "Comparison",
    "Difference",
    "Evaluator",
    "FrequencyBin",
    "FrequencyTable",
    "Interval",
    "LabelScores",
    "Scores",
    "Sensitivity",
    "adjust",
    "bootstrap",
    "bootstrap_by_frequency",
    "by_frequency",
    "calibration_curve",
    "calibration_error",
    "compare",
    "concentration_bound",
    "evaluate",
    "frequency_bins",
    "per_label",
    "relative_change",
    "sensitivity",
    "top_k_from_sparse",
    "unbiased_estimate",
    "unbiased_rows",
]
