"""What the papers printed: their tables as data, one file a paper."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from longtail.errors import ParameterError
from longtail.recipes.settings import near


@dataclass(frozen=True)
class Row:
    """What a paper printed for one method on one data set."""

    data: str
    method: str
    values: Mapping[str, float]
    remark: str = ""
    broken: tuple[str, ...] = ()  # columns whose printed numbers can't be right


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper.

    Parameters
    ----------
    key : str
        Paper and number, such as ``"pw-3"`` or ``"ranknet-figure-2"``.
    paper : str
        Title, authors and year.
    shows : str
        What it is about.
    metrics : tuple of str
        Its columns.
    rows : tuple of Row
        Empty where our text of the paper has no numbers.
    note : str
        Why its numbers can't be compared with ours as they stand.
    """

    key: str
    paper: str
    shows: str
    metrics: tuple[str, ...]
    rows: tuple[Row, ...] = field(default=())
    note: str = ""

    @property
    def name(self) -> str:
        """The paper's short name."""
        return self.key.partition("-")[0]

    @property
    def number(self) -> str:
        """Number of the table, or ``"figure-2"``."""
        return self.key.partition("-")[2]

    @property
    def datasets(self) -> list[str]:
        """Data sets of its rows, in their order."""
        return list(dict.fromkeys(row.data for row in self.rows))

    @property
    def methods(self) -> list[str]:
        """Methods of its rows, in their order."""
        return list(dict.fromkeys(row.method for row in self.rows))

    def is_broken(self, data: str, method: str, metric: str) -> bool:
        """Whether what the paper printed there can't be right."""
        return any(metric in row.broken for row in self.rows if (row.data, row.method) == (data, method))

    def value(self, data: str, method: str, metric: str, base: str | None = None) -> float | None:
        """A number of the paper, None where it has none.

        Where it prints what a method gains over `base`, the sum of the two.
        """
        found = next((row for row in self.rows if (row.data, row.method) == (data, method)), None)
        if found is None:
            return None
        gain = found.values.get(f"{metric} gain pp")
        if metric not in found.values and gain is not None and base is not None:
            plain = self.value(data, base, metric)
            return None if plain is None else round(plain + gain, 4)
        return found.values.get(metric)


@cache
def tables() -> dict[str, Table]:
    """All tables and figures by their keys.

    Examples
    --------
    >>> tables()["pw-3"].value("Amazon-670K", "DiSMEC", "P@1")
    44.7
    """
    found = {}
    folder = resources.files("longtail.app") / "papers"
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if not file.name.endswith(".toml"):
            continue
        content = tomllib.loads(file.read_text(encoding="utf-8"))
        year = f", {content['year']}" if "year" in content else ""
        paper = f"{content['title']} ({content['authors']}{year})"
        for table in content["tables"]:
            rows = tuple(
                Row(row["data"], row["method"], row["values"], row.get("remark", ""), tuple(row.get("broken", ())))
                for row in content.get("rows", ())
                if row["table"] == table["id"]
            )
            key = f"{content['paper']}-{table['id']}"
            found[key] = Table(key, paper, table["shows"], tuple(table["metrics"]), rows, table.get("note", ""))
    return found


def find_table(key: str) -> Table:
    """A table by its key.

    Raises
    ------
    ParameterError
        With the nearest key, if there is none.
    """
    known = tables()
    if key not in known:
        raise ParameterError(
            "TABLE", key, f"is no table{near(key.lower(), list(known))}: longtail reproduce --list names them all"
        )
    return known[key]
