"""Tf-idf of words and word n-grams."""

from longtail.features.tfidf.tfidf import Tfidf

__all__ = ["Tfidf"]
