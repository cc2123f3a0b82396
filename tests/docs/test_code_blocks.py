"""Every block of code in the documentation: Python runs as a doctest, commands exist, and those that are marked run."""

from __future__ import annotations

import ast
import doctest
import importlib
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from longtail import JainPropensity
from longtail.cli.arguments import parse_settings
from longtail.cli.program import program
from longtail.errors import InputError
from longtail.recipes.compose import compose
from tests.docs.pages import PAGES, ROOT, blocks, longtail_commands, name_of, transcript

RESULTS = ROOT / "benchmarks" / "results"
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
LANGUAGES = {"python", "py", "console", "text"}  # py: compiled, and its imports looked up, but not run
WITH_PYTHON = [page for page in PAGES if any(block.language == "python" for block in blocks(page))]
RUN = [page for page in PAGES if any(block.run is not None for block in blocks(page))]


def each(pages):
    return pytest.mark.parametrize("page", pages, ids=name_of)


@each(PAGES)
def test_blocks_say_what_they_are(page):
    unknown = {block.language for block in blocks(page)} - LANGUAGES
    assert not unknown, f"the tests know how to check {', '.join(sorted(LANGUAGES))}"


@each(WITH_PYTHON)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=OPTIONS)
    for block in blocks(page):
        if block.language != "python":
            continue
        if ">>>" not in block.text:
            exec(compile(block.text, f"{page}:{block.line}", "exec"), names)
            continue
        test = parser.get_doctest(block.text + "\n", names, name_of(page), str(page), block.line)
        said: list[str] = []
        runner.run(test, out=said.append, clear_globs=False)
        names.update(test.globs)
        assert not runner.summarize(verbose=False).failed, "".join(said)


@each(PAGES)
def test_python_that_is_not_run_compiles_and_imports_what_exists(page):
    for block in blocks(page):
        if block.language != "py":
            continue
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("longtail"):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, alias.name) for alias in node.names), f"{page}:{block.line}"


@each(PAGES)
def test_commands_exist_with_their_options_and_settings(page):
    for block in blocks(page):
        for arguments in longtail_commands(block.text) if block.language == "console" else []:
            command, words = typer.main.get_command(program), list(arguments)
            while getattr(command, "commands", None) and words:
                name = words.pop(0)
                assert name in command.commands, f"{page}:{block.line}: longtail {' '.join(arguments)}"
                command = command.commands[name]
            try:
                given = command.make_context(command.name, words).params
                if command.name in ("train", "estimate") and given["recipe"].islower():
                    compose(given["recipe"], parse_settings(given["settings"] or []), JainPropensity())
            except (SystemExit, InputError):
                pass  # --list and the like end the program at once; the reader's own files are not here
            except Exception as error:
                raise AssertionError(f"{page}:{block.line}: longtail {' '.join(arguments)}: {error}") from error


@pytest.fixture
def shell(tmp_path):
    """Run a line in bash, in a directory of its own, where ``longtail`` is this one."""
    path = tmp_path / "bin" / "longtail"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -m longtail "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    place = tmp_path / "work"
    place.mkdir()
    environment = os.environ | {"PATH": f"{path.parent}:{os.environ['PATH']}", "COLUMNS": "200", "NO_COLOR": "1"}

    def run(line: str) -> str:
        done = subprocess.run(
            ["bash", "-c", line], cwd=place, env=environment, capture_output=True, text=True, timeout=900
        )
        return done.stderr + done.stdout

    return run


@pytest.mark.slow
@each(RUN)
def test_marked_commands_give_what_is_shown(page, shell):
    for block in blocks(page):
        if block.run is None:
            continue
        if block.run:
            shell(block.run)
        for command, shown in transcript(block.text):
            compare(shell(command), shown, command)


def compare(given: str, shown: str, command: str) -> None:
    """Every line that is shown was given, widths of columns aside; ``...`` stands for anything."""
    given_lines = [" ".join(line.split()) for line in given.splitlines()]
    for line in (" ".join(line.split()) for line in shown.splitlines()):
        if line.strip("─ ") in {"", "..."}:
            continue
        pattern = re.escape(line).replace(re.escape("..."), ".*")
        assert any(re.fullmatch(pattern, other) for other in given_lines), f"{command}\nwants: {line}\ngave:\n{given}"


def test_architecture_names_what_exists():
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    from tests.test_architecture import ORDER

    source = ROOT / "src" / "longtail"
    for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.py))`", text):
        base = ROOT if name.startswith(("tests/", "docs/", "src/")) else source
        assert (base / name).exists(), name
    for package in (*ORDER[:-1],):
        assert re.search(rf"`{package}(?:/|\.py)`", text), f"the package {package} is not described"


def test_documentation_stays_short():
    words = {name_of(page): len(page.read_text(encoding="utf-8").split()) for page in PAGES}
    assert words["README.md"] <= 1_200
    assert sum(count for name, count in words.items() if name.startswith("docs/")) <= 40_000


def test_notebooks_have_no_outputs_of_yesterday():
    for path in (ROOT / "examples").glob("*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            assert not cell.get("outputs"), f"{path.name}: clear all outputs before committing"


def test_pages_link_to_files_that_exist():
    """What `make docs` checks for the site holds in the repository too, but for the pages that the build generates."""
    docs = ROOT / "docs"
    generated = {docs / "reference" / "cli.md", docs / "reference" / "recipes.md", RESULTS / "index.md"}
    for page in [*PAGES, *(ROOT / "benchmarks").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            path = Path(os.path.normpath(page.parent / target))
            if "://" not in target and path not in generated and docs / "reference" / "api" not in path.parents:
                assert path.exists(), f"{name_of(page)}: {target}"
