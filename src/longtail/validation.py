"""Validation of parameters: one table of constraints per class, one sentence per mistake."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from longtail.config import checked_jobs
from longtail.errors import ParameterError, counted

LARGEST_INT = 2**31 - 1

T = TypeVar("T")


class Constraint(Protocol):
    """A condition on the value of a parameter."""

    @property
    def requirement(self) -> str:
        """The constraint in words, as after "must be"."""

    def accepts(self, value: Any) -> bool:
        """Return whether a value is valid."""


@dataclass(frozen=True)
class Integer:
    """An integer from `low` to `high`, both included.

    Examples
    --------
    >>> Integer(1).accepts(0), Integer(1).accepts(True), Integer(1).accepts(3)
    (False, False, True)
    """

    low: int = 0
    high: int = LARGEST_INT

    @property
    def requirement(self) -> str:
        """The constraint in words."""
        return f"an integer from {self.low} to {self.high}"

    def accepts(self, value: Any) -> bool:
        """Return whether a value is valid."""
        return isinstance(value, Integral) and not isinstance(value, bool) and self.low <= int(value) <= self.high


@dataclass(frozen=True)
class Number:
    """A number, finite unless `may_be_infinite`; `above` and `below` are exclusive bounds, `low` and `high` inclusive.

    Examples
    --------
    >>> Number(above=0).requirement, Number(low=0, below=1).requirement, Number(low=0, high=1).requirement
    ('a number above 0', 'a number of at least 0 and below 1', 'a number from 0 to 1')
    >>> Number(low=0).accepts(math.inf), Number(low=0, may_be_infinite=True).accepts(math.inf)
    (False, True)
    """

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    may_be_infinite: bool = False

    @property
    def requirement(self) -> str:
        """The constraint in words."""
        if self.low is not None and self.high is not None:
            return f"a number from {self.low:g} to {self.high:g}"
        if self.above is not None and self.below is not None:
            return f"a number between {self.above:g} and {self.below:g}"
        named = (("above", self.above), ("of at least", self.low), ("below", self.below), ("at most", self.high))
        bounds = " and ".join(f"{word} {bound:g}" for word, bound in named if bound is not None)
        return f"a number {bounds}".rstrip()

    def accepts(self, value: Any) -> bool:
        """Return whether a value is valid."""
        is_infinite = self.may_be_infinite and isinstance(value, float | np.floating) and math.isinf(value)
        return (is_infinite or is_number(value)) and bool(self.accepts_each(value))

    def accepts_each(self, values: Any) -> Any:
        """Return whether a number, or each of an array, is within the bounds."""
        return (
            (self.low is None or values >= self.low)
            & (self.high is None or values <= self.high)
            & (self.above is None or values > self.above)
            & (self.below is None or values < self.below)
        )


@dataclass(frozen=True)
class Boolean:
    """True or False.

    Examples
    --------
    >>> Boolean().accepts(False), Boolean().accepts(0)
    (True, False)
    """

    requirement: str = "True or False"

    def accepts(self, value: Any) -> bool:
        """Return whether a value is valid."""
        return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")


class OneOf:
    """One of some values.

    Examples
    --------
    >>> OneOf("beam", "best-first").requirement
    'one of beam, best-first'
    """

    def __init__(self, *choices: Any) -> None:
        self.choices = choices

    @property
    def requirement(self) -> str:
        """The constraint in words."""
        return f"one of {', '.join(map(str, self.choices))}"

    def accepts(self, value: Any) -> bool:
        """Return whether a value is valid."""
        return any(type(value) is type(choice) and value == choice for choice in self.choices)


@dataclass(frozen=True)
class Optional:
    """A value that another constraint accepts, or one special value, None by default.

    Examples
    --------
    >>> Optional(Integer(1, 9)).requirement, Optional(Number(low=0, high=1), "auto").requirement
    ('an integer from 1 to 9, or None', "a number from 0 to 1, or 'auto'")
    """

    constraint: Constraint
    instead: Any = None

    @property
    def requirement(self) -> str:
        """The constraint in words."""
        return f"{self.constraint.requirement}, or {self.instead!r}"

    def accepts(self, value: Any) -> bool:
        """Return whether a value is valid."""
        same = value is None if self.instead is None else isinstance(value, str) and value == self.instead
        return same or self.constraint.accepts(value)


@dataclass(frozen=True)
class Integers:
    """A sequence of positive integers; an empty one only where `may_be_empty`.

    Examples
    --------
    >>> Integers().accepts([2, 4]), Integers().accepts([]), Integers().accepts(3)
    (True, False, False)
    >>> Integers(increasing=True).accepts([1, 6]), Integers(increasing=True).accepts([6, 6])
    (True, False)
    """

    may_be_empty: bool = False
    increasing: bool = False
    requirement: str = "a sequence of positive integers, such as [512]"

    def accepts(self, value: Any) -> bool:
        """Return whether a value is valid."""
        items = as_list(value)
        if items is None or not (items or self.may_be_empty) or not all(map(Integer(1).accepts, items)):
            return False
        return not self.increasing or all(first < second for first, second in pairwise(items))


@dataclass(frozen=True)
class SequenceOf:
    """A sequence of at least `least` objects of a class; `what` they are, for the message.

    Examples
    --------
    >>> SequenceOf(str, "name", 2).accepts(["a", "b"]), SequenceOf(str, "name").accepts([])
    (True, False)
    >>> SequenceOf(str, "name", 2).requirement
    'a sequence of at least 2 names'
    """

    kind: type[Any]
    what: str
    least: int = 1

    @property
    def requirement(self) -> str:
        """The constraint in words."""
        return f"a sequence of at least {counted(self.least, self.what)}"

    def accepts(self, value: Any) -> bool:
        """Return whether a value is valid."""
        items = as_list(value)
        return items is not None and len(items) >= self.least and all(isinstance(item, self.kind) for item in items)


@dataclass(frozen=True)
class IntegerRange:
    """Two positive integers, the first at most the second.

    Examples
    --------
    >>> IntegerRange().accepts((1, 2)), IntegerRange().accepts([2, 1]), IntegerRange().accepts("1 2")
    (True, False, False)
    """

    requirement: str = "two positive integers, the first at most the second, such as [1, 2]"

    def accepts(self, value: Any) -> bool:
        """Return whether a value is valid."""
        sizes = value if isinstance(value, list | tuple) else ()
        return len(sizes) == 2 and all(map(Integer(1).accepts, sizes)) and bool(sizes[0] <= sizes[1])


LARGEST_SEED = 2**32 - 1
SEED = Integer(0, LARGEST_SEED)
"""Constraint of `random_state`."""


PROBABILITY = Number(above=0, high=1)
"""What a propensity must be."""

LEVEL = Number(above=0, below=1)
"""What the level of an interval must be."""

TAIL = Number(low=0, high=1)
"""What a position of the tail dial must be."""


class Validated:
    """A class whose parameters are checked against the tables `_constraints` of the class and its base classes.

    Examples
    --------
    >>> class Tree(Validated):
    ...     _constraints = {"depth": Integer(1)}
    ...
    ...     def __init__(self, depth=1):
    ...         self.depth = depth
    >>> Tree(depth=0)._check_parameters()
    Traceback (most recent call last):
    longtail.errors.ParameterError: depth must be an integer from 1 to 2147483647, got 0.
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {}

    def _check_parameters(self) -> None:
        """Raise a ParameterError for the first invalid parameter; called before any work starts."""
        for base in reversed(type(self).__mro__):
            for name, constraint in vars(base).get("_constraints", {}).items():
                check(name, getattr(self, name), constraint)
        checked_jobs(getattr(self, "n_jobs", None))


