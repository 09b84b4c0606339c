"""Checkpoints of training: the variables of a run, and the folder that keeps them.

A folder holds `checkpoint.json` and the file of arrays that it names, whose name is the hash of
its content. The arrays are written first, so that a kill at any moment leaves the checkpoint
before or the one after.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base import files
from shrink.base.keras_internals import layers_of, loss_scale_state, saved_generator
from shrink.base.types import Array, JsonObject
from shrink.engine.microbatch import MicroBatchTrainer

_VERSION = 1
_MANIFEST = "checkpoint.json"
_SUFFIX = ".zip"
Described = tuple[list[int], str]
"""Shape and dtype of an array in the file."""


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint.

    Attributes:
        content: plain data beside the arrays.
        arrays: by name; each is read from the disk on use.
    """

    content: JsonObject
    arrays: StoredArrays


class CheckpointFolder:
    """The newest checkpoint of one training run.

    Args:
        path: the folder; made with the first checkpoint.

    Attributes:
        note: why a checkpoint that is there was ignored; empty otherwise.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.note = ""

    def write(self, arrays: Iterable[tuple[str, Array]], content: JsonObject) -> None:
        """Replace the checkpoint.

        Args:
            arrays: names and values; only one of them needs to be in memory at a time.
            content: plain data; numbers may be infinite or NaN.

        Raises:
            ResourceError: the disk is full, or the folder cannot be written to.
        """
        described: dict[str, Described] = {}
        unnamed = self.path / f"arrays{_SUFFIX}"
        with (
            files.replacing(unnamed) as temporary,
            zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive,
        ):
            for name, array in arrays:
                described[name] = (list(array.shape), array.dtype.name)
                with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as stream:
                    stream.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        digest = files.sha256(unnamed)
        unnamed.rename(self.path / f"{digest}{_SUFFIX}")
        body = {"version": _VERSION, "sha256": digest, "arrays": described, "content": content}
        manifest = {**body, "digest": files.json_sha256(body)}
        files.write_text(self.path / _MANIFEST, json.dumps(manifest, indent=1))
        for path in self.path.glob(f"*{_SUFFIX}"):
            if path.stem != digest:
                path.unlink(missing_ok=True)

    def read(self) -> Checkpoint | None:
        """Return the checkpoint, or None; a damaged one is a note."""
        self.note = ""
        files.remove_leftovers(self.path)
        manifest = self.path / _MANIFEST
        if not manifest.is_file():
            return None
        try:
            entry = json.loads(manifest.read_text(encoding="utf-8"))
            digest = entry.pop("digest")
            if entry["version"] != _VERSION or digest != files.json_sha256(entry):
                raise ValueError(f"{_MANIFEST} was changed")
            stored = self.path / f"{entry['sha256']}{_SUFFIX}"
            if files.sha256(stored) != entry["sha256"]:
                raise ValueError("its arrays do not match their hash")
            return Checkpoint(entry["content"], StoredArrays(stored, entry["arrays"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            self.note = f"a damaged checkpoint was ignored ({error})"
            return None


class StoredArrays(Mapping[str, Array]):
    """Arrays of a file, read one at a time; `shapes` are known without reading."""

    def __init__(self, path: Path, described: Mapping[str, Described]) -> None:
        self.shapes = {name: tuple(shape) for name, (shape, _) in described.items()}
        self._archive = zipfile.ZipFile(path)
        self._described = described

    def __getitem__(self, name: str) -> Array:
        shape, dtype = self._described[name]
        # bfloat16 is no dtype of numpy's: its name alone says what the bytes are.
        content = np.frombuffer(self._archive.read(name), np.uint8)
        return content.view(tf.as_dtype(dtype).as_numpy_dtype).reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._described)

    def __len__(self) -> int:
        return len(self._described)


class TrainingState:
    """The variables of a training run: of model, optimizer, metrics and hooks.

    A variable whose replicas each hold a value of their own, such as batch-norm statistics and
    metrics, is saved once for each replica, so that nothing is rounded by taking means. Of
    several machines only the chief saves: there it is the mean over all replicas, for metrics
    the sum, which takes all workers to read. Both are linear: as good to continue from.

    Args:
        trainer: compiled, with a built optimizer.
        together: whether it trains on several machines.
    """

    def __init__(self, trainer: MicroBatchTrainer, *, together: bool = False) -> None:
        self._strategy = trainer.distribute_strategy
        self._together = together
        optimizer, scale = trainer.optimizer, []
        if isinstance(optimizer, keras.mixed_precision.LossScaleOptimizer) and optimizer.dynamic:
            scale = loss_scale_state(optimizer)
        # Layers may draw from a `tf.random.Generator` of their own.
        generators = filter(None, map(saved_generator, layers_of(trainer.model)))
        seeds = [trainer.seeds.variable] if trainer.seeds else []
        hooks = trainer.after_update
        self._groups = {
            "model": list(trainer.model.variables),
            "optimizer": [*optimizer.variables, *scale],
            "hook": [v for hook in hooks for v in getattr(hook, "variables", ())],
            "random": [*(generator.state for generator in generators), *seeds],
            "metric": [v for metric in trainer.metrics for v in metric.variables],
        }

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Yield a name and the value of every variable, one at a time."""
        for name, components in self._components():
            yield name, components[0].numpy()

    def take_part(self) -> None:
        """Join the reads that need all workers, while the chief saves."""
        for variables in self._groups.values():
            for variable in variables:
                if _is_own(variable):
                    variable.numpy()

    def mismatch(self, shapes: Mapping[str, tuple[int, ...]]) -> str:
        """Return why saved arrays of these shapes do not fit; empty if they do."""
        names = {name: components[0] for name, components in self._components()}
        if missing := sorted(names.keys() - shapes.keys()):
            return f"it lacks {missing[0]} and {len(missing) - 1} more"
        for name, variable in names.items():
            stored, expected = shapes[name], tuple(variable.shape)
            if stored != expected:
                return f"{name} has the shape {stored}, not {expected}"
        return ""

    def restore(self, arrays: Mapping[str, Array], *, metrics: bool = False) -> None:
        """Assign saved arrays to all variables but the metrics, or to these alone.

        Keras resets metrics at the start of an epoch.
        """
        for name, components in self._components():
            if name.startswith("metric/") == metrics:
                value = arrays[name]
                for component in components:
                    component.assign(value)

    def _components(self) -> Iterator[tuple[str, list[tf.Variable]]]:
        """Yield a name and the variables, one or one per replica, that share its value."""
        for group, variables in self._groups.items():
            for index, variable in enumerate(variables):
                copies = list(self._strategy.experimental_local_results(variable))
                if _is_own(variable) and self._together:
                    yield f"{group}/{index}", [variable]
                elif _is_own(variable):
                    for replica, copy in enumerate(copies):
                        yield f"{group}/{index}/{replica}", [copy]
                else:
                    yield f"{group}/{index}", copies


def _is_own(variable: tf.Variable) -> bool:
    """Whether each replica has a value of its own."""
    return bool(variable.synchronization == tf.VariableSynchronization.ON_READ)
