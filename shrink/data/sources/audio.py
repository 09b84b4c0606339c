"""Audio clips in WAV files, in folders by class or in a list; the front end is applied as read."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from pathlib import Path

import numpy as np
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.base.file_hashes import hash_files
from shrink.data.arrays import load_arrays
from shrink.data.audio_config import AudioConfig
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.examples import SPLIT_NAMES, Batch, first_problem
from shrink.data.folders import ALL, CLIPS, Names, shown
from shrink.data.front_end import features, fitted
from shrink.data.membership import Membership, contents_of
from shrink.data.sources.images import divided, in_folders, listed_images, sliced
from shrink.data.wav import Clip, read_wav


class ClipExamples:
    """Clips with a label or other target each; read and transformed when they are asked for.

    Args:
        files: absolute paths.
        targets: int64 (n,) labels, or float32 (n, k).
        config: the front end.
    """

    def __init__(self, files: Sequence[str], targets: np.ndarray, config: AudioConfig) -> None:
        self.labels: np.ndarray | None = targets if targets.ndim == 1 else None
        self.input_spec = tf.TensorSpec(config.shape, tf.float32)
        self.target_spec = tf.TensorSpec(targets.shape[1:], tf.as_dtype(targets.dtype))
        self._files = files if isinstance(files, Names) else Names(files)
        self._targets = targets
        self._config = config

    def __len__(self) -> int:
        return len(self._files)

    def load(self, indices: tf.Tensor) -> Batch:
        """Return a batch as tensors."""
        return load_arrays(self.arrays, indices, (self.input_spec, self.target_spec))

    def arrays(self, indices: np.ndarray) -> Batch:
        """Return a batch as arrays.

        Raises:
            DataError: a file cannot be read, or has another rate or more channels than are taken.
        """
        samples = np.empty((len(indices), self._config.clip_samples))
        for row, index in enumerate(indices):
            samples[row] = read_clip(self._files.encoded(int(index)), self._config)
        return features(samples, self._config), self._targets[indices]

    def explain(self, indices: np.ndarray) -> DataError | None:
        """Return the error of the first clip that cannot be used, or None."""
        return first_problem(self, indices)


def read_clip(path: bytes, config: AudioConfig) -> np.ndarray:
    """Return a file's samples as one clip, float64 (clip_samples,).

    Raises:
        DataError: it cannot be read, or has another rate or more channels than `config` takes.
    """
    clip = read_wav(path)
    try:
        samples = _resampled(_one_channel(clip, config), clip.rate, config)
    except DataError as error:
        raise DataError(
            error.message, subject=shown(path.decode(errors="surrogateescape")), hint=error.hint
        ) from error
    return fitted(samples, config.clip_samples)


def _one_channel(clip: Clip, config: AudioConfig) -> np.ndarray:
    count = clip.samples.shape[1]
    if config.channel == "mean":
        return np.asarray(clip.samples.mean(axis=1))
    if config.channel is None and count > 1:
        raise DataError(
            f"it has {count} channels",
            hint="say which is meant: data.audio.channel: 0, or mean",
        )
    if (config.channel or 0) >= count:
        raise DataError(f"it has {count} channels, and data.audio.channel is {config.channel}")
    return np.asarray(clip.samples[:, config.channel or 0])


def _resampled(samples: np.ndarray, rate: int, config: AudioConfig) -> np.ndarray:
    if rate == config.sample_rate:
        return samples
    if not config.resample:
        raise DataError(
            f"its sample rate is {rate} Hz, and data.audio.sample_rate is {config.sample_rate}",
            hint=f"set data.audio.sample_rate: {rate}, or data.audio.resample: true",
        )
    from scipy.signal import resample_poly

    common = gcd(rate, config.sample_rate)
    return np.asarray(resample_poly(samples, config.sample_rate // common, rate // common))


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open the WAV files under `config.path`, or those that a CSV file lists.

    Raises:
        DataError: no such folder, no clips, a class that is missing in a split, a single class,
            or a first clip that cannot be read.
    """
    path = Path(config.path or "").expanduser().absolute()
    found = in_folders(path, config, CLIPS) if path.is_dir() else listed_images(path, config)
    front_end = config.audio or AudioConfig()
    parts, rows = divided(found, config, seed)
    opened = {split: ClipExamples(*parts[split], front_end) for split in SPLIT_NAMES}
    opened["train"].arrays(np.arange(1))
    names = found.names.unique()
    digests = hash_files(found.root, names, found.path)
    files = {split: parts[split][0] for split in SPLIT_NAMES}
    contents = contents_of(files, names.under(str(found.root)), digests)
    return Dataset(
        train=opened["train"],
        validation=opened["validation"],
        test=opened["test"],
        class_names=found.class_names,
        num_classes=found.num_classes,
        notes=found.notes,
        given=frozenset(found.splits) - {ALL, "train"},
        known_membership=Membership("file", contents, files),
        slice_values=sliced(found, parts, rows, config.slices or ()),
    )
