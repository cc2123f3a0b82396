"""The search: optuna proposes recipes and parameters, which are trained and evaluated on validation splits."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from longtail.config import config_context, thread_count
from longtail.data.dataset import Dataset
from longtail.data.splits import iterative_rows
from longtail.errors import Interrupted
from longtail.kernels.types import Flags, Float64, Int64
from longtail.metrics import evaluate
from longtail.propensity import JainPropensity
from longtail.recipes.compose import is_network, plan_of
from longtail.runtime.pool import StopFlag, run_blocks
from longtail.runtime.signals import Stopping, stoppable_by
from longtail.runtime.task import RemoteTask, current_engine, inheriting
from longtail.tuning.front import Point
from longtail.tuning.space import TAILS, has_dial, space_of

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

_FOLDED_BELOW = 20_000  # rows; larger data sets are split once
_FOLDS = 5
_MOST_REPEATS = 100  # repeated proposals in a row before the search ends
_PATIENCE = 0.2  # seconds between checks whether the first trial has ended
_QUARTER = 4  # a quarter of the rows is tried first, with a single split
_MARGINS = {True: 1.5, False: 4.0}  # lag that prunes a trial, after one fold of several or a quarter of the rows


@dataclass(frozen=True)
class Split:
    """Training and validation rows, as features or texts, with their labels and inverse propensities."""

    X: Any
    Y: sp.csr_array
    X_test: Any
    Y_test: sp.csr_array
    inverse: Float64


@dataclass(frozen=True, eq=False)
class TrialScorer:
    """Trains on a split and evaluates on its validation rows, here or on a cluster."""

    split: Split
    label_names: list[str] | None
    objectives: Sequence[str]
    propensity: JainPropensity
    random_state: int

    def scored(self, trial: tuple[str, dict[str, Any], Sequence[float], int], stop: StopFlag) -> tuple[Float64, float]:
        """Return the scores of a recipe at each position of the dial, and the seconds of its training.

        `trial` is recipe, settings, positions of the dial, and n to train on every n-th row only.
        """
        (recipe, settings, tails, part), split = trial, self.split
        plan = plan_of(recipe, settings, self.propensity, random_state=self.random_state, label_names=self.label_names)
        learner: Any = plan if isinstance(split.X, list) else plan.learner
        learner._data_propensity = self.propensity  # as in a saved model, for the dial
        some = np.arange(0, split.Y.shape[0], part)
        X = [split.X[row] for row in some] if isinstance(split.X, list) else split.X[some]
        start = time.perf_counter()
        learner.fit(X, split.Y[some])
        seconds = time.perf_counter() - start
        cutoffs = tuple(sorted({int(name.partition("@")[2]) for name in self.objectives}))
        rows = []
        for tail in tails:
            top = learner.predict_topk(split.X_test, cutoffs[-1], tail=tail or None)
            found = evaluate(top, split.Y_test, ks=cutoffs, inverse_propensity=split.inverse)
            rows.append([found[name] for name in self.objectives])
        return np.array(rows), seconds


@dataclass
class SearchResult:
    """Results of a search so far, with its numbers of completed, pruned and failed trials."""

    points: list[Point] = field(default_factory=list)  # completed trials, at every position of the dial
    trained: int = 0
    pruned: int = 0
    failed: int = 0
    reasons: dict[str, str] = field(default_factory=dict)  # errors by recipe
    is_stopped: bool = False  # Ctrl-C or SIGTERM ended it early


@dataclass
class Search:
    """A search over recipes and their parameters.

    Parameters
    ----------
    dataset : Dataset
        Training rows, which are also split for validation.
    recipes : sequence of str
    objectives : sequence of str
        Two metrics of `evaluate`, the plain one first.
    budget : float
        Time in seconds.
    propensity : JainPropensity
    folds : int, optional
        Folds of the cross-validation; by default five below 20,000 rows, else 1: a single split.
    validation_fraction : float
        Share of validation rows of the single split, which is stratified by label, as folds are.
    n_jobs : int
        Number of parallel trials; each has a share of the threads, or one core of a cluster.
    random_state : int
    """

    dataset: Dataset
    recipes: Sequence[str]
    objectives: Sequence[str]
    budget: float
    propensity: JainPropensity
    folds: int | None = None
    validation_fraction: float = 0.2
    n_jobs: int = 1
    random_state: int = 0
    found: SearchResult = field(default_factory=SearchResult)

    def __post_init__(self) -> None:
        self.n_folds = self.folds or (_FOLDS if self.dataset.n_rows < _FOLDED_BELOW else 1)
        self._splits: dict[int, Split] = {}
        self._scorers: dict[int, TrialScorer] = {}  # by the identity of their splits
        self._first_scores: list[tuple[tuple[float, ...], ...]] = []  # of each trained trial, by position of the dial
        self._tried: set[tuple[str, str]] = set()
        self._repeats = 0
        self._broken: set[str] = set()  # recipes that fail with their own parameters
        self._fold_of: Int64 | None = None
        self._lock = threading.Lock()
        self._deadline = 0.0
        self._stopping = Stopping()

    def run(self, on_result: Callable[[SearchResult], None] | None = None) -> SearchResult:
        """Search until the budget is used up, and then stop the running trials.

        At least one trial is completed, however long it takes. After Ctrl-C the completed trials are returned; without
        any, an `Interrupted` is raised.
        """
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._deadline = time.monotonic() + self.budget
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=self.random_state, multivariate=True, group=True, constant_liar=self.n_jobs > 1
            )
        study = optuna.create_study(directions=["maximize"] * len(self.objectives), sampler=sampler)
        for recipe in self.recipes:
            own = {part.key(recipe): part.own(recipe) for part in space_of(recipe)}
            study.enqueue_trial({"recipe": recipe, **own}, skip_if_exists=True)

        def after(study: Study, trial: FrozenTrial) -> None:
            with self._lock:
                if on_result is not None:
                    on_result(self.found)
                nothing_left = self._repeats > _MOST_REPEATS or len(self._broken) == len(self.recipes)
            if nothing_left or self._is_over:
                study.stop()

        with stoppable_by(self._stopping):
            trial = inheriting(self._trial)
        try:
            self._in_background(
                lambda: study.optimize(trial, timeout=self.budget, n_jobs=self.n_jobs, callbacks=[after])
            )
        except KeyboardInterrupt:
            if not self.found.points:
                raise
            self.found.is_stopped = True
        return self.found

    def _in_background(self, work: Callable[[], None]) -> None:
        """Run work in another thread, so that this one, which gets the signals, can stop it."""
        errors: list[BaseException] = []
        ended = threading.Event()

        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                errors.append(error)
            finally:
                ended.set()

        thread = threading.Thread(target=guarded, name="longtail search", daemon=True)
        try:
            thread.start()
            while not ended.wait(max(self._deadline - time.monotonic(), _PATIENCE)) and not self._is_over:
                pass
            is_late = not ended.is_set()
            if is_late:
                self._stopping.ask()
                ended.wait()
        except KeyboardInterrupt:
            self._stopping.ask()
            if thread.ident is not None:
                ended.wait()
            raise
        for error in errors:
            if not (is_late and isinstance(error, KeyboardInterrupt)):
                raise error

    @property
    def _is_over(self) -> bool:
        """Whether the budget is used up and a trial has been completed."""
        return time.monotonic() >= self._deadline and bool(self.found.points)

    def _trial(self, trial: Trial) -> tuple[float, ...]:
        import optuna

        recipe = trial.suggest_categorical("recipe", list(self.recipes))
        suggested = {part: part.suggest(trial, recipe) for part in space_of(recipe)}
        settings = {part.name: value for part, value in suggested.items() if value != part.own(recipe)}
        with self._lock:
            is_new = (recipe, str(settings)) not in self._tried and recipe not in self._broken
            self._tried.add((recipe, str(settings)))
            self._repeats = 0 if is_new else self._repeats + 1
        if not is_new or self._is_over:
            raise optuna.TrialPruned
        try:
            return self._evaluated(recipe, settings)
        except _PrunedError:
            with self._lock:
                self.found.pruned += 1
        except KeyboardInterrupt:
            self._stopping.ask()  # the other trials too
            raise
        except Exception as error:  # a failed trial doesn't end the search
            if self._stopping.is_asked:  # the reason of the failure
                raise Interrupted("Stopped.") from None
            with self._lock:
                self.found.failed += 1
                self.found.reasons.setdefault(recipe, str(error) or type(error).__name__)
                self._broken |= set() if settings else {recipe}
        raise optuna.TrialPruned

    def _evaluated(self, recipe: str, settings: dict[str, Any]) -> tuple[float, ...]:
        tails = (0.0,) if has_dial(recipe) else TAILS
        scores: list[Float64] = []
        seconds: list[float] = []
        first: Float64 = np.empty((0, 0))
        if self.n_folds == 1:
            first, took = self._scored(recipe, settings, self.split(0), tails, _QUARTER)
            self._prune(first, _QUARTER * took)
        for number in range(self.n_folds):
            found, took = self._scored(recipe, settings, self.split(number), tails, 1)
            scores.append(found)
            seconds.append(took)
            if number == 0 and self.n_folds > 1:
                first = found
                self._prune(found, took * (self.n_folds - 1))
        mean = np.mean(scores, axis=0)
        took = float(np.mean(seconds))
        points = [
            Point(recipe, settings, tail, tuple(round(float(value), 4) for value in row), round(took, 3))
            for tail, row in zip(tails, mean, strict=True)
        ]
        with self._lock:
            self._first_scores.append(tuple(tuple(row) for row in first.tolist()))
            self.found.points += points
            self.found.trained += 1
            bests = [max(point.scores[at] for point in self.found.points) for at in range(len(self.objectives))]
        best = max(points, key=lambda point: sum(s / max(b, 1e-9) for s, b in zip(point.scores, bests, strict=True)))
        return best.scores

    def _prune(self, first: Float64, left: float) -> None:
        """Prune a trial that is far behind another one at all positions of the dial, or can't end in time.

        The first trial is not limited in time.
        """
        margin = _MARGINS[self.n_folds > 1]
        with self._lock:
            known = [row for trial in self._first_scores for row in trial]
        behind = all(any(all(b > o + margin for b, o in zip(k, own, strict=True)) for k in known) for own in first)
        if behind or (known and time.monotonic() + left > self._deadline):
            raise _PrunedError

    def _scored(
        self, recipe: str, settings: dict[str, Any], split: Split, tails: Sequence[float], part: int
    ) -> tuple[Float64, float]:
        """Return the scores at each position of the dial and the seconds after training on every `part`-th row."""
        if self._stopping.is_asked:
            raise Interrupted("Stopped.")
        with self._lock:
            scorer = self._scorers.get(id(split))
            if scorer is None:
                names, measures = self.dataset.label_names, list(self.objectives)
                scorer = self._scorers[id(split)] = TrialScorer(
                    split, names, measures, self.propensity, self.random_state
                )
        trial = (recipe, settings, tuple(tails), part)
        if current_engine() is None:
            with config_context(n_jobs=max(thread_count() // self.n_jobs, 1)):
                return scorer.scored(trial, np.zeros(1, np.uint8))
        found: tuple[Float64, float]
        (found,) = run_blocks(RemoteTask(scorer, "scored"), [trial], description="searching", unit="trials")
        return found

    def split(self, number: int) -> Split:
        """Return a split, cached; features of texts are fitted on the training rows alone."""
        with self._lock:
            if number not in self._splits:
                self._splits[number] = self._make_split(number)
            return self._splits[number]

    def _make_split(self, number: int) -> Split:
        in_test = self._in_test(number)
        train, test = self.dataset.take(~in_test), self.dataset.take(in_test)
        inverse = self.propensity.inverse(train.label_counts, train.n_rows)
        if train.X is not None:
            return Split(train.X, train.Y, test.X, test.Y, inverse)
        texts, test_texts = list(train.texts or ()), list(test.texts or ())
        if any(map(is_network, self.recipes)):
            return Split(texts, train.Y, test_texts, test.Y, inverse)
        from longtail.features import Tfidf

        features = Tfidf()
        X = features.fit_transform(texts)
        return Split(X, train.Y, features.transform(test_texts), test.Y, inverse)

    def _in_test(self, number: int) -> Flags:
        """Return the validation rows of split `number`: a share of all, or one of the folds."""
        if self.n_folds == 1:
            return iterative_rows(self.dataset, test_size=self.validation_fraction, random_state=self.random_state)
        if self._fold_of is None:
            self._fold_of = np.full(self.dataset.n_rows, self.n_folds - 1)
            left = np.arange(self.dataset.n_rows)
            for fold in range(self.n_folds - 1):
                share = 1 / (self.n_folds - fold)
                chosen = iterative_rows(self.dataset.take(left), test_size=share, random_state=self.random_state)
                self._fold_of[left[chosen]] = fold
                left = left[~chosen]
        return np.asarray(self._fold_of == number)


class _PrunedError(Exception):
    """A trial that is pruned."""
