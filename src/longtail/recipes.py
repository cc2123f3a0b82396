"""The systems of the papers by name: each a learner composed with its published constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from longtail.errors import ParameterError

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from longtail.learners import Learner
    from longtail.propensity import Propensity
    from longtail.weighting import Weighting

Estimator = TypeVar("Estimator", bound="BaseEstimator")
Build = Callable[["Propensity | str | None"], "Learner"]

_RANKNET = (
    "Improving Tail Label Prediction for Extreme Multi-label Learning. Under review for ICLR 2021, authors not named."
)
_OF_A_RUN = ("threads", "seed", "memory_limit")

_DISMEC = "Babbar and Schölkopf: DiSMEC: Distributed Sparse Machines for Extreme Multi-label Classification. WSDM 2017."
_PW = (
    "Qaraei, Schultheis, Gupta and Babbar: Convex Surrogates for Unbiased Loss Functions in Extreme Classification "
    "With Missing Labels. WWW 2021."
)
_PARABEL = (
    "Prabhu, Kag, Harsola, Agrawal and Varma: Parabel: Partitioned Label Trees for Extreme Classification with "
    "Application to Dynamic Search Advertising. WWW 2018."
)
_BONSAI = (
    "Khandagale, Xiao and Babbar: Bonsai: Diverse and Shallow Trees for Extreme Multi-label Classification. "
    "Machine Learning 109, 2020."
)
_PLT = (
    "Wydmuch, Jasinska, Kuznetsov, Busa-Fekete and Dembczyński: A No-regret Generalization of Hierarchical Softmax to "
    "Extreme Multi-label Classification. NeurIPS 2018."
)
_FASTXML = (
    "Prabhu and Varma: FastXML: A Fast, Accurate and Stable Tree-classifier for Extreme Multi-label Learning. KDD 2014."
)
_PFASTREXML = (
    "Jain, Prabhu and Varma: Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking and Other Missing "
    "Label Applications. KDD 2016."
)


@dataclass(frozen=True)
class Recipe:
    """A system by name.

    Parameters
    ----------
    name : str
    summary : str
        One sentence on what it does.
    paper : str or None
        Where it was published.
    build : callable
        ``build(propensity)`` gives the unfitted learner.
    """

    name: str
    summary: str
    paper: str | None
    build: Build


def recipes() -> list[Recipe]:
    """Every recipe, in the order in which they build on each other.

    Examples
    --------
    >>> [known.name for known in recipes()][:4]
    ['popularity', 'dismec', 'pw-dismec', 'pw-cb-dismec']
    """
    return list(_RECIPES)


def recipe(name: str, *, propensity: Propensity | str | None = None, **params: Any) -> Learner:
    """Compose the system of that name, unfitted, with the constants of its paper.

    Parameters
    ----------
    name : str
        See `recipes`.
    propensity : Propensity or str, optional
        How likely a true label was recorded, or the name of a data set with published constants; for recipes that
        weight by it.
    **params
        Parameters to set otherwise, nested ones by their path: ``weighting__beta=0.99``.

    Examples
    --------
    >>> from longtail import recipe
    >>> recipe("pw-cb-dismec", regularisation=0.5).regularisation
    0.5
    >>> recipe("pw-dismec", propensity="Amazon-670K").weighting
    PW(propensity=JainPropensity(a=0.6, b=2.6))
    """
    return configure(find(name).build(propensity), params, propensity)


def find(name: str) -> Recipe:
    """Recipe of that name; for an unknown one, an error with the names that come near.

    What stands before a plus goes around the recipe behind it, whichever that is: ``ips+``, ``ranknet+``, ``taug+``.

    Examples
    --------
    >>> find("ips+taug+parabel").build(None).learner.learner.arity
    2
    """
    by_name = {known.name: known for known in _RECIPES}
    around, plus, rest = str(name).partition("+")
    if name in by_name:
        return by_name[name]
    if plus and around in _AROUND:
        inner = find(rest)
        return Recipe(name, f"{_AROUND[around].summary} Around {rest}.", _RANKNET, _wrapped(around, inner.build))
    listed = f"{', '.join(by_name)}, or one of these behind {', '.join(f'{way}+' for way in _AROUND)}"
    raise ParameterError("recipe", name, f"must be one of {listed}{_near(name, by_name)}")


class _Around(NamedTuple):
    """What goes around a recipe: in a sentence, and how."""

    summary: str
    wrap: Callable[[Learner, Propensity | str | None], Learner]


def configure(estimator: Estimator, params: Mapping[str, Any], propensity: Propensity | str | None = None) -> Estimator:
    """Set parameters by name, nested ones as ``weighting__beta``; an unknown name is an error with the known ones.

    A weighting that is given by its name uses `propensity`. A part is set before the parameters inside it, in whatever
    order they come. A parameter that a wrapper doesn't have is set in the learner, or both learners, that it wraps;
    `threads`, `seed` and `memory_limit` are set in every learner that has them, unless one is named by its path. Two
    names for one parameter are an error, and so is a parameter of a learner that is set to None.
    """
    _check_no_learner_gone(estimator, params)
    taken: dict[str, str] = {}
    for given, value in sorted(params.items(), key=_turn):
        for name in _paths_of(estimator, given):
            if name in taken:
                raise ParameterError(given, value, f"sets the same as {taken[name]}: give only one of them")
            if given not in _OF_A_RUN:
                taken[name] = given
            if name.rpartition("__")[2] == "weighting" and isinstance(value, str):
                value = _weighting(value, propensity)
            try:
                estimator.set_params(**{name: value})
            except (ValueError, AttributeError):
                known = sorted(estimator.get_params())
                listed = ", ".join(known) or "none"
                raise ParameterError(
                    given, value, f"is no parameter here{_near(given, known)}: there are {listed}"
                ) from None
    return estimator


def _turn(param: tuple[str, Any]) -> tuple[int, int]:
    """When a parameter is set: outer ones first, and learners before what is set inside them by its bare name."""
    given = param[0]
    return given.count("__"), 0 if given.endswith("learner") else 1 + (given in _OF_A_RUN)


def _check_no_learner_gone(estimator: BaseEstimator, params: Mapping[str, Any]) -> None:
    gone = [given for given, value in params.items() if value is None and given.rpartition("__")[2] == "learner"]
    for given, value in params.items():
        for path in gone if given not in _OF_A_RUN else ():
            if any(name.startswith(f"{path}__") for name in _paths_of(estimator, given)):
                raise ParameterError(given, value, f"is inside of {path}, which is set to None: give only one of them")


def _paths_of(estimator: BaseEstimator, name: str) -> list[str]:
    """Paths to a parameter: its name, or those inside of the outermost wrapped learners that have it.

    Those of a run are set wherever they are.
    """
    from longtail.learners.base import Learner, nested

    if not isinstance(estimator, Learner):
        return [name]
    if name in _OF_A_RUN:
        inside = [(f"{path}__", part) for path, part in estimator.get_params().items() if isinstance(part, Learner)]
        owners = [("", estimator), *inside]
    else:
        owners = list(nested(estimator))
    found = [path for path, part in owners if name.partition("__")[0] in part.get_params(deep=False)]
    outermost = min((path.count("__") for path in found), default=0)
    return [path + name for path in found if name in _OF_A_RUN or path.count("__") == outermost] or [name]


def _weighting(name: str, propensity: Propensity | str | None) -> Weighting:
    from longtail.propensity import get_propensity
    from longtail.weighting import get_weighting

    return get_weighting(name, propensity=get_propensity(propensity))


def _near(name: str, known: Mapping[str, Any] | list[str]) -> str:
    close = get_close_matches(str(name), known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _popularity(propensity: Propensity | str | None) -> Learner:
    from longtail.learners import Popularity

    return Popularity()


def _dismec(propensity: Propensity | str | None) -> Learner:
    return _one_vs_rest(None)


def _pw_dismec(propensity: Propensity | str | None) -> Learner:
    return _one_vs_rest(_weighting("pw", propensity))


def _pw_cb_dismec(propensity: Propensity | str | None) -> Learner:
    return _one_vs_rest(_weighting("pw-cb", propensity))


def _one_vs_rest(weighting: Weighting | None) -> Learner:
    from longtail.learners import OneVsRest

    return OneVsRest(loss="squared-hinge", regularisation=1.0, prune_below=0.01, weighting=weighting)


def _parabel(weighting: str | None) -> Build:
    """Three balanced binary trees; the solver's limits are those of the published code."""

    def build(propensity: Propensity | str | None) -> Learner:
        from longtail.learners import LabelTree

        return LabelTree(
            trees=3, arity=2, leaf_size=100, dimensions=None, negatives=0, discount=1.0, beam=10, bias_centre=0.0,
            prune_below=0.1, tolerance=0.1, max_passes=20, precision="float32",
            weighting=weighting and _weighting(weighting, propensity),
        )  # fmt: skip

    return build


