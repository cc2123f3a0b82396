"""Three ways to find more rare labels: a weighting, the tail dial, and a dial position chosen on held-out rows."""

from __future__ import annotations

import os

from longtail import JainPropensity, TailDial, Tfidf, datasets, evaluate, recipe

train, test = datasets.load("debian-tags", "train"), datasets.load("debian-tags", "test")
rows = int(os.environ.get("LONGTAIL_EXAMPLE_ROWS", train.n_rows))  # fewer in tests
train = train.take(range(rows))

features = Tfidf()
X, X_test = features.fit_transform(train.texts), features.transform(test.texts)
inverse = JainPropensity().inverse(train.label_counts, train.n_rows)

plain = recipe("dismec").fit(X, train.Y)
weighted = recipe("pw-cb-dismec").fit(X, train.Y)
dialled = TailDial(learner=recipe("dismec"), tail="auto").fit(X, train.Y)
rankings = {
    "dismec": plain.predict_topk(X_test, 5),
    "dismec, dial at 0.3": plain.predict_topk(X_test, 5, tail=0.3),
    f"dismec, dial at {dialled.tail_} (auto)": dialled.predict_topk(X_test, 5),
    "pw-cb-dismec": weighted.predict_topk(X_test, 5),
}
for name, top in rankings.items():
    scores = evaluate(top, test.Y, inverse_propensity=inverse)
    print(f"{name:30}", *(f"{metric} {scores[metric]:5.2f}" for metric in ("P@1", "P@5", "PSP@5", "C@5")))