@contextmanager
def parameters_of(path: str) -> Iterator[None]:
    """Put the path of a nested object before the names of parameters in errors, as `set_params` takes them.

    Examples
    --------
    >>> with parameters_of("learner"):
    ...     check("C", -1, Number(above=0))
    Traceback (most recent call last):
    longtail.errors.ParameterError: learner__C must be a number above 0, got -1.
    """
    try:
        yield
    except ParameterError as error:
        raise error.renamed(f"{path}__{error.name}") from None


def check(name: str, value: Any, constraint: Constraint) -> None:
    """Raise a ParameterError if a value violates a constraint.

    Examples
    --------
    >>> check("n_trees", 0, Integer(1, 9))
    Traceback (most recent call last):
    longtail.errors.ParameterError: n_trees must be an integer from 1 to 9, got 0.
    """
    if not constraint.accepts(value):
        raise ParameterError(name, value, f"must be {constraint.requirement}")


def named(name: str, value: Any, table: Mapping[str, Callable[[], T]], kind: type[Any]) -> T:
    """Return an object of a class itself, or make the one with a name in a table.

    Examples
    --------
    >>> class Square: ...
    >>> shapes = {"unit-square": Square}
    >>> isinstance(named("shape", "unit_square", shapes, Square), Square)
    True
    >>> named("shape", "circle", shapes, Square)
    Traceback (most recent call last):
    longtail.errors.ParameterError: shape must be a Square or one of unit-square, got 'circle'.
    """
    if isinstance(value, kind):
        return value  # type: ignore[no-any-return]
    make = table.get(value.lower().replace("_", "-")) if isinstance(value, str) else None
    if make is None:
        raise ParameterError(name, value, f"must be a {kind.__name__} or one of {', '.join(table)}")
    return make()


