"""Small data and models for the tests of the report."""

import numpy as np

from longtail import Dataset, Model, TextLearner, Tfidf, recipe

N_LABELS, RESAMPLES = 40, 50
NAMES = ["<b>bold & brash</b>", 'quoted "name"', "$x$ and $y$", *(f"subject {label}" for label in range(3, N_LABELS))]
METRICS = {"plain-scores": ("P", "nDCG", "R"), "tail-scores": ("PSP", "PSnDCG", "C")}


def make_data(rows, seed, *, extra=()):
    """Texts that hold a word of their own for each of their labels, and labels that get rarer and rarer."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, N_LABELS + 1)
    texts, Y = [], np.zeros((rows, N_LABELS + len(extra)), np.int8)
    for row in range(rows):
        labels = rng.choice(N_LABELS, rng.integers(1, 5), replace=False, p=weights / weights.sum())
        noise = [f"noise{word}" for word in rng.integers(0, 60, 6)]
        shown = [f"word{label}" for label in labels if rng.random() < 0.8]
        texts.append(" ".join([*shown, *noise]))
        Y[row, labels] = 1
    if extra:
        Y[:3, N_LABELS:] = 1
    return Dataset(None, Y, label_names=[*NAMES, *extra], texts=texts)


def train(learner, data, path, **options):
    learner.fit(data.X if data.texts is None else data.texts, data.Y)
    Model(learner, label_names=data.label_names, **options).save(path)


def texts_learner(name, **params):
    return TextLearner(features=Tfidf(min_df=1), learner=recipe(name, **params))
