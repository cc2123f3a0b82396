"""Compare two models on the same test rows: bootstrap intervals and a paired permutation test."""

from __future__ import annotations

import os

from longtail import JainPropensity, Tfidf, datasets, recipe
from longtail.metrics import bootstrap, compare

train, test = datasets.load("debian-tags", "train"), datasets.load("debian-tags", "test")
rows = int(os.environ.get("LONGTAIL_EXAMPLE_ROWS", train.n_rows))  # fewer in tests
train = train.take(range(rows))

features = Tfidf()
X, X_test = features.fit_transform(train.texts), features.transform(test.texts)
inverse = JainPropensity().inverse(train.label_counts, train.n_rows)

dismec = recipe("dismec").fit(X, train.Y).predict_topk(X_test, 5)
tree = recipe("longtail-tree").fit(X, train.Y).predict_topk(X_test, 5)

intervals = bootstrap(dismec, test.Y, inverse_propensity=inverse)
for metric in ("P@1", "PSP@5", "C@5"):
    interval = intervals[metric]
    print(f"dismec {metric}: {interval.value:.2f} (95 % interval {interval.low:.2f} to {interval.high:.2f})")
print(compare(dismec, tree, test.Y, inverse_propensity=inverse, metrics=["P@1", "P@5", "PSP@5"]))
