"""Recipes with settings, composed and checked before any data is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from longtail.errors import InputError, ParameterError, UnknownNameError

if TYPE_CHECKING:
    from longtail.data import Dataset
    from longtail.learners import Learner, TextLearner
    from longtail.propensity import JainPropensity

FEATURES = "features__"
_WRAPPERS = ("ips", "ranknet", "taug")


@contextmanager
def _as_given() -> Iterator[None]:
    """Write parameters in errors as the command line does, with dots."""
    try:
        yield
    except ParameterError as error:
        raise error.renamed(error.name.replace("__", "."), error.requirement.replace("__", ".")) from None


@_as_given()
def compose(
    recipe: str,
    parameters: dict[str, Any],
    propensity: JainPropensity,
    *,
    random_state: int = 0,
    tail: float | str | None = None,
) -> TextLearner:
    """Compose and check a learner over texts; for data with features, the learner that it wraps is used alone."""
    from longtail.learners import TextLearner
    from longtail.learners.text import get_features
    from longtail.recipes import configure, find

    learner = dialled(find(recipe).build(propensity), tail, propensity)
    for _, part in learner.parts():
        if "random_state" in part.get_params(deep=False):
            part.set_params(random_state=random_state)
    settings: dict[bool, dict[str, Any]] = {True: {}, False: {}}  # of the features, of the learner
    given: dict[str, str] = {}
    for name, value in parameters.items():
        of_features = name.startswith(FEATURES)
        is_own = name in learner.get_params()
        key = name if is_own else name.removeprefix(FEATURES if of_features else "learner__")
        if not of_features and key in given:
            raise ParameterError(name, value, f"sets the same as {given[key]}: give only one of them")
        given[key] = name
        settings[of_features][key] = value
    named = settings[False].pop("features", None)
    try:
        configure(learner, settings[False], propensity)
    except UnknownNameError as error:
        raise _of_features(error, learner) from None
    learner._check_parameters()  # first, because the features depend on it
    features = learner._default_features() if named is None else get_features(named)
    try:
        configure(features, settings[True])
    except UnknownNameError as error:
        requirement = error.requirement.replace("of this recipe", "of the features")
        requirement = requirement.replace("you mean ", f"you mean {FEATURES}")
        raise error.renamed(FEATURES + error.name, requirement) from None
    plan = TextLearner(features=features, learner=learner)
    plan._check_features_with_learner()
    return plan


def _of_features(error: UnknownNameError, learner: Learner) -> ParameterError:
    """Return an error that names the parameter of the features where a name without their prefix is one."""
    params = learner._default_features().get_params()
    if error.name not in params or "__" in error.name:
        return error
    return error.renamed(error.name, f"is a parameter of the features: give {FEATURES}{error.name}")


def plan_of(
    recipe: str,
    settings: Mapping[str, Any],
    propensity: Any,
    *,
    random_state: int = 0,
    label_names: Sequence[str] | None = None,
    tail: float | None = None,
) -> TextLearner:
    """Compose a recipe with settings named as in ``--set``; networks that read label texts get the label names."""
    parameters = {name.replace(".", "__"): value for name, value in settings.items()}
    plan = compose(recipe, parameters, propensity, random_state=random_state, tail=tail)
    where = label_texts_of(plan)
    if where is not None and label_names is not None:
        plan.set_params(**{where: list(label_names)})
    return plan


def learner_and_rows(plan: TextLearner, dataset: Dataset) -> tuple[Learner, Any]:
    """Return the learner of a recipe for the rows of a data set, and these rows as it takes them: features or texts."""
    from longtail.features import Tokens

    if dataset.X is not None and plan.learner is not None and not isinstance(plan.features, Tokens):
        return plan.learner, dataset.X
    if dataset.texts is None:
        raise InputError("The rows are features, and the recipe takes texts: give rows with texts.")
    return plan, dataset.texts


def base_recipe(recipe: str) -> str:
    """Return a recipe without its wrappers.

    Examples
    --------
    >>> [base_recipe(name) for name in ("ranknet+taug+bonsai", "glas+ranknet", "pw-dismec")]
    ['bonsai', 'glas', 'pw-dismec']
    """
    return next((part for part in reversed(recipe.split("+")) if part not in _WRAPPERS), recipe)


def is_network(recipe: str) -> bool:
    """Return whether a recipe is a network over texts, with wrappers or without.

    Examples
    --------
    >>> [is_network(name) for name in ("xgrank", "ranknet+xml-cnn", "glas", "bonsai")]
    [True, True, False, False]
    """
    from longtail.recipes.networks import NETWORKS

    return base_recipe(recipe) in {network.name for network in NETWORKS}


def label_texts_of(plan: TextLearner) -> str | None:
    """Return the name of the parameter that takes label texts, also of nested learners; None where there is none."""
    return next(
        (f"{path}label_texts" for path, part in plan.parts() if getattr(part, "reads_label_texts", False)), None
    )


def dialled(learner: Learner, tail: float | str | None, propensity: JainPropensity) -> Learner:
    """Set the tail dial of a learner, or wrap it in a tail dial."""
    if tail is None:
        return learner
    from longtail.rerank import TailDial

    if isinstance(learner, TailDial):
        return learner.set_params(tail=tail, first_tail=None)
    return TailDial(learner=learner, tail=tail, propensity=propensity)  # type: ignore[arg-type]
