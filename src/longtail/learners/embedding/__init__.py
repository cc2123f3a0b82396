"""Embeddings of rows and labels: GLaS, and what it is compared with."""

from longtail.learners.embedding.embedding_classifier import EmbeddingClassifier

__all__ = ["EmbeddingClassifier"]
