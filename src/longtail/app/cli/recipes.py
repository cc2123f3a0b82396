"""`longtail recipes`: the systems that can be trained by name."""

from __future__ import annotations

from longtail.app.cli.console import give_table, guarded


@guarded
def recipes() -> None:
    """List the recipes: systems from the papers, with their published constants."""
    from longtail.recipes import recipes as known

    rows = [[recipe.name, recipe.summary, recipe.paper or ""] for recipe in known()]
    give_table("Recipes", ["name", "what it does", "paper"], rows, text_columns=3)
