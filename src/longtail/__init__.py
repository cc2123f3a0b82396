"""longtail: extreme multi-label classification for rare labels and incomplete annotations."""

from longtail import lazy

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
__all__ += ["__version__"]
