"""The study of missing labels: hide labels of a complete data set, train on the rest, and evaluate on all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.stats import t
from sklearn.base import clone

from longtail.data.dataset import Dataset
from longtail.data.masking import mask_labels
from longtail.kernels.types import Float64
from longtail.learners import LabelTree
from longtail.metrics import by_frequency, evaluate
from longtail.propensity import GivenPropensity, JainPropensity
from longtail.recipes.compose import base_recipe, is_network, plan_of

K = 5
METRICS = (f"P@{K}", "nDCG@3", f"nDCG@{K}", f"tail recall@{K}")
_LEVEL = 0.95


@dataclass(frozen=True)
class Mean:
    """Mean over seeds, and half of its 95 % interval by Student's t; None for a single seed."""

    value: float
    half: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        """Return the mean of some values."""
        n, mean = len(values), float(np.mean(values))
        if n < 2:
            return cls(mean, None)
        spread = float(np.std(values, ddof=1)) / n**0.5
        return cls(mean, float(t.ppf((1 + _LEVEL) / 2, n - 1)) * spread)


@dataclass(frozen=True)
class Outcome:
    """Results of a recipe at one severity, by metric; `recovered` and `against_base` are empty for a base."""

    recipe: str
    severity: float | None  # constant A of the propensity curve by which labels are hidden; None if none are
    given: float | None  # constant A of the propensities given to the recipe; None for a base
    scores: dict[str, Mean]  # on all test labels
    recovered: dict[str, Mean] = field(default_factory=dict)  # percentage of its base's loss due to hidden labels
    against_base: dict[str, Mean] = field(default_factory=dict)  # difference to its base, trained on the same labels


