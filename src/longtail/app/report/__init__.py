"""The report: several models on the same test rows, as one HTML file that needs nothing else."""

from longtail.app.report.gather import ModelResults, Report, check_models, gather, load_models, shared_names
from longtail.app.report.render import render, write

__all__ = ["ModelResults", "Report", "check_models", "gather", "load_models", "render", "shared_names", "write"]
