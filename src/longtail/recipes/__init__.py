"""The systems of the papers by name: each a learner composed with its published constants."""

from longtail.recipes.catalogue import find, recipe, recipes
from longtail.recipes.definition import Recipe
from longtail.recipes.settings import configure

__all__ = ["Recipe", "configure", "find", "recipe", "recipes"]
