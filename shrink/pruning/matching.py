"""Names of layers in a recipe: a pattern that fits none is a mistake, not nothing."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence

from shrink.base.errors import RecipeError
from shrink.base.suggest import hint_for


def refuse_unmatched(patterns: Iterable[str], names: Sequence[str], key: str) -> None:
    """Raise `RecipeError` for a shell pattern that fits none of the layers that it could.

    Args:
        patterns: of the recipe.
        names: of the layers that the key is about.
        key: where the patterns stand, such as `prune.exclude`.
    """
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            raise RecipeError(
                f"{pattern!r} fits no layer that could be meant",
                subject=key,
                hint=hint_for(pattern, names) or "leave it out",
            )