def _bonsai(weighting: str | None) -> Build:
    def build(propensity: Propensity | str | None) -> Learner:
        from longtail.learners import bonsai_trees

        return bonsai_trees(None if weighting is None else _weighting(weighting, propensity))

    return build


def _plt(propensity: Propensity | str | None) -> Learner:
    from longtail.learners import LabelTree

    return LabelTree(
        loss="logistic", regularisation=10.0, arity=2, leaf_size=100, dimensions=None, negatives=0, discount=1.0,
        search="best-first", bias_centre=0.0, prune_below=0.1, tolerance=0.1, precision="float32",
    )  # fmt: skip


def _fastxml(propensity: Propensity | str | None) -> Learner:
    from longtail.learners import InstanceForest

    return InstanceForest(trees=50, leaf_size=10, leaf_labels=100, regularisation=1.0)


def _pfastxml(propensity: Propensity | str | None) -> Learner:
    from longtail.learners import InstanceForest

    return InstanceForest(
        trees=50, leaf_size=10, leaf_labels=100, regularisation=1.0, ideal=False,
        weighting=_weighting("inverse-propensity", propensity),
    )  # fmt: skip


def _pfastrexml(propensity: Propensity | str | None) -> Learner:
    from longtail.tail import CentroidReranker

    return CentroidReranker(learner=_pfastxml(propensity), gamma=30.0, alpha=0.8, candidates=1000, drop=0.1)