@dataclass
class MissingStudy:
    """Hide labels of a data set, train on the rest, evaluate on all.

    Parameters
    ----------
    train, test : Dataset
        Assumed to be completely labelled, with the same label ids; test may have additional labels.
    recipes : sequence of str
        Recipes with a correction; their bases are trained too.
    severities : sequence of float
        Constants A of the propensity curve.
    b : float
        Constant B.
    seeds : int
        Number of maskings and training seeds.
    wrong_at : float, optional
        Severity at which recipes also get the propensities of the others; the middle one by default.
    """

    train: Dataset
    test: Dataset
    recipes: Sequence[str]
    severities: Sequence[float] = (0.1, 0.3, 0.55, 0.9)
    b: float = 1.5
    seeds: int = 3
    wrong_at: float | None = None

    def __post_init__(self) -> None:
        self.bases = list(dict.fromkeys(base_of(recipe) for recipe in self.recipes))
        self.all = list(dict.fromkeys([*self.bases, *self.recipes]))
        self.reference = self.wrong_at if self.wrong_at is not None else self.severities[len(self.severities) // 2]
        self.label_counts = np.pad(self.train.label_counts, (0, max(self.test.n_labels - self.train.n_labels, 0)))
        self._rows: tuple[Any, Any] | None = None
        self._scores: dict[tuple[str, float | None, float | None, int], dict[str, float]] = {}

    @property
    def runs(self) -> list[tuple[str, float | None, float | None, int]]:
        """All runs: recipe, severity, constant A of the given propensities, and seed."""
        found: list[tuple[str, float | None, float | None, int]] = [(base, None, None, 0) for base in self.bases]
        for seed in range(self.seeds):
            for severity in self.severities:
                for recipe in self.all:
                    if recipe in self.bases:
                        found.append((recipe, severity, None, seed))
                        continue
                    severities = self.severities if severity == self.reference else (severity,)
                    found += [(recipe, severity, given, seed) for given in severities]
        return found

    def kept(self, severity: float) -> float:
        """Return the expected share of the training labels that a severity keeps."""
        return float(self.propensities(severity)[self.train.Y.indices].mean())

    def propensities(self, a: float) -> Float64:
        """Return the probability that each label is kept, by its rows in the complete data."""
        return JainPropensity(a=a, b=self.b).propensities(self.train.label_counts, self.train.n_rows)

    def run(self, report: Callable[[int, str], None] | None = None) -> list[Outcome]:
        """Run everything; `report` is called after each run."""
        for number, run in enumerate(self.runs):
            self._scores[run] = self._scored(*run)
            if report is not None:
                recipe, severity, _, seed = run
                hidden = "nothing hidden" if severity is None else f"A = {severity:g}, seed {seed}"
                report(number, f"{recipe}, {hidden}: nDCG@{K} {self._scores[run][f'nDCG@{K}']:.2f}")
        return self.outcomes()

    def outcomes(self) -> list[Outcome]:
        """Return means over the seeds, with differences per seed."""
        found = []
        for recipe, severity, given, _ in dict.fromkeys((*run[:3], 0) for run in self.runs):
            own = self._of(recipe, severity, given)
            scores = {metric: Mean.of([row[metric] for row in own]) for metric in METRICS}
            if severity is None or recipe in self.bases:
                found.append(Outcome(recipe, severity, given, scores))
                continue
            base = self._of(base_of(recipe), severity, None)
            whole = self._of(base_of(recipe), None, None)[0]
            apart, share = {}, {}
            for metric in METRICS:
                gains = [row[metric] - plain[metric] for row, plain in zip(own, base, strict=True)]
                lost = [whole[metric] - plain[metric] for plain in base]
                apart[metric] = Mean.of(gains)
                if np.mean(lost) > 0:
                    share[metric] = Mean.of([100 * gain / float(np.mean(lost)) for gain in gains])
            found.append(Outcome(recipe, severity, given, scores, share, apart))
        return found

    def _of(self, recipe: str, severity: float | None, given: float | None) -> list[dict[str, float]]:
        return [scores for run, scores in self._scores.items() if run[:3] == (recipe, severity, given)]

    def _scored(self, recipe: str, severity: float | None, given: float | None, seed: int) -> dict[str, float]:
        Y: sp.csr_array = self.train.Y
        if severity is not None:
            Y = mask_labels(Y, self.propensities(severity), random_state=seed).observed
        plan = self._plan(recipe, given, seed)
        X, X_test = self._features(plan, recipe)
        learner: Any = plan.learner if sp.issparse(X) else plan
        top = learner.fit(X, Y).predict_topk(X_test, K)
        found = evaluate(top, self.test.Y, ks=(3, K))
        parts = by_frequency(top, self.test.Y, self.label_counts, ks=(K,))
        tail = next(part for part in parts if part.name == "tail")
        return {**{metric: found[metric] for metric in METRICS[:-1]}, METRICS[-1]: tail.scores[f"recall@{K}"]}

    def _plan(self, recipe: str, given: float | None, seed: int) -> Any:
        """Return a recipe with the propensity of each label, or with the curve for label trees, whose nodes need it."""
        more = {"random_state": seed, "label_names": self.train.label_names}
        curve = JainPropensity() if given is None else JainPropensity(a=given, b=self.b)
        plan = plan_of(recipe, {}, curve, **more)  # type: ignore[arg-type]
        if given is None or plan.find(LabelTree, fitted=False) is not None:
            return plan
        return plan_of(recipe, {}, GivenPropensity(values=self.propensities(given)), **more)  # type: ignore[arg-type]

    def _features(self, plan: Any, recipe: str) -> tuple[Any, Any]:
        """Return train and test rows: features, tf-idf of texts (cached), or texts for recipes that read tokens."""
        if self.train.X is not None:
            return self.train.X, self.test.X
        if is_network(recipe):
            return list(self.train.texts or ()), list(self.test.texts or ())
        if self._rows is None:
            features = clone(plan.features)
            self._rows = (
                features.fit_transform(list(self.train.texts or ())),
                features.transform(list(self.test.texts or ())),
            )
        return self._rows


def base_of(recipe: str) -> str:
    """Return the recipe without its correction.

    Examples
    --------
    >>> [base_of(name) for name in ("pw-cb-dismec", "pfastrexml", "ips+bonsai", "dismec", "glas+ranknet")]
    ['dismec', 'fastxml', 'bonsai', 'dismec', 'glas']
    """
    plain = base_recipe(recipe).removeprefix("pw-cb-").removeprefix("pw-")
    return {"pfastxml": "fastxml", "pfastrexml": "fastxml", "longtail-tail": "dismec"}.get(plain, plain)
