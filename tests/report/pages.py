"""Reading a report back: its tables, and whether the page is sound."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "link", "input"}


@dataclass
class Cell:
    text: str = ""
    value: float | None = None
    note: str = ""
    best: bool = False


@dataclass
class Row:
    title: str = ""
    cells: list[Cell] = field(default_factory=list)


@dataclass
class Table:
    columns: list[str] = field(default_factory=list)
    groups: list[list[Row]] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        return [row for group in self.groups for row in group]

    def column(self, name: str) -> list[Cell]:
        """Cells below a heading, which may stand first."""
        at = self.columns.index(name) - 1
        return [Cell(row.title) if at < 0 else row.cells[at] for row in self.rows if row.cells]


class Page(HTMLParser):
    """A page taken apart; refuses tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, Table] = {}
        self.ids: list[str] = []
        self.references: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.tags: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self._table: Table | None = None
        self._cell: Cell | None = None
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag, attrs):
        values = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in values.items()]
        if "id" in values:
            self.ids.append(values["id"])
        self.references += [values[name] for name in ("aria-labelledby",) if name in values]
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self._table = self.tables.setdefault(values["id"], Table())
        if self._table is None:
            return
        if tag == "tbody":
            self._table.groups.append([])
        elif tag == "tr" and "tbody" in self._open:
            self._table.groups[-1].append(Row())
        elif tag == "td":
            self._cell = Cell(best=values.get("class") == "best")
            if "tbody" in self._open:
                self._table.groups[-1][-1].cells.append(self._cell)
            else:
                self._table.columns.append("")
        elif tag == "th" and "thead" in self._open:
            self._table.columns.append("")
        elif tag == "data" and self._cell is not None:
            self._cell.value = float(values["value"])

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag, tag
        if tag == "table":
            self._table = None
        elif tag == "td":
            self._cell = None

    def handle_data(self, data):
        if self._open and self._open[-1] in ("style", "script"):
            return
        self.text += data
        if self._table is None:
            return
        if self._cell is not None:
            if "small" in self._open:
                self._cell.note += data
            elif self._open[-1] != "span":
                self._cell.text += data
        elif "thead" in self._open and "th" in self._open:
            self._table.columns[-1] += data
        elif "tbody" in self._open and "th" in self._open:
            self._table.groups[-1][-1].title += data
