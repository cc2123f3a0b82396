"""Helpers of the tests of the page; where an extra is missing, they are all skipped."""

import pytest

for needed in ("fastapi", "uvicorn", "httptools", "prometheus_client"):
    pytest.importorskip(needed, reason="needs the extra serve")
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python")

TEXT = "A small tiling window manager for X, written in C and driven by the keyboard."
OTHER = "A Perl module that reads and writes comma-separated files, with documentation."
EVIL = "<img src=x onerror=alert(1)>"


def percents(chances):
    """Probabilities as the page writes them: none is ever certain."""
    ends = {True: "<\u202f1\u202f%", False: ">\u202f99\u202f%"}
    return [f"{round(100 * one)}\u202f%" if 0.01 <= one <= 0.99 else ends[one < 0.5] for one in chances]


def marked(page, kind=""):
    return page.locator(f"#marks mark{kind}").all_text_contents()


def expect(locator):
    return playwright.expect(locator)
