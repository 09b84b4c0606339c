"""Prints recipes/recipe.schema.json, made from the configuration classes."""

import sys

from shrink.recipe.schema import recipe_json_schema_text

sys.stdout.write(recipe_json_schema_text())
