"""Audio clips in WAV files, in folders by class or in a list; the front end is applied as read."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

import numpy as np

from shrink.base.errors import DataError
from shrink.data.arrays import LazyRows
from shrink.data.audio_config import AudioConfig
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.folders import CLIPS, shown
from shrink.data.front_end import features, fitted
from shrink.data.sources.images import find_files
from shrink.data.wav import Clip, read_wav


def read_clip(path: str, config: AudioConfig) -> np.ndarray:
    """Return a file's samples as one clip, float64 (clip_samples,).

    Raises:
        DataError: it cannot be read, or has another rate or more channels than `config` takes.
    """
    clip = read_wav(path)
    try:
        samples = _resampled(_one_channel(clip, config), clip.rate, config)
    except DataError as error:
        raise DataError(error.message, subject=shown(path), hint=error.hint) from error
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
        DataError: see `find_files`; a first clip that cannot be read.
    """
    table, front_end = find_files(config, CLIPS), config.audio or AudioConfig()

    def read(rows: np.ndarray) -> np.ndarray:
        samples = np.empty((len(rows), front_end.clip_samples))
        for place, row in enumerate(rows.tolist()):
            samples[place] = read_clip(table.file(row), front_end)
        return features(samples, front_end)

    x = LazyRows(read, (len(table.names), *front_end.shape), np.float32, is_decoded=True)
    dataset = replace(table, x=x).open(config, seed)
    dataset.train.arrays(np.arange(1))
    return dataset
