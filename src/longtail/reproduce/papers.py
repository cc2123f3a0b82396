"""Published tables of the papers as data, a file per paper."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from longtail.errors import ParameterError, did_you_mean


@dataclass(frozen=True)
class PaperRow:
    """Published numbers of one method on one data set."""

    data: str
    method: str
    values: Mapping[str, float]
    remark: str = ""
    broken: tuple[str, ...] = ()  # columns with implausible numbers


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of a paper."""

    key: str  # paper and number, such as "pw-3" or "ranknet-figure-2"
    paper: str  # title, authors and year
    shows: str  # its subject
    metrics: tuple[str, ...]  # its columns
    rows: tuple[PaperRow, ...] = ()  # empty if the paper has no numbers
    note: str = ""  # why its numbers can't be compared with the measured ones directly

    @property
    def name(self) -> str:
        """Short name of the paper."""
        return self.key.partition("-")[0]

    @property
    def number(self) -> str:
        """Number of the table, or ``"figure-2"``."""
        return self.key.partition("-")[2]

    @property
    def datasets(self) -> list[str]:
        """Data sets of its rows."""
        return list(dict.fromkeys(row.data for row in self.rows))

    @property
    def methods(self) -> list[str]:
        """Methods of its rows."""
        return list(dict.fromkeys(row.method for row in self.rows))

    def is_broken(self, data: str, method: str, metric: str) -> bool:
        """Return whether the published number is implausible."""
        return any(metric in row.broken for row in self.rows if (row.data, row.method) == (data, method))

    def value(self, data: str, method: str, metric: str, base: str | None = None) -> float | None:
        """Return a published number, computed from that of `base` if only the gain is published; None if missing."""
        found = next((row for row in self.rows if (row.data, row.method) == (data, method)), None)
        if found is None:
            return None
        gain = found.values.get(f"{metric} gain pp")
        if metric not in found.values and gain is not None and base is not None:
            plain = self.value(data, base, metric)
            return None if plain is None else round(plain + gain, 4)
        return found.values.get(metric)


@cache
def tables() -> dict[str, PaperTable]:
    """Return all tables and figures by key.

    Examples
    --------
    >>> tables()["pw-3"].value("Amazon-670K", "DiSMEC", "P@1")
    44.7
    """
    found = {}
    folder = resources.files("longtail.reproduce") / "published"
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if not file.name.endswith(".toml"):
            continue
        content = tomllib.loads(file.read_text(encoding="utf-8"))
        year = f", {content['year']}" if "year" in content else ""
        paper = f"{content['title']} ({content['authors']}{year})"
        for table in content["tables"]:
            rows = tuple(
                PaperRow(row["data"], row["method"], row["values"], row.get("remark", ""), tuple(row.get("broken", ())))
                for row in table.get("rows", ())
            )
            key = f"{content['paper']}-{table['id']}"
            found[key] = PaperTable(key, paper, table["shows"], tuple(table["metrics"]), rows, table.get("note", ""))
    return found


def find_table(key: str) -> PaperTable:
    """Return a table by its key, or raise a ParameterError with the nearest key."""
    known = tables()
    if key not in known:
        raise ParameterError(
            "TABLE",
            key,
            f"is not a known table{did_you_mean(key, known, key=str.lower)}: longtail reproduce --list shows all",
        )
    return known[key]
