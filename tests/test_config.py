"""Settings of a run: what they reach."""

import threading

import numpy as np
import pytest

from longtail import Model, Popularity, config_context, set_config
from longtail.config import get_config, thread_count
from longtail.data import generate
from longtail.errors import ParameterError
from longtail.metrics import bootstrap, bootstrap_by_frequency, compare
from longtail.propensity import estimate_from_hierarchy, estimate_from_substitutes

RANKING, Y = [[0, 1]] * 20, [[1, 0]] * 10 + [[1, 1]] * 10


def test_negative_numbers_of_threads_count_from_all_cores():
    cores = thread_count(-1)
    assert thread_count(-2) == max(cores - 1, 1)
    assert thread_count(-99) == 1
    with pytest.raises(ParameterError, match=r"n_jobs must be .* -2 for all but one"):
        thread_count(0)


def test_other_threads_inherit_set_config_and_not_config_context():
    seen = []

    def look():
        thread = threading.Thread(target=lambda: seen.append(get_config().n_jobs))
        thread.start()
        thread.join()

    with config_context(n_jobs=2):
        look()
    set_config(n_jobs=3)
    try:
        look()
    finally:
        set_config(n_jobs=None)
    assert seen == [None, 3]


def test_set_config_inside_a_context_holds_until_its_end():
    with config_context(n_jobs=2):
        set_config(n_jobs=3)
        assert get_config().n_jobs == 3
    assert get_config().n_jobs is None


def test_a_context_changes_what_it_names_when_it_is_entered():
    context = config_context(n_jobs=2)
    set_config(memory_limit="1GB")
    try:
        with context:
            assert (get_config().n_jobs, get_config().memory_limit) == (2, "1GB")
    finally:
        set_config(memory_limit=None)


@pytest.mark.parametrize(
    "call",
    [
        lambda **how: bootstrap(RANKING, Y, resamples=3, **how),
        lambda **how: bootstrap_by_frequency(RANKING, Y, [20, 10], resamples=3, **how),
        lambda **how: compare(RANKING, RANKING, Y, resamples=3, permutations=3, **how),
        lambda **how: estimate_from_hierarchy(Y, [(1, 0)], min_descendants=1, **how),
        lambda **how: estimate_from_substitutes([[1], [0]], [[0, 1], [1, 0]], **how),
        lambda **how: generate(20, 5, 10, labels_per_row=1, features_per_row=2, **how),
    ],
)
def test_functions_use_their_own_threads(call, monkeypatch):
    used = []

    def spied(n_jobs=None):
        used.append(thread_count(n_jobs))
        return 1

    monkeypatch.setattr("longtail.runtime.pool.thread_count", spied)
    call(n_jobs=3)
    with config_context(n_jobs=2):
        call()
    assert used == [3] * (len(used) // 2) + [2] * (len(used) // 2)
    assert used


def test_rankings_in_shards_keep_the_settings_of_their_call(monkeypatch):
    used, inner = [], Popularity._topk

    def spied(self, *arguments):
        used.append(thread_count())
        return inner(self, *arguments)

    monkeypatch.setattr(Popularity, "_topk", spied)
    model = Model(Popularity().fit(np.eye(3), np.eye(3)))
    with config_context(n_jobs=7):
        tops = model.iter_topk(np.eye(3), 2)
    assert len(next(iter(tops))) == 3
    assert used == [7]