def _longtail_tree(propensity: Propensity | str | None) -> Learner:
    from longtail.learners import LabelTree
    from longtail.weighting import PowerFrequency

    return LabelTree(regularisation=0.5, weighting=PowerFrequency(beta=0.1, factor=1.5), beam=8)


def _ips(learner: Learner, propensity: Propensity | str | None) -> Learner:
    from longtail.tail import TailDial

    return TailDial(learner=learner, tail=1.0, propensity=propensity)


def _ranknet(learner: Learner, propensity: Propensity | str | None) -> Learner:
    from longtail.tail import RankNet

    return RankNet(learner=learner, propensity=propensity)


def _taug(learner: Learner, propensity: Propensity | str | None) -> Learner:
    from longtail.tail import TAug

    return TAug(learner=learner, tau=0.1, copies=4)


def _wrapped(around: str, build: Build) -> Build:
    return lambda propensity: _AROUND[around].wrap(build(propensity), propensity)


_AROUND = {
    "ips": _Around("Scores times inverse propensities.", _ips),
    "ranknet": _Around("Ranked anew by RankNet, which is trained to bring rare labels up.", _ranknet),
    "taug": _Around("Head and tail learned apart, the tail from augmented rows.", _taug),
}


def _longtail_tail(propensity: Propensity | str | None) -> Learner:
    """Probabilities from a plain and a weighted learner; the dial is low for the first place and high for the rest."""
    from longtail.tail import Stacked, TailDial

    stacked = Stacked(learner=_dismec(propensity), second=_pw_cb_dismec(propensity), candidates=50)
    return TailDial(learner=stacked, tail=1.0, first=0.26, propensity=propensity)


