"""Recipes: one file a method, put together from the parts. `RECIPES` is what `whet train NAME` chooses from."""
