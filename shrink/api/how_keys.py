"""The keywords of functions that do not take them from a recipe's sections: see `keys.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from shrink.api.kinds import PathGiven


class PlaceKeys(TypedDict, total=False):
    """Where to write, and what to say."""

    output: PathGiven
    """The run folder, by default runs/NAME; or a .tflite file for the artifact alone."""
    force: bool
    """Write into a folder of another recipe's run or of other files."""
    trust_model: bool
    """Load the model files whatever they hold; the report says so."""
    quiet: bool
    """Nothing on stderr but errors."""
    verbose: bool
    """Also print the output of each stage's worker."""


class HowKeys(PlaceKeys, total=False):
    """How to run."""

    no_cache: bool
    """Compute every stage again and store it anew."""


class RunKeys(HowKeys, total=False):
    """Keywords of `shrink.run`."""

    set: Mapping[str, object]
    """Keys of the recipe to change: {"prune.sparsity": 0.7}."""
    from_stage: str
    """Compute this stage and all after it again, whatever the store holds."""
    until: str
    """Stop after this stage; gates on later ones are not checked."""


class SweepKeys(HowKeys, total=False):
    """Keywords of `shrink.sweep`."""

    set: Mapping[str, object]
    """Keys of the recipe; a list is several values: {"prune.sparsity": [0.3, 0.5]}."""
    jobs: int
    """Runs at a time, each in a process of its own."""


class ToolKeys(TypedDict, total=False):
    """Keywords of `shrink.profile`."""

    memory_limit: int | str
    """Memory per device, such as "2GB"."""
    trace: PathGiven
    """A folder for a profile that TensorBoard shows."""
    trust_model: bool
    """Load the model file whatever it holds."""
    custom_objects: PathGiven
    """A Python file whose classes and functions the model names; its code runs."""
    quiet: bool
    """Nothing on stderr but errors."""
