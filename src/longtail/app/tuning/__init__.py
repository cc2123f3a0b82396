"""Choosing well on one's own data: recipes and their parameters, searched within a time."""
