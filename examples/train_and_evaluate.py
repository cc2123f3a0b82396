"""Train a tagger on bundled data, evaluate it, also by label frequency, save it, and predict."""

from __future__ import annotations

import os

from longtail import Model, TextLearner, datasets, load, recipe
from longtail.metrics import by_frequency

train, test = datasets.load("debian-tags", "train"), datasets.load("debian-tags", "test")
rows = int(os.environ.get("LONGTAIL_EXAMPLE_ROWS", train.n_rows))  # fewer in tests
train = train.take(range(rows))

learner = TextLearner(learner=recipe("pw-cb-dismec"))
learner.fit(train.texts, train.Y)
model = Model(learner, label_names=train.label_names, recipe="pw-cb-dismec")

print(model.evaluate(test))
print(by_frequency(model.predict_topk(test.texts, 5), test.Y, model.label_counts, ks=[5]))

model.save("tagger")
for name, score in load("tagger").predict_names(["A small tiling window manager for X, written in C."], k=3)[0]:
    print(f"{score:+.3f}  {name}")
