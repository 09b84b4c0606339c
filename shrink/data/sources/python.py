"""Examples from a function in a Python file: a `tf.data.Dataset`, or anything that can be iterated.

The function takes no arguments and returns the examples, `(input, target)` each, or a mapping of
them by split (`train`, `validation`, `test`). Inputs and targets may be tuples or mappings of
arrays. They are read once, on the CPU, and kept in the cache folder. With `data.audio` an input is
a clip, with `data.targets: [boxes]` a target has the boxes of a picture, and where the input is a
mapping `data.slices` may name its other keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
import tensorflow as tf

from shrink.base.cache import key_of
from shrink.base.errors import DataError, ModelError
from shrink.base.packages import versions
from shrink.data.boxes import box_rows
from shrink.data.cache import Example, spooled
from shrink.data.config import AudioConfig, DataConfig
from shrink.data.dataset import Dataset
from shrink.data.examples import SPLIT_NAMES
from shrink.data.fingerprint import fingerprint
from shrink.data.folders import ALL
from shrink.data.front_end import features, fitted
from shrink.data.sources.columns import open_spooled
from shrink.model.user_modules import blaming, function_of

BOXES = ("boxes",)
"""`data.targets` of a function whose targets are boxes."""
_HINT = "return a tf.data.Dataset or an iterable of (input, target)"
_Returned: TypeAlias = Iterable[object] | Mapping[str, Iterable[object]]
"""What the user's function has to return: examples, or examples by split."""


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Run the function that `config.path` names, unless its examples are in the cache folder.

    Raises:
        DataError: no such file or function, it raised, or its examples cannot be trained on.
    """
    text = config.path or ""
    path, _, function = text.rpartition(":")
    source = _Function(Path(path).expanduser(), function)
    inputs, targets = config.inputs or ("x",), config.targets or ("y",)
    named = dict.fromkeys(one.column for one in config.slices or () if one.column)
    columns = tuple(name for name in named if name not in (*inputs, *targets))
    has_boxes = targets == BOXES and config.target == "label"
    groups = [(*inputs, *columns), *([targets] if config.target == "label" else [])]
    names = [name for group in groups for name in group]
    front_end = "" if config.audio is None else config.audio.model_dump_json()

    def key() -> str:
        return key_of(fingerprint(config), json.dumps(versions()), config.target, front_end, *names)

    def flat_splits() -> dict[str, Iterator[Example]]:
        return {
            split: (
                _fed(example, config.audio, has_boxes, source)
                for example in _flat(one, groups, source)
            )
            for split, one in source.splits().items()
        }

    with tf.device("CPU:0"):  # here a generator's body runs: accelerators are for training
        spools = spooled(key, flat_splits, names)
    dataset = open_spooled(source.path, spools, config, seed)
    if has_boxes:
        classes = tuple(config.classes or ())
        return replace(dataset, has_boxes=True, class_names=classes, notes=())
    return dataset


def _fed(
    example: Example, audio: AudioConfig | None, has_boxes: bool, source: _Function
) -> Example:
    """Return an example with the model's input in place of a clip, and boxes with their areas."""
    fed = list(example)
    if audio is not None:
        clip = fed[0]
        if clip.ndim != 1 or clip.dtype.kind != "f":
            raise source.error(
                f"with data.audio its input is {clip.dtype} of shape {clip.shape}",
                "its first input is a clip: real numbers from -1 to 1 of shape (samples,)",
            )
        fed[0] = features(fitted(clip, audio.clip_samples)[None], audio)[0]
    if has_boxes:
        rows = fed[-1]
        if rows.ndim != 2 or rows.shape[1] != 5:
            raise source.error(
                f"its boxes are of shape {rows.shape}",
                "return rows of left, top, right, bottom and class, as many for each picture; a "
                "row of class -1 is no box",
            )
        fed[-1] = box_rows(rows[:, :4], rows[:, 4])
    return fed


class _Function:
    """The user's function, run when its examples are first needed."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name, self.subject = path, name, f"{path}:{name}"

    def splits(self) -> dict[str, Iterable[object]]:
        """Return the examples of each split, or of the split `all` where they are not divided."""
        returned = self._call()
        if not isinstance(returned, Mapping):
            return {ALL: returned}
        unknown = sorted(set(returned) - set(SPLIT_NAMES))
        if unknown or not returned:
            raise self.error(f"it returned the parts {', '.join(map(str, returned)) or 'none'}")
        return dict(returned)

    def _call(self) -> _Returned:
        try:
            function = function_of(self.path, self.name)
        except ModelError as error:
            hint = error.hint or "path: file.py:function"
            raise DataError(error.message, subject=self.path, hint=hint) from error
        with blaming("it raised ", self.subject, _HINT, DataError):
            return cast(_Returned, function())

    def error(self, message: str, hint: str | None = None) -> DataError:
        """Return an error that names the function."""
        return DataError(message, subject=self.subject, hint=hint or _HINT)


def _flat(
    examples: Iterable[object], groups: Sequence[tuple[str, ...]], source: _Function
) -> Iterator[Example]:
    """Yield the arrays of each example: those of the input, then those of the target."""
    if isinstance(examples, tf.data.Dataset):
        if int(examples.cardinality()) == tf.data.INFINITE_CARDINALITY:
            raise source.error("its data set never ends; end it with .take(n)")
        examples = examples.as_numpy_iterator()
    with blaming("its examples raised ", source.subject, _HINT, DataError):
        for example in examples:
            values = (example,) if len(groups) == 1 else example
            if not isinstance(values, tuple) or len(values) != len(groups):
                raise source.error("an example is not a pair (input, target)")
            yield [
                np.asarray(array)
                for value, names in zip(values, groups, strict=True)
                for array in _side(value, names, source)
            ]


def _side(value: object, names: tuple[str, ...], source: _Function) -> list[object]:
    if isinstance(value, Mapping):
        missing = [name for name in names if name not in value]
        if missing:
            present = ", ".join(map(str, value))
            raise source.error(f"an example has no {missing[0]}; it has {present}")
        return [value[name] for name in names]
    arrays = list(value) if isinstance(value, tuple) else [value]
    if len(arrays) != len(names):
        raise source.error(f"an example has {len(arrays)} arrays for {', '.join(names)}")
    return arrays
