"""The reader of recipes: YAML with positions and limits."""
