"""Saved models: the model directory, its format versions and checksums, and memory-mapped loading."""

from longtail.store.model import Model, load
from longtail.store.registry import register

__all__ = ["Model", "load", "register"]
