"""Label trees to look at: as text, as JSON, as a drawing for Graphviz, and as a page that opens node by node."""

from longtail.app.tree.branches import Branch, as_json, leading_to, top_of
from longtail.app.tree.dot import dot
from longtail.app.tree.outline import Outline, Summary, outline
from longtail.app.tree.page import page
from longtail.app.tree.text import lines

__all__ = ["Branch", "Outline", "Summary", "as_json", "dot", "leading_to", "lines", "outline", "page", "top_of"]
