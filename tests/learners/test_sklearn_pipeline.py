"""longtail inside scikit-learn: the example of docs/how-to/use-scikit-learn.md."""

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from longtail import JainPropensity, OneVsRest, datasets
from longtail.metrics import evaluate


def psp_at_5(estimator, X, Y):
    """Propensity-scored precision at 5, by the counts of the rows that the estimator was fitted on."""
    learner = estimator[-1]
    inverse = JainPropensity().inverse(learner.label_counts_, learner.n_rows_)
    top = learner.predict_topk(estimator[:-1].transform(X), 5)
    return evaluate(top, Y, inverse_propensity=inverse, ks=(5,))["PSP@5"]


def test_pipelines_searches_and_cross_validation_take_a_learner():
    data = datasets.load("debian-tags:train")
    rows = np.random.default_rng(0).permutation(data.n_rows)[:1500]
    texts, Y = np.array(data.texts, object)[rows], data.Y[rows]
    pipeline = make_pipeline(TfidfVectorizer(sublinear_tf=True, min_df=2), OneVsRest())
    scores = cross_val_score(pipeline, texts, Y.toarray(), cv=3)  # which takes no sparse labels
    assert scores.shape == (3,)
    assert 0.65 < scores.mean() < 1, "P@1 as a share, which is what a learner's score is"
    grid = {"onevsrest__weighting": [None, "pw-cb"]}
    search = GridSearchCV(pipeline, grid, scoring=psp_at_5, cv=3, error_score="raise").fit(texts, Y)
    assert search.best_params_ == {"onevsrest__weighting": "pw-cb"}
    assert search.best_estimator_.predict(texts[:5]).shape == (5, Y.shape[1])
    assert search.cv_results_["mean_test_score"].min() > 40
