"""Features of texts: tf-idf, tokens, and embeddings of pretrained encoders."""

from longtail import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
