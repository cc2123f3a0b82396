"""What corrections mend where labels are missing: labels of a complete data set are hidden, and what is trained on the
rest is judged by all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.stats import t
from sklearn.base import clone

from longtail.app.plans import inner_recipe, plan_of
from longtail.corpus.dataset import Dataset
from longtail.corpus.masking import mask_labels
from longtail.learners import LabelTree
from longtail.learners.base import nested
from longtail.metrics import by_frequency, evaluate
from longtail.propensity import GivenPropensity, JainPropensity

K = 5
METRICS = (f"P@{K}", "nDCG@3", f"nDCG@{K}", f"tail recall@{K}")
_LEVEL = 0.95


@dataclass(frozen=True)
class Mean:
    """Mean over seeds, and half of its 95 % interval by Student's t; None where there is one seed."""

    value: float
    half: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        """Mean of some values."""
        n, mean = len(values), float(np.mean(values))
        if n < 2:
            return cls(mean, None)
        spread = float(np.std(values, ddof=1)) / n**0.5
        return cls(mean, float(t.ppf((1 + _LEVEL) / 2, n - 1)) * spread)


@dataclass(frozen=True)
class Outcome:
    """A recipe at one severity.

    Parameters
    ----------
    recipe : str
    severity : float or None
        The constant A of the curve by which labels were hidden; None where none were.
    given : float or None
        The constant A of the propensities that the recipe was told; None for none, or the true ones.
    scores : dict of str to Mean
        On all test labels.
    recovered : dict of str to Mean
        Which share of what its base lost by the hidden labels it makes good; empty for a base itself.
    against_base : dict of str to Mean
        Difference to its base, trained on the same labels.
    """

    recipe: str
    severity: float | None
    given: float | None
    scores: dict[str, Mean]
    recovered: dict[str, Mean] = field(default_factory=dict)
    against_base: dict[str, Mean] = field(default_factory=dict)


@dataclass
class MissingStudy:
    """Hide labels of a data set, train on the rest, judge by all.

    Parameters
    ----------
    train, test : Dataset
        Taken as completely labelled, with the same label ids; test may have more of them, which no recipe can know.
    recipes : sequence of str
        Their bases are trained besides.
    severities : sequence of float
        Constants A of the propensity curve; the lower, the more labels are hidden.
    b : float
        Constant B.
    seeds : int
        Maskings, and seeds of training.
    wrong_at : float, optional
        The severity at which recipes are also told the propensities of the other ones; the middle one when left out.
    threads : int, optional
    """

    train: Dataset
    test: Dataset
    recipes: Sequence[str]
    severities: Sequence[float] = (0.1, 0.3, 0.55, 0.9)
    b: float = 1.5
    seeds: int = 3
    wrong_at: float | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        self.bases = list(dict.fromkeys(base_of(recipe) for recipe in self.recipes))
        self.all = list(dict.fromkeys([*self.bases, *self.recipes]))
        self.reference = self.wrong_at if self.wrong_at is not None else self.severities[len(self.severities) // 2]
        self.label_counts = np.pad(self.train.label_counts, (0, max(self.test.n_labels - self.train.n_labels, 0)))
        self._rows: tuple[Any, Any] | None = None
        self._scores: dict[tuple[str, float | None, float | None, int], dict[str, float]] = {}

    @property
    def runs(self) -> list[tuple[str, float | None, float | None, int]]:
        """All that is trained: recipe, severity, what it is told, and seed."""
        found: list[tuple[str, float | None, float | None, int]] = [(base, None, None, 0) for base in self.bases]
        for seed in range(self.seeds):
            for severity in self.severities:
                for recipe in self.all:
                    if recipe in self.bases:
                        found.append((recipe, severity, None, seed))
                        continue
                    told = self.severities if severity == self.reference else (severity,)
                    found += [(recipe, severity, given, seed) for given in told]
        return found

    def kept(self, severity: float) -> float:
        """Share of the training labels that a severity leaves, on average."""
        return float(self.propensities(severity)[self.train.Y.indices].mean())

    def propensities(self, a: float) -> npt.NDArray[np.float64]:
        """Probability with which each label is kept, by its rows in the complete data."""
        return JainPropensity(a=a, b=self.b).propensities(self.train.label_counts, self.train.n_rows)

    def run(self, told: Callable[[int, str], None] | None = None) -> list[Outcome]:
        """Train everything; `told` hears of each run that is done."""
        for number, run in enumerate(self.runs):
            self._scores[run] = self._scored(*run)
            if told is not None:
                recipe, severity, _, seed = run
                hidden = "nothing hidden" if severity is None else f"A = {severity:g}, seed {seed}"
                told(number, f"{recipe}, {hidden}: nDCG@{K} {self._scores[run][f'nDCG@{K}']:.2f}")
        return self.outcomes()

    def outcomes(self) -> list[Outcome]:
        """Means over the seeds, differences taken seed by seed."""
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
            Y = mask_labels(Y, self.propensities(severity), seed=seed).observed
        plan = self._plan(recipe, given, seed)
        X, X_test = self._features(plan)
        learner: Any = clone(plan.learner) if sp.issparse(X) else plan
        top = learner.fit(X, Y).predict_topk(X_test, K)
        found = evaluate(top, self.test.Y, ks=(3, K))
        parts = by_frequency(top, self.test.Y, self.label_counts, ks=(K,))
        tail = next(part for part in parts if part.name == "tail")
        return {**{metric: found[metric] for metric in METRICS[:-1]}, METRICS[-1]: tail.scores[f"recall@{K}"]}

    def _plan(self, recipe: str, given: float | None, seed: int) -> Any:
        """A recipe that was told the propensities of each label; label trees, whose nodes need them too, the curve."""
        more = {"threads": self.threads, "seed": seed, "label_names": self.train.label_names}
        curve = JainPropensity() if given is None else JainPropensity(a=given, b=self.b)
        plan = plan_of(recipe, {}, curve, **more)  # type: ignore[arg-type]
        if given is None or any(isinstance(part, LabelTree) for _, part in nested(plan)):
            return plan
        return plan_of(recipe, {}, GivenPropensity(values=self.propensities(given)), **more)  # type: ignore[arg-type]

    def _features(self, plan: Any) -> tuple[Any, Any]:
        """Rows as the data set has them, or as tf-idf of its texts, made once; texts for what reads tokens."""
        if self.train.X is not None:
            return self.train.X, self.test.X
        from longtail.corpus import Tfidf

        if not isinstance(plan.features, Tfidf):
            return list(self.train.texts or ()), list(self.test.texts or ())
        if self._rows is None:
            features = clone(plan.features)
            self._rows = (
                features.fit_transform(list(self.train.texts or ())),
                features.transform(list(self.test.texts or ())),
            )
        return self._rows


def base_of(recipe: str) -> str:
    """The recipe without the correction.

    Examples
    --------
    >>> [base_of(name) for name in ("pw-cb-dismec", "pfastrexml", "ips+bonsai", "dismec", "glas+ranknet")]
    ['dismec', 'fastxml', 'bonsai', 'dismec', 'glas']
    """
    plain = inner_recipe(recipe).removeprefix("pw-cb-").removeprefix("pw-")
    return {"pfastxml": "fastxml", "pfastrexml": "fastxml", "longtail-tail": "dismec"}.get(plain, plain)
