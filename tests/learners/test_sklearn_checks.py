"""scikit-learn's own checks, as far as they can apply to estimators whose Y is a matrix of labels."""

from importlib.util import find_spec

from sklearn.utils.estimator_checks import parametrize_with_checks

from longtail.learners import EmbeddingClassifier, InstanceForest, LabelTree, OneVsRest, Popularity
from longtail.tail import CentroidReranker, RankNet, Stacked, TailDial, TAug

LEARNERS = [
    *(Popularity(), OneVsRest(), LabelTree(), InstanceForest(trees=3)),
    CentroidReranker(learner=InstanceForest(trees=3)),
    *(TailDial(), RankNet(learner=OneVsRest(), width=2), Stacked(), TAug(learner=OneVsRest(), copies=1)),
    *((EmbeddingClassifier(dimensions=4, passes=1),) if find_spec("torch") else ()),
]

WORDING = "asks for the wording of scikit-learn's message; the error is raised, in longtail's words"
ONE_TARGET = "trains on a vector with one class a row; longtail's Y has a column a label"
SPARSE = "wants a dense indicator from predict; longtail's is sparse, since labels are many"
OBJECTS = "wants numbers out of Python objects; longtail refuses them, since a matrix of objects is a mistake"
NAMED_Y = "gives score its labels as y=; longtail calls the matrix of labels Y, in score as in fit"

EXPECTED_FAILURES = {
    "check_complex_data": WORDING,
    "check_estimators_empty_data_messages": WORDING,
    "check_fit2d_predict1d": WORDING,
    "check_requires_y_none": WORDING,
    "check_dtype_object": OBJECTS,
    "check_classifier_data_not_an_array": SPARSE,
    "check_classifier_multioutput": SPARSE,
    "check_classifiers_multilabel_representation_invariance": SPARSE,
    "check_classifiers_multilabel_output_format_predict": SPARSE,
    "check_n_features_in_after_fitting": NAMED_Y,
    "check_classifiers_one_label": ONE_TARGET,
    "check_classifiers_classes": ONE_TARGET,
    "check_classifiers_train": ONE_TARGET,
    "check_classifiers_regression_target": ONE_TARGET,
    "check_classifier_not_supporting_multiclass": ONE_TARGET,
}


@parametrize_with_checks(LEARNERS, expected_failed_checks=lambda estimator: EXPECTED_FAILURES)
def test_scikit_learn_check(estimator, check):
    check(estimator)