def numbers_per_label(
    name: str,
    values: npt.ArrayLike,
    constraint: Number,
    size: int | None = None,
    *,
    each: str = "label",
    may_be_one: bool = False,
    dtype: type[np.floating[Any]] = np.float64,
) -> npt.NDArray[Any]:
    """Return numbers, one per label, as a flat array of floats; the only check of costs, propensities and weights.

    Parameters
    ----------
    name : str
        What the numbers are, for the error.
    values : array-like
    constraint : Number
        What each number must be. Where they must be above 0, 1 / x must be finite too.
    size : int, optional
        Number of labels.
    each : str
        What there is a number for.
    may_be_one : bool
        Also accept one number for all, and return it as an array without axes.
    dtype : type
        The numbers are converted to this type before they are checked.

    Examples
    --------
    >>> numbers_per_label("weights", [1, 2], Number(low=0), 2)
    array([1., 2.])
    >>> numbers_per_label("propensity", [0.5, 0], Number(above=0, high=1))
    Traceback (most recent call last):
    longtail.errors.ParameterError: propensity of label 1 must be a number above 0 and at most 1, got 0.0.
    >>> numbers_per_label("weights", [1, 2], Number(low=0), 3)
    Traceback (most recent call last):
    longtail.errors.ParameterError: len(weights) must equal the number of labels (3), got 2.
    """
    try:
        given = np.asarray(values)
    except ValueError:  # lists of different lengths
        given = np.empty(0, object)
    is_one = may_be_one and not given.ndim and given.dtype.kind in "iuf"
    if not is_one and (given.ndim != 1 or (given.dtype.kind not in "biuf" and (given.size or given.dtype == object))):
        either = "a number or " if may_be_one else ""
        raise ParameterError(name, values, f"must be {either}a flat array with one number per {each}")
    if size is not None and given.ndim and len(given) != size:
        raise ParameterError(f"len({name})", len(given), f"must equal the number of {each}s ({size})")
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        converted = given.astype(dtype)
        valid = np.isfinite(converted) & constraint.accepts_each(converted)
        if constraint.above == 0:
            valid &= np.isfinite(2 / converted.astype(np.float64))
    if not valid.all():
        at = int(np.argmin(valid))
        place = f"{name} of {each} {at}" if given.ndim else name
        raise ParameterError(place, float(converted.flat[at]), f"must be {constraint.requirement}")
    return converted


def as_list(value: Any) -> list[Any] | None:
    """Return the items of a sequence; None for a text, an iterator, which could be read once only, and other values.

    Examples
    --------
    >>> as_list((1, 2)), as_list("ab"), as_list(iter([1])), as_list(5)
    ([1, 2], None, None, None)
    """
    if isinstance(value, str | bytes | Iterator):
        return None
    try:
        return list(value)
    except TypeError:
        return None


def is_number(value: object) -> bool:
    """Return whether a value is a finite real number that a float can hold; True and False are not.

    Examples
    --------
    >>> is_number(0.5), is_number(True), is_number(float("inf")), is_number(10**400)
    (True, False, False, False)
    """
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False
