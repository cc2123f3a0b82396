"""Lists of texts as input, and their tags for scikit-learn."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Self

from longtail.errors import InputError
from longtail.validation import Validated


def as_texts(texts: Iterable[str], *, name: str = "texts") -> list[str]:
    """Return texts as a list; refuse a single text, a matrix and values that are not strings.

    Examples
    --------
    >>> as_texts(("one", "two"))
    ['one', 'two']
    """
    if isinstance(texts, str | bytes):
        raise InputError(f"{name} must be a list of texts, got one text: put it in a list.")
    if getattr(texts, "ndim", 1) == 2 or (isinstance(texts, list | tuple) and texts and _is_row(texts[0])):
        raise InputError(
            f"{name} must be a list of texts, got a matrix ({type(texts).__name__}): give one text per row; a learner "
            "without TextLearner takes a matrix."
        )
    if not isinstance(texts, Iterable) or getattr(texts, "ndim", 1) != 1:
        raise InputError(f"{name} must be a list of texts, got {type(texts).__name__}: give one text per row.")
    listed = texts if isinstance(texts, list) else list(texts)
    if not set(map(type, listed)) <= {str}:
        for row, text in enumerate(listed):
            if not isinstance(text, str):
                raise InputError(f"{name}[{row}] must be a text, got {type(text).__name__}: convert it to str.")
    return listed


def _is_row(item: object) -> bool:
    return not isinstance(item, str | bytes) and hasattr(item, "__len__")


def tagged_as_texts(tags: Any) -> Any:
    """Return the tags of an estimator, changed to say that its input is a list of texts."""
    tags.input_tags.string, tags.input_tags.two_d_array, tags.input_tags.sparse = True, False, False
    return tags


class TextInput(Validated):
    """Mixin of transformers whose input is a list of texts."""

    def fit(self, texts: Iterable[str], y: Any = None) -> Self:
        """Fit to training texts; `y` is ignored. A pretrained encoder or tokenizer is only loaded."""
        self._check_parameters()
        self._fit(as_texts(texts))
        return self

    def fit_transform(self, texts: Iterable[str], y: Any = None) -> Any:
        """Fit to training texts and return what `transform` returns for them; tf-idf takes less time than for both."""
        self._check_parameters()
        return self._fit_transform(as_texts(texts))

    def _fit_transform(self, texts: list[str]) -> Any:
        """Fit to texts and transform them; the parameters were checked."""
        self._fit(texts)
        return self.transform(texts)  # type: ignore[attr-defined]

    @abstractmethod
    def _fit(self, texts: list[str]) -> None:
        """Fit to texts; the parameters were checked."""

    def __sklearn_tags__(self) -> Any:
        return tagged_as_texts(super().__sklearn_tags__())  # type: ignore[misc]
