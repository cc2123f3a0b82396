"""What goes around any learner for the sake of the tail."""

from longtail.tail.centroid_reranker import CentroidReranker
from longtail.tail.centroids import LabelCentroids
from longtail.tail.diagnosis import Diagnosis, diagnose
from longtail.tail.dial import DialPoint, TailDial, choose_tail, dial_curve
from longtail.tail.norms import label_norms, normalised
from longtail.tail.ranknet import RankNet
from longtail.tail.stacked import Stacked
from longtail.tail.taug import TAug

__all__ = [
    "CentroidReranker",
    "Diagnosis",
    "DialPoint",
    "LabelCentroids",
    "RankNet",
    "Stacked",
    "TAug",
    "TailDial",
    "choose_tail",
    "diagnose",
    "dial_curve",
    "label_norms",
    "normalised",
]