_RECIPES = (
    Recipe(
        "popularity",
        "The most frequent labels for every row: the baseline to beat.",
        None,
        _popularity,
    ),
    Recipe(
        "dismec",
        "One linear classifier a label: squared hinge, C = 1, weights below 0.01 pruned.",
        _DISMEC,
        _dismec,
    ),
    Recipe(
        "pw-dismec",
        "dismec whose positive rows cost 2/p - 1, for labels that went unrecorded.",
        _PW,
        _pw_dismec,
    ),
    Recipe(
        "pw-cb-dismec",
        "pw-dismec with costs balanced by label frequency, beta = 0.9, for the rare labels.",
        _PW,
        _pw_cb_dismec,
    ),
    Recipe(
        "parabel",
        "Three balanced binary label trees with leaves of 100 labels, weights below 0.1 pruned.",
        _PARABEL,
        _parabel(None),
    ),
    Recipe(
        "pw-parabel",
        "parabel whose positive rows cost 2/p - 1, at leaves and at nodes.",
        _PW,
        _parabel("pw"),
    ),
    Recipe(
        "bonsai",
        "Three shallow, unbalanced label trees of arity 100, weights below 0.01 pruned.",
        _BONSAI,
        _bonsai(None),
    ),
    Recipe(
        "pw-bonsai",
        "bonsai whose positive rows cost 2/p - 1, at leaves and at nodes.",
        _PW,
        _bonsai("pw"),
    ),
    Recipe(
        "pw-cb-bonsai",
        "pw-bonsai with costs balanced by label frequency, beta = 0.9, for the rare labels.",
        _PW,
        _bonsai("pw-cb"),
    ),
    Recipe(
        "plt",
        "A probabilistic label tree: logistic loss, C = 10, exact search; scores are probabilities.",
        _PLT,
        _plt,
    ),
    Recipe(
        "fastxml",
        "Fifty trees over rows that part them by nDCG, leaves of 10 rows.",
        _FASTXML,
        _fastxml,
    ),
    Recipe(
        "pfastxml",
        "fastxml whose trees gain 1/p by a label, for labels that went unrecorded.",
        _PFASTREXML,
        _pfastxml,
    ),
    Recipe(
        "pfastrexml",
        "pfastxml ranked anew by the distance to each label's centroid, alpha = 0.8, gamma = 30, for the rare labels.",
        _PFASTREXML,
        _pfastrexml,
    ),
    Recipe(
        "ranknet+fastxml",
        "fastxml ranked anew by RankNet, which is trained to bring rare labels up.",
        _RANKNET,
        _wrapped("ranknet", _fastxml),
    ),
    Recipe(
        "ranknet+parabel",
        "parabel ranked anew by RankNet, which is trained to bring rare labels up.",
        _RANKNET,
        _wrapped("ranknet", _parabel(None)),
    ),
    Recipe(
        "ranknet+bonsai",
        "bonsai ranked anew by RankNet, which is trained to bring rare labels up.",
        _RANKNET,
        _wrapped("ranknet", _bonsai(None)),
    ),
    Recipe(
        "taug+bonsai",
        "bonsai for the most frequent tenth of the labels, and for the others from augmented rows.",
        _RANKNET,
        _wrapped("taug", _bonsai(None)),
    ),
    Recipe(
        "ranknet+taug+bonsai",
        "taug+bonsai ranked anew by RankNet.",
        _RANKNET,
        _wrapped("ranknet", _wrapped("taug", _bonsai(None))),
    ),
    Recipe(
        "ips+bonsai",
        "bonsai whose scores are multiplied by inverse propensities: the tail dial at 1.",
        _RANKNET,
        _wrapped("ips", _bonsai(None)),
    ),
    Recipe(
        "longtail-tail",
        "Probabilities from dismec and pw-cb-dismec, the tail dial low for the first place and high for the others: "
        "the most of the tail at a high P@1.",
        None,
        _longtail_tail,
    ),
    Recipe(
        "longtail-tree",
        "A shallow tree that trains each leaf on the rows that prediction would send there: for many labels.",
        None,
        _longtail_tree,
    ),
)
