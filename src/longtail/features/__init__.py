"""Features of texts: tf-idf, tokens, and embeddings of pretrained encoders."""

from longtail.features.text_embedding import TextEmbedding, TfidfEmbedding
from longtail.features.tfidf import Tfidf
from longtail.features.tokenizer import Tokens

__all__ = ["TextEmbedding", "Tfidf", "TfidfEmbedding", "Tokens"]
