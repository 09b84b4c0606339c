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
    """Also what each stage's worker prints, as it does."""


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
    """Runs at a time, in memory of their own."""


class SearchKeys(PlaceKeys, total=False):
    """Keywords of `shrink.search`."""

    flash: int | str
    """The most that the .tflite file may take: "64KB"."""
    ram: int | str
    """The most that the arena in TFLite Micro may take: "40KB"."""
    latency: float | str
    """The most that an inference may take on this host, or as the recipe's latency.command measures
    it: "5ms"."""
    max_drop: float
    """What the main metric may lose against the baseline."""
    time: float | str
    """Time for everything, the last measurement too: "30m"."""
    trials: int
    """Points trained."""
    jobs: int
    """Workers at a time, each in a process of its own."""
    storage: str
    """What several workers share: a file on a shared disk, or the URL of a database."""
    sampler: str
    """How points are chosen: tpe, nsga2 or random."""
    seed: int
    """Of the sampler."""
    set: Mapping[str, object]
    """Keys of the recipe to change: {"train.epochs": 5}."""
    custom_objects: PathGiven
    """A Python file whose classes and functions the model names; its code runs."""


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
