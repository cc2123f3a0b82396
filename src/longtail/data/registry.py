"""Registry of the bundled data sets and those of the Extreme Classification Repository."""

from __future__ import annotations

from dataclasses import dataclass

from longtail.data.published_constants import PRESETS, name_key
from longtail.errors import InputError, did_you_mean

REPOSITORY = "http://manikvarma.org/downloads/XC/XMLRepository.html"
SPLITS = ("train", "test")


@dataclass(frozen=True)
class Variant:
    """Another well-known version of a data set with the same name."""

    train_rows: int
    test_rows: int
    labels: int
    what: str


@dataclass(frozen=True)
class DatasetInfo:
    """Published figures of a data set.

    Parameters
    ----------
    name : str
    task : str
        What rows and labels are.
    train_rows, test_rows, labels : int
    features : int or None
        None for texts.
    labels_per_row, rows_per_label : float
        Means over train and test, or over train where only that is published.
    source : str
        Where to get it.
    bundled : bool
        Whether it comes with the package.
    variants : tuple of Variant
        Other versions of the same name.

    Examples
    --------
    >>> info = describe("Bibtex")
    >>> info.rows("all"), info.propensity, info.bundled
    (7395, (0.55, 1.5), False)
    """

    name: str
    task: str
    train_rows: int
    test_rows: int
    features: int | None
    labels: int
    labels_per_row: float
    rows_per_label: float
    source: str = REPOSITORY
    bundled: bool = False
    variants: tuple[Variant, ...] = ()

    def rows(self, split: str) -> int:
        """Return the number of rows of "train", "test", or "all" for both."""
        counts = {"train": self.train_rows, "test": self.test_rows, "all": self.train_rows + self.test_rows}
        return counts[split]

    @property
    def propensity(self) -> tuple[float, float]:
        """Published constants A and B of the propensity model of Jain et al."""
        return PRESETS[self.name]


_DEBIAN = "comes with longtail; made from the package index of Debian 12"

_ALL = (
    DatasetInfo(
        "debian-tags", "package descriptions with debtags", 23186, 5592, None, 598, 3.79, 182.19, _DEBIAN, True
    ),
    DatasetInfo(
        "debian-depends", "package descriptions with the packages they depend on or recommend",
        40015, 9626, None, 30605, 5.18, 8.40, _DEBIAN, True,
    ),
    DatasetInfo("Mediamill", "video shots with concepts", 30993, 12914, 120, 101, 4.38, 1902.15),
    DatasetInfo("Bibtex", "bibliography entries with tags", 4880, 2515, 1836, 159, 2.40, 111.71),
    DatasetInfo("Delicious", "web pages with bookmark tags", 12920, 3185, 500, 983, 19.03, 311.61),
    DatasetInfo(
        "EURLex-4K", "laws of the European Union with EuroVoc concepts",
        15539, 3809, 5000, 3993, 5.31, 25.73,
        variants=(Variant(15449, 3865, 3956, "the version that X-Transformer and AttentionXML use"),),
    ),
    DatasetInfo("Wiki10-31K", "Wikipedia articles with bookmark tags", 14146, 6616, 101938, 30938, 18.64, 8.52),
    DatasetInfo("AmazonCat-13K", "products with categories", 1186239, 306782, 203882, 13330, 5.04, 448.57),
    DatasetInfo("Delicious-200K", "web pages with bookmark tags", 196606, 100095, 782585, 205443, 75.54, 72.29),
    DatasetInfo(
        "WikiLSHTC-325K", "Wikipedia articles with categories",
        1778351, 587084, 1617899, 325056, 3.19, 17.46,
    ),
    DatasetInfo(
        "Wikipedia-500K", "Wikipedia articles with categories",
        1813391, 783743, 2381304, 501070, 4.77, 24.75,
        variants=(Variant(1779881, 769421, 501070, "the version that X-Transformer and AttentionXML use"),),
    ),
    DatasetInfo(
        "Amazon-670K", "products with products bought or viewed along with them",
        490449, 153025, 135909, 670091, 5.45, 3.99,
    ),
)  # fmt: skip


_BY_KEY = {name_key(info.name): info for info in _ALL}


def names() -> list[str]:
    """Return the names of all data sets, the bundled ones first.

    Examples
    --------
    >>> names()[:2]
    ['debian-tags', 'debian-depends']
    """
    return [info.name for info in _ALL]


def describe(name: str) -> DatasetInfo:
    """Return a data set by name, ignoring case and punctuation.

    Examples
    --------
    >>> info = describe("eurlex-4k")
    >>> info.name, info.train_rows, info.propensity
    ('EURLex-4K', 15539, (0.55, 1.5))
    """
    info = _BY_KEY.get(name_key(name))
    if info is None:
        hint = did_you_mean(name, names(), key=name_key, most=3) or f": known are {', '.join(names())}"
        raise InputError(f"There is no data set called {name!r}{hint}.")
    return info


def parse_name(source: str) -> tuple[DatasetInfo, str] | None:
    """Parse ``name`` or ``name:split``; None if there is no data set of that name.

    Examples
    --------
    >>> info, split = parse_name("debian-depends:test")
    >>> info.name, split
    ('debian-depends', 'test')
    """
    name, _, split = source.partition(":")
    info = _BY_KEY.get(name_key(name))
    if info is None or "/" in name or "\\" in name:
        return None
    return info, check_split(split or "train", info.name)


def check_split(split: str, name: str) -> str:
    """Return the split in lower case; refuse all but "train" and "test"."""
    if split.lower() not in SPLITS:
        raise InputError(f"{name} has no split {split!r}: it has train and test.")
    return split.lower()
