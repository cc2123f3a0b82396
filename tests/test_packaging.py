"""What the wheel contains: all packages, and every file that is not a Python module."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "longtail"
FOLDERS = [folder for folder in (SOURCE, *SOURCE.rglob("*")) if folder.is_dir() and folder.name != "__pycache__"]


def test_every_folder_with_modules_is_a_package():
    assert [folder for folder in FOLDERS if any(folder.glob("*.py")) and not (folder / "__init__.py").exists()] == []


def test_every_data_file_matches_a_pattern():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    matched: set[Path] = set()
    for folder in FOLDERS:
        if (folder / "__init__.py").exists():
            name = ".".join(folder.relative_to(SOURCE.parent).parts)
            for pattern in [*patterns["*"], *patterns.get(name, ())]:
                matched.update(folder.glob(pattern))
    files = {path for folder in FOLDERS for path in folder.iterdir() if path.is_file() and path.suffix != ".py"}
    assert {path.suffix for path in files} >= {".pyi", ".xz", ".toml", ".html", ".css", ".js", ".svg", ".typed"}
    assert sorted(str(path.relative_to(SOURCE)) for path in files - matched) == []
