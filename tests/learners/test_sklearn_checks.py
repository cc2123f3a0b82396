"""scikit-learn's own checks, as far as they can apply to estimators whose y is a matrix of labels."""

from importlib.util import find_spec

import pytest
from sklearn.utils.estimator_checks import check_dataframe_column_names_consistency, parametrize_with_checks

from longtail.learners import EmbeddingClassifier, InstanceForest, LabelTree, OneVsRest, Popularity
from longtail.rerank import CentroidReranker, RankNet, Stacked, TailDial, TAug

LEARNERS = [
    *(Popularity(), OneVsRest(), LabelTree(), InstanceForest(n_trees=3)),
    CentroidReranker(learner=InstanceForest(n_trees=3)),
    *(TailDial(), RankNet(learner=OneVsRest(), width=2), Stacked(), TAug(learner=OneVsRest(), copies=1)),
    *((EmbeddingClassifier(embedding_dim=4, epochs=1),) if find_spec("torch") else ()),
]

ONE_TARGET = "trains on a vector with one class per row; longtail's y has a column per label"
N_ITER = "wants one n_iter_; every block of labels, node or tree stops by itself"
SPARSE = "wants a dense matrix with a column for every label; longtail's is sparse, since labels are many"
TWO_COLUMNS = "wants two columns of probabilities for a single label; longtail's have one per label"

EXPECTED_FAILURES = {
    "check_classifier_data_not_an_array": SPARSE,
    "check_classifier_multioutput": SPARSE,
    "check_classifiers_multilabel_representation_invariance": SPARSE,
    "check_classifiers_multilabel_output_format_predict": SPARSE,
    "check_classifiers_multilabel_output_format_decision_function": SPARSE,
    "check_classifiers_classes": ONE_TARGET,
    "check_classifiers_train": ONE_TARGET,
}


def expected_failures(estimator):
    found = dict(EXPECTED_FAILURES)
    if hasattr(estimator, "max_iter"):
        found["check_non_transformer_estimators_n_iter"] = N_ITER
    if hasattr(estimator, "predict_proba"):
        found["check_classifiers_multilabel_output_format_predict_proba"] = SPARSE
        found["check_decision_proba_consistency"] = ONE_TARGET
        found |= dict.fromkeys(("check_estimator_sparse_array", "check_estimator_sparse_matrix"), TWO_COLUMNS)
    return found


@parametrize_with_checks(LEARNERS, expected_failed_checks=expected_failures, xfail_strict=True)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)
def test_names_of_columns(learner):
    pytest.importorskip("pandas", reason="makes data frames")
    check_dataframe_column_names_consistency(type(learner).__name__, learner)
