"""The report: several models on the same test rows, as one self-contained HTML file."""

from longtail.report.gather import ModelResults, Report, check_models, gather, load_models
from longtail.report.render import render, write

__all__ = ["ModelResults", "Report", "check_models", "gather", "load_models", "render", "write"]
