"""A longtail learner inside scikit-learn: a pipeline, a grid search, and a metric of longtail as the scorer."""

from __future__ import annotations

import os

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from longtail import JainPropensity, OneVsRest, datasets
from longtail.metrics import evaluate


def psp_at_5(estimator, X, y):
    """Return propensity-scored precision at 5, with label counts from the estimator's training rows."""
    learner = estimator[-1]
    inverse = JainPropensity().inverse(learner.label_counts_, learner.n_rows_)
    top = learner.predict_topk(estimator[:-1].transform(X), 5)
    return evaluate(top, y, inverse_propensity=inverse, ks=(5,))["PSP@5"]


data = datasets.load("debian-tags:train")
size = int(os.environ.get("LONGTAIL_EXAMPLE_ROWS", "5000"))  # fewer in tests
rows = np.random.default_rng(0).permutation(data.n_rows)[:size]
texts, Y = np.array(data.texts, object)[rows], data.Y[rows]

pipeline = make_pipeline(TfidfVectorizer(sublinear_tf=True, min_df=2), OneVsRest())
grid = {"onevsrest__weighting": [None, "pw", "pw-cb"], "onevsrest__C": [0.5, 1.0]}
search = GridSearchCV(pipeline, grid, scoring=psp_at_5, cv=3).fit(texts, Y)
print(search.best_params_, round(search.best_score_, 2))
