"""Published constants A and B of the propensity model of Jain et al., by data set."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_AMAZON, _WIKIPEDIA, _OTHER = (0.6, 2.6), (0.5, 0.4), (0.55, 1.5)

_NAMES: dict[tuple[float, float], tuple[str, ...]] = {
    _AMAZON: (
        "Amazon-670K", "Amazon-3M", "AmazonTitles-670K", "AmazonTitles-3M", "LF-Amazon-131K", "LF-Amazon-1.3M",
        "LF-AmazonTitles-131K", "LF-AmazonTitles-1.3M",
    ),
    _WIKIPEDIA: (
        "WikiLSHTC-325K", "Wikipedia-LSHTC", "Wikipedia-500K", "Wiki-500K", "WikiTitles-500K", "LF-Wikipedia-500K",
        "LF-WikiTitles-500K",
    ),
    _OTHER: (
        "AmazonCat-13K", "Bibtex", "Delicious", "Delicious-200K", "EURLex-4K", "EURLex-57K", "Mediamill", "Wiki10-31K",
        "Wikipedia-31K", "WikiSeeAlsoTitles-350K", "LF-WikiSeeAlso-320K", "LF-WikiSeeAlsoTitles-320K",
        "debian-depends", "debian-tags", "tate-subjects",
    ),
}  # fmt: skip

PRESETS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {name: constants for constants, names in _NAMES.items() for name in names}
)
"""(A, B) by data set.

Jain et al. 2016 estimate them for Wikipedia and Amazon; by convention all other data sets, AmazonCat and the see-also
sets included, use the mean of those two. For Wiki10 the paper reports A = 0.55 and B = 0.1, but all published results
use 0.55 and 1.5.
"""


def name_key(name: str) -> str:
    """Return the key of a data set's name; case, spaces and punctuation don't matter.

    Examples
    --------
    >>> name_key("EURLex-4K"), name_key("eurlex 4k")
    ('eurlex4k', 'eurlex4k')
    """
    return "".join(filter(str.isalnum, name.casefold()))
