"""Embeddings of rows and labels: GLaS and its baselines."""

from longtail.learners.embedding.embedding_classifier import EmbeddingClassifier

__all__ = ["EmbeddingClassifier"]
