"""What is kept: the model directory, its versions and checksums, and memory-mapped loading."""

from longtail.store.model import Model, load
from longtail.store.registry import register

__all__ = ["Model", "load", "register"]
