from longtail.features.text_embedding import TextEmbedding as TextEmbedding
from longtail.features.text_embedding import TfidfEmbedding as TfidfEmbedding
from longtail.features.tfidf import Tfidf as Tfidf
from longtail.features.tokenizer import Tokens as Tokens
