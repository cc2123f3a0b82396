"""Iteration over a learner and the learners nested in it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self, TypeVar

T = TypeVar("T")


class NestedMixin:
    """`parts` and `find`: a learner and those in its parameters or fitted attributes."""

    if TYPE_CHECKING:

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...  # noqa: D102

    def parts(self, *, fitted: bool = False) -> Iterator[tuple[str, Any]]:
        """Yield this learner and those nested in it, outermost first, each with its path.

        Parameters
        ----------
        fitted : bool
            Walk fitted attributes rather than parameters.

        Yields
        ------
        path : str
            Prefix of the part's parameters, such as ``learner__``, or the path to the fitted attribute, such as
            ``learner_.``; empty for the learner itself. Learners in a list have their index: ``learners.0__``.
        part : Learner

        Examples
        --------
        >>> from longtail import CentroidReranker, Popularity
        >>> [(path, type(part).__name__) for path, part in CentroidReranker(learner=Popularity()).parts()]
        [('', 'CentroidReranker'), ('learner__', 'Popularity')]
        """
        yield "", self
        for name, nested in self._nested(fitted):
            yield from ((f"{name}{'.' if fitted else '__'}{path}", part) for path, part in nested.parts(fitted=fitted))

    def find(self, kind: type[T], *, fitted: bool = True) -> T | None:
        """Return the outermost learner of a class, this one or a nested one; None if there is none."""
        return next((part for _, part in self.parts(fitted=fitted) if isinstance(part, kind)), None)

    def _nested(self, fitted: bool) -> Iterator[tuple[str, Any]]:
        """Yield the learners nested directly, the main one first."""
        held = vars(self) if fitted else self.get_params(deep=False)
        for name in sorted(held, key=lambda name: (name.rstrip("_") != "learner", name)):
            if fitted != name.endswith("_"):
                continue
            if isinstance(held[name], NestedMixin):
                yield name, held[name]
            elif isinstance(held[name], list | tuple):
                nested = ((f"{name}.{at}", part) for at, part in enumerate(held[name]))
                yield from ((path, part) for path, part in nested if isinstance(part, NestedMixin))

    def _with_nested(self, change: Callable[[Any], Any]) -> Self:
        """Return a copy in which every fitted learner nested directly is ``change(learner)``; self if none changed."""
        changed: dict[str, Any] = {}
        for name in {path.partition(".")[0] for path, _ in self._nested(fitted=True)}:
            held = getattr(self, name)
            old = held if isinstance(held, list) else [held]
            new = [change(part) for part in old]
            if any(one is not other for one, other in zip(old, new, strict=True)):
                changed[name] = new if isinstance(held, list) else new[0]
        if not changed:
            return self
        made = copy.copy(self)
        vars(made).update(changed)
        return made
