"""Pictures in folders by class: `path/<class>/*` or `path/{train,validation,test}/<class>/*`."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.folders import PICTURE_ENDINGS, PictureFolders, find_pictures, shown
from shrink.data.sources.decoding import PictureDecoder, read_first_picture
from shrink.data.splits import split_examples
from shrink.errors import DataError

_PARTS = ("train", "validation", "test")
_BITMAPS = (".bmp", ".gif")
_CHUNK = 256
# Within a batch; the pipeline reads several batches at once beside that.
_PARALLEL_DECODES = 16


class PictureExamples:
    """Pictures with the number of their class as the label; each is decoded when it is asked for.

    Args:
        files: absolute paths.
        labels: int64 (n,).
        decoder: decides shape and channels.
    """

    def __init__(self, files: Sequence[str], labels: np.ndarray, decoder: PictureDecoder) -> None:
        self._files = files
        self._decoder = decoder
        self.labels: np.ndarray | None = labels
        self._targets = labels

    def __len__(self) -> int:
        return len(self._files)

    @property
    def input_spec(self) -> tf.TensorSpec:
        """One picture, uint8 (height, width, channels)."""
        return self._decoder.spec

    @property
    def target_spec(self) -> tf.TensorSpec:
        """One label."""
        return tf.TensorSpec((), tf.int64)

    def load(self, indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return a batch as tensors; pictures are decoded in parallel."""
        pictures = tf.map_fn(
            self._decoder.decode,
            tf.gather(self._paths, indices),
            fn_output_signature=self._decoder.spec,
            parallel_iterations=_PARALLEL_DECODES,
        )
        return pictures, tf.gather(tf.constant(self._targets), indices)

    def arrays(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return a batch as arrays.

        Raises:
            DataError: a picture is missing, corrupt, or of another size.
        """
        chosen = np.asarray(indices, np.int64)
        try:
            pictures, labels = self._load_compiled(tf.constant(chosen))
        except tf.errors.OpError as error:
            found = self._explain_each(chosen)
            if found is None:
                raise
            raise found from error
        return pictures.numpy(), labels.numpy()

    def explain(self, indices: np.ndarray) -> DataError | None:
        """Return the error of the first of these pictures that cannot be used, or None."""
        for start in range(0, len(indices), _CHUNK):
            try:
                self.arrays(indices[start : start + _CHUNK])
            except DataError as error:
                return error
        return None

    def _explain_each(self, indices: np.ndarray) -> DataError | None:
        with tf.device("CPU:0"):
            errors = (self._decoder.explain(self._files[index]) for index in indices)
            return next((error for error in errors if error is not None), None)

    @functools.cached_property
    def _paths(self) -> tf.Tensor:
        with tf.init_scope(), tf.device("CPU:0"):
            return tf.constant([os.fsencode(file) for file in self._files], tf.string)

    @functools.cached_property
    def _load_compiled(self) -> tf.types.experimental.GenericFunction:
        # One op at a time, without a graph, decoding takes five times as long.
        def load(indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            with tf.device("CPU:0"):
                return self.load(indices)

        return tf.function(load, input_signature=[tf.TensorSpec([None], tf.int64)])


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open the pictures under `config.path`; none but the first is read.

    Raises:
        DataError: no such folder, no pictures, a class that is missing in a part, a single
            class, or a first picture that cannot be decoded.
    """
    folders = find_pictures(Path(config.path or "").expanduser().absolute())
    _check_classes(folders, needs_two=config.target == "label")
    names = tuple(next(iter(folders.parts.values())))
    parts = {part: _numbered(folders, part) for part in folders.parts}
    first_part = parts.get("all") or parts["train"]
    decoder = _decoder(config, first_part[0][0], folders)
    divided = _divided(parts, folders, config, seed)
    opened = {part: PictureExamples(*divided[part], decoder) for part in _PARTS}
    return Dataset(
        train=opened["train"],
        validation=opened["validation"],
        test=opened["test"],
        class_names=names,
        num_classes=len(names),
        notes=folders.notes(),
    )


_Numbered = tuple[Sequence[str], np.ndarray]


def _check_classes(folders: PictureFolders, needs_two: bool) -> None:
    root = folders.root
    if "all" not in folders.parts and "train" not in folders.parts:
        given = ", ".join(sorted(folders.parts))
        raise DataError(
            f"there is {given}, and no folder train", subject=shown(root), hint="add a folder train"
        )
    every = {name for classes in folders.parts.values() for name in classes}
    for part, classes in folders.parts.items():
        for name in sorted(every):
            if not classes.get(name):
                place = "" if part == "all" else f" of {part}"
                raise DataError(
                    f"the class {shown(name)!r}{place} has no pictures",
                    subject=shown(root),
                    hint=f"add pictures ({', '.join(PICTURE_ENDINGS)}) or remove the folder",
                )
    if needs_two and len(every) == 1:
        raise DataError(
            f"a single class, {shown(next(iter(every)))!r}: nothing to tell apart",
            subject=shown(root),
            hint="add a folder for each class, or set data.target: input for an autoencoder",
        )


def _numbered(folders: PictureFolders, part: str) -> _Numbered:
    classes = folders.parts[part]
    files = [f"{folders.root}/{file}" for name in classes for file in classes[name]]
    counts = [len(pictures) for pictures in classes.values()]
    return files, np.repeat(np.arange(len(counts), dtype=np.int64), counts)


def _divided(
    parts: Mapping[str, _Numbered], folders: PictureFolders, config: DataConfig, seed: int
) -> dict[str, _Numbered]:
    """Return files and labels of all three parts; those not given come from the training one."""
    files, labels = parts.get("all") or parts["train"]
    try:
        split = split_examples(
            labels,
            len(files),
            seed,
            validation=0.0 if "validation" in parts else config.validation_split,
            test=0.0 if "test" in parts else config.test_split,
        )
    except DataError as error:
        raise DataError(error.message, subject=shown(folders.root), hint=error.hint) from error
    derived = {"train": split.train, "validation": split.validation, "test": split.test}
    taken = {part: ([files[i] for i in rows], labels[rows]) for part, rows in derived.items()}
    return {**taken, **{part: parts[part] for part in ("validation", "test") if part in parts}}


def _decoder(config: DataConfig, first: str, folders: PictureFolders) -> PictureDecoder:
    height, width, channels = read_first_picture(first)
    if config.image_size is not None:
        height, width = config.image_size
    return PictureDecoder(
        height=height,
        width=width,
        channels=config.channels or channels,
        resize=config.image_size is not None,
        first=first,
        has_bitmaps=any(file.lower().endswith(_BITMAPS) for file in folders.files()),
    )
