"""Views of label trees: text, JSON, Graphviz, and an interactive HTML page."""

from longtail.tree_view.branches import Branch, as_json, leading_to, top_of
from longtail.tree_view.dot import dot
from longtail.tree_view.outline import Outline, Summary, outline
from longtail.tree_view.page import page
from longtail.tree_view.text import lines

__all__ = ["Branch", "Outline", "Summary", "as_json", "dot", "leading_to", "lines", "outline", "page", "top_of"]
