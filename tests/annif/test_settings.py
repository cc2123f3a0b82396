"""Settings of an Annif project, without Annif: only what the backend imports from it is replaced."""

import importlib
import sys
from types import ModuleType, SimpleNamespace

import pytest

from longtail.config import thread_count
from longtail.learners import OneVsRest

NAMES = {
    "annif": [],
    "annif.backend": [],
    "annif.backend.backend": ["AnnifLearningBackend"],
    "annif.default_config": ["Config", "ProductionConfig"],
    "annif.exception": ["NotInitializedException", "NotSupportedException", "OperationFailedException"],
    "annif.suggestion": ["SuggestionBatch"],
}


class Subjects(list):
    def by_uri(self, uri, warnings=True):
        return next((number for number, one in enumerate(self) if one.uri == uri), None)


@pytest.fixture
def backend(monkeypatch, tmp_path):
    for name, classes in NAMES.items():
        module = ModuleType(name)
        for one in classes:
            base = Exception if one.endswith("Exception") else object
            setattr(module, one, type(one, (base,), {"__init__": lambda self, *arguments, **how: None}))
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["annif"].backend = sys.modules["annif.backend"]
    sys.modules["annif.backend"]._backend_fns = {}
    monkeypatch.delitem(sys.modules, "longtail.annif", raising=False)
    made = importlib.import_module("longtail.annif").LongtailBackend()
    monkeypatch.delitem(sys.modules, "longtail.annif")
    made.datadir, made.backend_id = str(tmp_path), "longtail"
    made.info = made.debug = lambda message: None
    made.project = SimpleNamespace(subjects=Subjects(SimpleNamespace(uri=f"u:{number}") for number in range(2)))
    return made


def corpus(*texts):
    documents = [SimpleNamespace(text=text, subject_set=[number % 2]) for number, text in enumerate(texts)]
    return SimpleNamespace(documents=documents, is_empty=lambda: not documents)


def test_threads_and_seed_of_a_project_count_in_training_suggestions_and_learning(backend, monkeypatch):
    used = []

    def spied(inner):
        return lambda *arguments: used.append(thread_count()) or inner(*arguments)

    for method in ("_fit", "_topk", "_update"):
        monkeypatch.setattr(OneVsRest, method, spied(getattr(OneVsRest, method)))
    params = {
        "recipe": "dismec", "random_state": "5", "n_jobs": "7", "limit": "2", "longtail_features__min_df": "1",
    }  # fmt: skip
    documents = corpus("red ship", "green tree", "blue ship", "old tree")
    backend._train(documents, params)
    assert backend._model.learner.learner_.random_state == 5
    backend._suggest_batch(documents.documents, params)
    backend._learn(corpus("new ship", "small tree"), params)
    assert set(used) == {7}
    assert len(used) >= 3
    used.clear()
    backend._train(documents, params, jobs=3)
    assert used == [3]
