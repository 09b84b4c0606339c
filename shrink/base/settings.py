"""The text of settings that distinguish the runs of a sweep."""

from __future__ import annotations

from collections.abc import Mapping

SEED = "training.seed"
"""The one in which the repeats of a combination differ."""


def in_words(settings: Mapping[str, str]) -> str:
    """Return settings for people: `prune.sparsity = 0.3, training.seed = 1`."""
    return ", ".join(f"{key} = {text}" for key, text in settings.items())
