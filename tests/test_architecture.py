"""The packages of the library: who imports whom, how fast it starts, and what must never occur in it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import longtail

SOURCE = Path(longtail.__file__).parent
ORDER = (
    "lazy",
    "errors",
    "topk",
    "config",
    "validation",
    "kernels",
    "runtime",
    "data",
    "datasets",
    "features",
    "propensity",
    "metrics",
    "losses",
    "weighting",
    "learners",
    "rerank",
    "store",
    "recipes",
    "templates",
    "tree_view",
    "studies",
    "tuning",
    "reproduce",
    "plots",
    "report",
    "serve",
    "demo",
    "cli",
    "annif",
    "__main__",
)
UPWARDS = {("serve/__main__.py", "longtail.cli.main")}
"""``python -m longtail.serve`` is the command `longtail serve`."""
HEAVY = {
    "sklearn", "numba", "scipy", "matplotlib", "jinja2", "pandas", "zstandard", "tokenizers",
    "torch", "transformers", "safetensors", "faiss", "fastapi", "uvicorn", "pydantic", "prometheus_client", "ray",
    "optuna",
}  # fmt: skip
WRITTEN = {".py", ".toml", ".html", ".js", ".css"}
MODULES = sorted(SOURCE.rglob("*.py"))
SEEDED = {"default_rng", "Generator", "SeedSequence", "BitGenerator", "PCG64", "Philox"}

every_module = pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))


def package(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(tree: ast.AST, path: Path) -> Iterator[str]:
    """Full names of everything of longtail that a module imports, wherever in it the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            assert node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@every_module
def test_imports_go_one_way(path):
    mine = package(path)
    if path == SOURCE / "__init__.py":
        return
    assert mine in ORDER, f"{mine} is not in ORDER"
    for name in imported(ast.parse(path.read_text()), path):
        parts = name.split(".")
        if parts[0] != "longtail" or parts[1:] == ["__version__"]:
            continue
        assert len(parts) > 1, f"{path.name} imports the whole of longtail"
        assert parts[1] in ORDER, f"{path.name} imports {name}: import it from its own package"
        is_excepted = (path.relative_to(SOURCE).as_posix(), name) in UPWARDS
        assert is_excepted or ORDER.index(parts[1]) <= ORDER.index(mine), f"{mine} may not import {name}"


def test_the_page_on_the_architecture_has_the_packages_in_this_order():
    """Where the repository is at hand, and not only what was installed."""
    page = Path(__file__).parents[1] / "docs" / "explanation" / "architecture.md"
    rows = [line.split("|")[1] for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    first = rows[: next(number for number, row in enumerate(rows) if "annif.py" in row) + 1]
    packages = [name.removesuffix(".py") for row in first for name in re.findall(r"`([a-z_]+(?:\.py)?)/?`", row)]
    assert packages == [name for name in ORDER if name != "__main__"]


@every_module
def test_functions_are_short(path):
    """Under 60 lines, docstrings aside."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            said = node.body[0] if ast.get_docstring(node) else None
            text = 0 if said is None else (said.end_lineno or 0) - said.lineno + 1
            assert (node.end_lineno or 0) - node.lineno + 1 - text < 60, node.name


def test_files_are_of_a_readable_size():
    """Where the repository is at hand, its tests, benchmarks, examples and pages too."""
    root = Path(__file__).parents[1]
    files = [file for file in SOURCE.rglob("*") if file.is_file() and file.suffix in WRITTEN]
    files += [*(root / "tests").rglob("*.py"), *(root / "benchmarks").glob("*.py"), *(root / "examples").glob("*.py")]
    files += [*(root / "docs").rglob("*.md"), *(root / "docs").glob("*.py")]
    assert {file.name for file in files if len(file.read_text(encoding="utf-8").splitlines()) > 500} == set()


@every_module
def test_public_things_say_what_they_are(path):
    tree = ast.parse(path.read_text())
    public = [tree, *_public_definitions(tree)]
    silent = [getattr(node, "name", "module") for node in public if not ast.get_docstring(node)]
    assert not silent


def _public_definitions(node: ast.Module | ast.ClassDef) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    for inner in node.body:
        if isinstance(inner, ast.ClassDef | ast.FunctionDef) and not inner.name.startswith("_"):
            yield inner
            if isinstance(inner, ast.ClassDef):
                yield from _public_definitions(inner)


@every_module
def test_what_never_occurs_in_the_library(path):
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        place = f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}"
        assert not isinstance(node, ast.Assert), f"{place}: assert; raise an error of longtail.errors"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("print", "eval", "exec", "input"), f"{place}: {node.func.id}()"
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("np.random", "numpy.random"):
            assert node.attr in SEEDED, f"{place}: global random state; use np.random.default_rng(seed)"
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert ast.unparse(node.value) == "False", f"{place}: pickle"
    roots = {name.split(".")[0] for name in imported(tree, path)}
    assert not roots & {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "random", "shelve", "marshal"}


@every_module
def test_constants_of_kernels_stand_beside_kernels(path):
    """Code is compiled again when a file that names numba or the jit module changes, and only then."""
    if "longtail.kernels.jit" not in path.read_text():
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("longtail"):
            constants = [alias.name for alias in node.names if alias.name.isupper()]
            source = SOURCE.parent.joinpath(*node.module.split(".")).with_suffix(".py")
            assert not constants or "numba" in source.read_text() or "kernels.jit" in source.read_text(), constants


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


STARTS = {
    "import longtail": "import longtail",
    "longtail --help": "import sys; sys.argv = ['longtail', '--help']\n"
    "from longtail.cli import main\ntry: main()\nexcept SystemExit: pass",
}


@pytest.mark.parametrize("code", STARTS.values(), ids=STARTS)
def test_starts_without_what_is_heavy(code):
    loaded = run(f"{code}\nimport sys; print('\\nLOADED', *sys.modules)").stdout.rpartition("LOADED")[2].split()
    assert "longtail" in loaded
    assert not {name.split(".")[0] for name in loaded} & HEAVY


@pytest.mark.parametrize("code", STARTS.values(), ids=STARTS)
def test_starts_in_half_a_second(code):
    """In processor time, which equals wall-clock time on an idle machine, because other tests run in parallel."""
    run(code)
    fastest = float("inf")
    for _ in range(8):
        before = os.times()
        run(code)
        after = os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        fastest = min(fastest, used)
        if fastest < 0.5:
            return
    pytest.fail(f"the fastest of 8 starts took {fastest:.2f} s")


def test_everything_promised_is_there():
    for name in longtail.__all__:
        assert getattr(longtail, name) is not None
    assert set(dir(longtail)) == set(longtail.__all__)
    with pytest.raises(AttributeError):
        longtail.nothing  # noqa: B018
