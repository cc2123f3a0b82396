"""The search: optuna proposes recipes and parameters, each is trained on some splits and scored on what they leave."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import clone

from longtail.app.plans import plan_of
from longtail.app.tuning.front import Point
from longtail.app.tuning.space import TAILS, has_dial, space_of
from longtail.corpus.dataset import Dataset
from longtail.corpus.splits import iterative_rows
from longtail.engine.pool import StopFlag, run_blocks
from longtail.engine.portable import Portable, current_engine, inheriting
from longtail.engine.stopping import Stopping, inside_of
from longtail.errors import Interrupted
from longtail.metrics import evaluate
from longtail.propensity import JainPropensity

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

_FOLDED_BELOW = 20_000  # rows; more are split once
_FOLDS = 5
_MOST_REPEATS = 100  # proposals in a row that were tried already: there is nothing left to try
_PATIENCE = 0.2  # seconds between looks at whether a first trial has ended
_QUARTER = 4  # of the rows are looked at first, where there is one split
_MARGINS = {
    True: 1.5,
    False: 4.0,
}  # how far behind is hopeless, after one split of several, after a quarter of the rows


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows to judge by, as features or texts, with their labels and inverse propensities."""

    X: Any
    Y: sp.csr_array
    X_test: Any
    Y_test: sp.csr_array
    inverse: npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Judge:
    """Trains on a split and scores on what it leaves, here or wherever it is sent to.

    Parameters
    ----------
    split : Split
    label_names : list of str, optional
    objectives : sequence of str
    propensity : JainPropensity
    threads : int
        Of a training.
    seed : int
    """

    split: Split
    label_names: list[str] | None
    objectives: Sequence[str]
    propensity: JainPropensity
    threads: int
    seed: int

    def scored(
        self, trial: tuple[str, dict[str, Any], Sequence[float], int], stop: StopFlag
    ) -> tuple[npt.NDArray[np.float64], float]:
        """Scores of a recipe with some settings at each position of the dial, and the seconds of its training.

        The last part of `trial` is how many parts the rows are cut into, one of which is trained on.
        """
        (recipe, settings, tails, part), split = trial, self.split
        plan = plan_of(
            recipe, settings, self.propensity, threads=self.threads, seed=self.seed, label_names=self.label_names
        )
        learner: Any = plan if isinstance(split.X, list) else clone(plan.learner)
        learner._data_propensity = self.propensity  # the dial of a model reckons with it too
        some = np.arange(0, split.Y.shape[0], part)
        X = [split.X[row] for row in some] if isinstance(split.X, list) else split.X[some]
        start = time.perf_counter()
        learner.fit(X, split.Y[some])
        seconds = time.perf_counter() - start
        k = max(int(name.partition("@")[2] or 5) for name in self.objectives)
        rows = []
        for tail in tails:
            top = learner.predict_topk(split.X_test, k, tail=tail or None)
            found = evaluate(top, split.Y_test, ks=_places(self.objectives), inverse_propensity=split.inverse)
            rows.append([found[name] for name in self.objectives])
        return np.array(rows), seconds


@dataclass
class Found:
    """What a search has found so far.

    Parameters
    ----------
    points : list of Point
        All that was trained to the end, at every position of the dial.
    trained, pruned, failed : int
        Trials that were trained to the end, given up early, and that failed.
    reasons : dict of str to str
        Why a recipe failed, by recipe.
    is_stopped : bool
        Whether Ctrl-C or SIGTERM ended it early.
    """

    points: list[Point] = field(default_factory=list)
    trained: int = 0
    pruned: int = 0
    failed: int = 0
    reasons: dict[str, str] = field(default_factory=dict)
    is_stopped: bool = False


