"""The names that an artifact's signature gives to a Keras model's inputs."""

from __future__ import annotations

import re
from collections.abc import Sequence


def signature_names(names: Sequence[str]) -> list[str]:
    """Return one legal and unique signature name for each Keras input name, in the same order."""
    plain = [re.sub(r"\W", "_", name) for name in names]
    if len(set(plain)) == len(plain):
        return plain
    return [f"{name}_{index}" for index, name in enumerate(plain)]
