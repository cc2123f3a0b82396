"""Metric values in percent, and the mean relative change of one result against another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from longtail.errors import InputError

EQUATION_30: Mapping[str, Sequence[str]] = {
    "vanilla": ("P@1", "P@3", "P@5", "nDCG@1", "nDCG@3", "nDCG@5"),
    "PS": ("PSP@1", "PSP@3", "PSP@5", "PSnDCG@1", "PSnDCG@3", "PSnDCG@5"),
}
"""The two groups of metrics that equation 30 averages over."""


class Scores(Mapping[str, float]):
    """Metric values in percent by name, such as ``scores["PSP@5"]``.

    ``dict(scores)`` is ready for JSON; printing shows a table.

    Parameters
    ----------
    values : mapping of str to float
        Percent by ``name@k``.
    n_rows : int
        Number of rows.
    rerank : str, optional
        The re-ranking of the propensity-scored values; see `evaluate`.

    Examples
    --------
    >>> Scores({"P@1": 50.0, "P@3": 33.333, "R@1": 25.0, "R@3": 75.0}, n_rows=2)
    Scores of 2 rows, in percent
          @1     @3
    P  50.00  33.33
    R  25.00  75.00
    """

    def __init__(self, values: Mapping[str, float], *, n_rows: int, rerank: str | None = None) -> None:
        self._values = dict(values)
        self.n_rows = n_rows
        self.rerank = rerank

    def __getitem__(self, key: str) -> float:
        if key not in self._values:
            missing = "; metrics with propensities need inverse_propensity" if str(key).startswith("PS") else ""
            raise KeyError(f"{key} was not evaluated: there are {', '.join(self._values)}{missing}")
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def table(self) -> str:
        """Return the values as text: a line per metric, a column per k."""
        names = list(dict.fromkeys(key.partition("@")[0] for key in self))
        places = list(dict.fromkeys(key.partition("@")[2] for key in self))
        cells = [["", *(f"@{k}" for k in places)]]
        for name in names:
            values = (self.get(f"{name}@{k}") for k in places)
            cells.append([name, *("" if value is None else shown(name, value) for value in values)])
        return text_table(cells)

    def __repr__(self) -> str:
        order = f", propensity-scored after {self.rerank}" if self.rerank else ""
        return f"Scores of {self.n_rows} rows, in percent{order}\n{self.table()}"


def shown(metric: str, value: float) -> str:
    """Format a value with two decimals; Hamming, which is far below one percent with many labels, with four.

    Examples
    --------
    >>> shown("P@1", 0.00123), shown("Hamming@1", 0.00123), shown("Hamming@1", 37.5)
    ('0.00', '0.0012', '37.50')
    """
    small = metric.partition("@")[0] == "Hamming" and abs(value) < 1
    return f"{value:.4f}" if small else f"{value:.2f}"


def text_table(cells: Sequence[Sequence[str]]) -> str:
    """Align rows of cells, the first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def relative_change(
    scores: Mapping[str, float], base: Mapping[str, float], *, metrics: Mapping[str, Sequence[str]] = EQUATION_30
) -> dict[str, float]:
    """Average the relative changes of several metrics against a base, in percent: equation 30.

    Parameters
    ----------
    scores, base : mapping of str to float
        Metric values of a method and of the baseline.
    metrics : mapping of str to sequence of str
        Groups of metrics to average over: by default ``"vanilla"`` (P and nDCG at 1, 3, 5) and ``"PS"`` (PSP and PSnDCG
        at 1, 3, 5).

    Returns
    -------
    dict of str to float
        Percent by group. A group without a metric on either side is left out.

    References
    ----------
    Qaraei, Schultheis, Gupta, Babbar: Convex surrogates for unbiased loss functions in extreme classification with
    missing labels. WWW 2021, equation 30.

    Examples
    --------
    >>> relative_change({"P@1": 60.0, "R@1": 12.0}, {"P@1": 50.0, "R@1": 10.0}, metrics={"both": ["P@1", "R@1"]})
    {'both': 20.0}
    """
    changes = {}
    for group, names in metrics.items():
        if not any(name in scores or name in base for name in names):
            continue
        for side, values in (("scores", scores), ("base", base)):
            missing = [name for name in names if name not in values]
            if missing:
                raise InputError(f"{', '.join(missing)} missing in {side}: evaluate both with the same ks and metrics.")
        zero = [name for name in names if base[name] == 0]
        if zero:
            raise InputError(f"{', '.join(zero)} of the base is 0, so no relative change exists: compare the values.")
        changes[group] = 100 * sum((scores[name] - base[name]) / base[name] for name in names) / len(names)
    return changes
