"""A model that a worker loads: its path, its arguments, and whether it is trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

ModelKind = Literal["builder", "keras", "h5", "savedmodel", "tflite"]


@dataclass(frozen=True)
class Trust:
    """What the scan lets pass beyond Keras' own.

    Attributes:
        custom_objects: a Python file that the recipe or the command names; None for none.
        everything: `--trust-model`: layers, functions and operators are not looked at. The frame
            around them still is: archives, HDF5, sizes.
    """

    custom_objects: Path | None = None
    everything: bool = False


NO_TRUST = Trust()


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from.

    Attributes:
        kind: of the file or folder; a builder is a function of a Python file.
        path: of the file or folder.
        function: that builds it; None for any other kind.
        arguments: of the function, by name; what it does not take scales the model.
        trust: what its file may hold that is not Keras' own.
    """

    kind: ModelKind
    path: Path
    function: str | None = None
    arguments: Mapping[str, float] = field(default_factory=dict)
    trust: Trust = NO_TRUST
