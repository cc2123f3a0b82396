"""From your own texts to a model: write JSONL, read it, split, train, evaluate, explain."""

from __future__ import annotations

import json
from pathlib import Path

from longtail import Model, TextLearner, Tfidf, recipe
from longtail.data import iterative_split, load

FILMS = [
    ("A ship sinks in the Atlantic and two lovers are parted.", ["drama", "ships"]),
    ("Two lovers meet in Paris.", ["drama", "romance"]),
    ("A captain hunts a whale with his ship.", ["ships"]),
    ("A detective finds two letters in Paris.", ["crime"]),
    ("A detective hunts a captain.", ["crime", "ships"]),
    ("Two lovers find a letter on a ship.", ["romance", "ships"]),
    ("A thief meets a detective.", ["crime", "drama"]),
    ("Lovers part in the rain.", ["drama", "romance"]),
]

path = Path("films.jsonl")
with path.open("w", encoding="utf-8") as out:
    for text, labels in FILMS:
        out.write(json.dumps({"text": text, "labels": labels}) + "\n")

films = load(path)
print(films)
train, held_out = iterative_split(films, test_size=0.25, random_state=0)

learner = TextLearner(features=Tfidf(min_df=1), learner=recipe("dismec", C=10))
learner.fit(train.texts, train.Y)
model = Model(learner, label_names=films.label_names, recipe="dismec")
print(model.evaluate(held_out, ks=[1]))
for explanation in model.explain("A captain looks for his ship.", k=2):
    print(explanation.name, round(explanation.score, 3), explanation.parts[:3])