@dataclass
class Search:
    """A search over recipes and their parameters.

    Parameters
    ----------
    dataset : Dataset
        Training rows; nothing else is looked at.
    recipes : sequence of str
    objectives : sequence of str
        Metrics of `evaluate`, the plain one first.
    budget : float
        Seconds.
    propensity : JainPropensity
    folds : int, optional
        Folds of a cross-validation; five below 20,000 rows when left out, and from there on 1: one split.
    test_share : float
        Share of the rows that the one split judges by; rare labels are on both sides, as in folds.
    jobs : int
        Trials at once; each has ``threads // jobs`` threads, or one core of a cluster.
    threads : int
    seed : int
    """

    dataset: Dataset
    recipes: Sequence[str]
    objectives: Sequence[str]
    budget: float
    propensity: JainPropensity
    folds: int | None = None
    test_share: float = 0.2
    jobs: int = 1
    threads: int = 1
    seed: int = 0
    found: Found = field(default_factory=Found)

    def __post_init__(self) -> None:
        self.n_folds = self.folds or (_FOLDS if self.dataset.n_rows < _FOLDED_BELOW else 1)
        self._splits: dict[int, Split] = {}
        self._judges: dict[int, Judge] = {}  # by the identity of their splits
        self._first_scores: list[tuple[tuple[float, ...], ...]] = []  # of each trained trial, by position of the dial
        self._tried: set[tuple[str, str]] = set()
        self._repeats = 0
        self._broken: set[str] = set()  # recipes that fail with their own parameters
        self._fold_of: npt.NDArray[np.int64] | None = None
        self._lock = threading.Lock()
        self._deadline = 0.0
        self._stopping = Stopping()

    def run(self, told: Callable[[Found], None] | None = None) -> Found:
        """Search until the time is over, and stop what is being trained then, as Ctrl-C does.

        One trial is trained to its end in any case, however long it takes. What was trained to the end before a Ctrl-C
        is given; an `Interrupted` is raised where there is nothing.
        """
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._deadline = time.monotonic() + self.budget
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=self.seed, multivariate=True, group=True, constant_liar=self.jobs > 1
            )
        study = optuna.create_study(directions=["maximize"] * len(self.objectives), sampler=sampler)
        for recipe in self.recipes:
            own = {part.key(recipe): part.own(recipe) for part in space_of(recipe)}
            study.enqueue_trial({"recipe": recipe, **own}, skip_if_exists=True)

        def after(study: Study, trial: FrozenTrial) -> None:
            with self._lock:
                if told is not None:
                    told(self.found)
                nothing_left = self._repeats > _MOST_REPEATS or len(self._broken) == len(self.recipes)
            if nothing_left or self._is_over:
                study.stop()

        with inside_of(self._stopping):
            trial = inheriting(self._trial)
        try:
            self._beside(lambda: study.optimize(trial, timeout=self.budget, n_jobs=self.jobs, callbacks=[after]))
        except KeyboardInterrupt:
            if not self.found.points:
                raise
            self.found.is_stopped = True
        return self.found

    def _beside(self, work: Callable[[], None]) -> None:
        """Do something in another thread: this one, which signals come to, is free to stop what is being trained."""
        errors: list[BaseException] = []
        ended = threading.Event()

        def told() -> None:
            try:
                work()
            except BaseException as error:
                errors.append(error)
            finally:
                ended.set()

        beside = threading.Thread(target=told, name="longtail search", daemon=True)
        try:
            beside.start()
            while not ended.wait(max(self._deadline - time.monotonic(), _PATIENCE)) and not self._is_over:
                pass
            is_late = not ended.is_set()
            if is_late:
                self._stopping.ask()
                ended.wait()
        except KeyboardInterrupt:
            self._stopping.ask()
            if beside.ident is not None:
                ended.wait()
            raise
        for error in errors:
            if not (is_late and isinstance(error, KeyboardInterrupt)):
                raise error

    @property
    def _is_over(self) -> bool:
        """Whether the time is over, and there is something to give."""
        return time.monotonic() >= self._deadline and bool(self.found.points)

    def _trial(self, trial: Trial) -> tuple[float, ...]:
        import optuna

        recipe = trial.suggest_categorical("recipe", list(self.recipes))
        drawn = {part: part.draw(trial, recipe) for part in space_of(recipe)}
        settings = {part.name: value for part, value in drawn.items() if value != part.own(recipe)}
        with self._lock:
            is_new = (recipe, str(settings)) not in self._tried and recipe not in self._broken
            self._tried.add((recipe, str(settings)))
            self._repeats = 0 if is_new else self._repeats + 1
        if not is_new or self._is_over:
            raise optuna.TrialPruned
        try:
            return self._judged(recipe, settings)
        except _HopelessError:
            with self._lock:
                self.found.pruned += 1
        except KeyboardInterrupt:
            self._stopping.ask()  # the trials beside it too
            raise
        except Exception as error:  # one trial that fails doesn't end the search, whatever it fails by
            if self._stopping.is_asked:  # which is why it failed
                raise Interrupted("Stopped.") from None
            with self._lock:
                self.found.failed += 1
                self.found.reasons.setdefault(recipe, str(error) or type(error).__name__)
                self._broken |= set() if settings else {recipe}
        raise optuna.TrialPruned

    def _judged(self, recipe: str, settings: dict[str, Any]) -> tuple[float, ...]:
        tails = (0.0,) if has_dial(recipe) else TAILS
        scores: list[npt.NDArray[np.float64]] = []
        seconds: list[float] = []
        first: npt.NDArray[np.float64] = np.empty((0, 0))
        if self.n_folds == 1:
            first, took = self._scored(recipe, settings, self.split(0), tails, _QUARTER)
            self._give_up_hopeless(first, _QUARTER * took)
        for number in range(self.n_folds):
            found, took = self._scored(recipe, settings, self.split(number), tails, 1)
            scores.append(found)
            seconds.append(took)
            if number == 0 and self.n_folds > 1:
                first = found
                self._give_up_hopeless(found, took * (self.n_folds - 1))
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

    def _give_up_hopeless(self, first: npt.NDArray[np.float64], left: float) -> None:
        """Give up what is far behind some trained trial at all positions of the dial, or can't end in time.

        Where no trial has ended yet, there is no time to keep.
        """
        margin = _MARGINS[self.n_folds > 1]
        with self._lock:
            known = [row for trial in self._first_scores for row in trial]
        behind = all(any(all(b > o + margin for b, o in zip(k, own, strict=True)) for k in known) for own in first)
        if behind or (known and time.monotonic() + left > self._deadline):
            raise _HopelessError

    def _scored(
        self, recipe: str, settings: dict[str, Any], split: Split, tails: Sequence[float], part: int
    ) -> tuple[npt.NDArray[np.float64], float]:
        """Scores at each position of the dial after training on one of `part` parts of the rows, and its seconds."""
        if self._stopping.is_asked:
            raise Interrupted("Stopped.")
        with self._lock:
            judge = self._judges.get(id(split))
            if judge is None:
                threads = 1 if current_engine() is not None else max(self.threads // self.jobs, 1)
                names, measures = self.dataset.label_names, list(self.objectives)
                judge = self._judges[id(split)] = Judge(split, names, measures, self.propensity, threads, self.seed)
        trial = (recipe, settings, tuple(tails), part)
        if current_engine() is None:
            return judge.scored(trial, np.zeros(1, np.uint8))
        found: tuple[npt.NDArray[np.float64], float]
        (found,) = run_blocks(Portable(judge, "scored"), [trial], description="searching", unit="trials")
        return found

    def split(self, number: int) -> Split:
        """A split, made at the first call; texts become features by the training rows alone."""
        with self._lock:
            if number not in self._splits:
                self._splits[number] = self._made(number)
            return self._splits[number]

    def _made(self, number: int) -> Split:
        in_test = self._in_test(number)
        train, test = self.dataset.take(~in_test), self.dataset.take(in_test)
        inverse = self.propensity.inverse(train.label_counts, train.n_rows)
        if train.X is not None:
            return Split(train.X, train.Y, test.X, test.Y, inverse)
        texts, judged = list(train.texts or ()), list(test.texts or ())
        if any(_reads_tokens(recipe, self.propensity) for recipe in self.recipes):
            return Split(texts, train.Y, judged, test.Y, inverse)
        from longtail.corpus import Tfidf

        features = Tfidf(threads=self.threads)
        X = features.fit_transform(texts)
        return Split(X, train.Y, features.transform(judged), test.Y, inverse)

    def _in_test(self, number: int) -> npt.NDArray[np.bool_]:
        """Rows that split `number` judges by: a share of all, or one of the folds."""
        if self.n_folds == 1:
            return iterative_rows(self.dataset, test_share=self.test_share, seed=self.seed)
        if self._fold_of is None:
            self._fold_of = np.full(self.dataset.n_rows, self.n_folds - 1)
            left = np.arange(self.dataset.n_rows)
            for fold in range(self.n_folds - 1):
                share = 1 / (self.n_folds - fold)
                chosen = iterative_rows(self.dataset.take(left), test_share=share, seed=self.seed)
                self._fold_of[left[chosen]] = fold
                left = left[~chosen]
        return np.asarray(self._fold_of == number)


class _HopelessError(Exception):
    """A trial that isn't worth its time."""


def _places(objectives: Sequence[str]) -> tuple[int, ...]:
    return tuple(sorted({int(name.partition("@")[2]) for name in objectives}))


def _reads_tokens(recipe: str, propensity: JainPropensity) -> bool:
    """Whether a recipe wants texts rather than tf-idf."""
    from longtail.corpus import Tfidf
    from longtail.recipes import find

    return not isinstance(find(recipe).build(propensity)._default_features(), Tfidf)
