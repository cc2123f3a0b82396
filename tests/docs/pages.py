"""The Markdown pages of the documentation, and the code in them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = re.compile(r"<!-- run(?:: (.+))? -->")


@dataclass(frozen=True)
class Block:
    """A fenced block of code: its language, its lines, where it begins, and what runs before it, if it is run."""

    language: str
    text: str
    line: int
    run: str | None


def name_of(page: Path) -> str:
    """Path of a page inside the repository."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    start = None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if start is None:
            start = number
            continue
        marked = RUN.fullmatch(lines[start - 1]) if start else None
        run = None if marked is None else marked[1] or ""
        found.append(Block(lines[start][3:].strip(), "\n".join(lines[start + 1 : number]), start + 1, run))
        start = None
    assert start is None, f"{page}: the block of line {start} is not closed"
    return found


def transcript(text: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output that is shown."""
    found: list[tuple[str, list[str]]] = []
    lines = iter(text.splitlines())
    for line in lines:
        if not line.startswith("$ "):
            found[-1][1].append(line)
            continue
        command = line[2:]
        while command.endswith("\\"):
            command += "\n" + next(lines)
        if here := re.search(r"<<'(\w+)'", command):
            for line in lines:
                command += "\n" + line
                if line == here[1]:
                    break
        found.append((command, []))
    return [(command, "\n".join(output)) for command, output in found]


def longtail_commands(text: str) -> list[list[str]]:
    """The arguments of every call of ``longtail`` in a console block."""
    found = []
    for command, _ in transcript(text):
        lexer = shlex.shlex(command.partition("<<")[0], posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        part: list[str] = []
        for token in [*lexer, ";"]:
            if set(token) <= set("|&;<>"):
                if "longtail" in part:
                    found.append(part[part.index("longtail") + 1 :])
                part = []
            else:
                part.append(token)
    return found
