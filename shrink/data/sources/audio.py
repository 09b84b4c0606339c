"""Audio clips in WAV files, in folders by class or in a list; the front end is applied as read.

Files are PCM of 8, 16, 24 and 32 bits or floats of 32 and 64, in any number of channels (Microsoft
& IBM, "Multimedia Programming Interface and Data Specifications 1.0", 1991; the extensible format:
Microsoft, "Multiple Channel Audio Data and WAVE Files", 2001).
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from shrink.base.errors import DataError
from shrink.data.arrays import LazyRows
from shrink.data.config import AudioConfig, DataConfig
from shrink.data.dataset import Dataset
from shrink.data.decoding import read_content
from shrink.data.folders import CLIPS, shown
from shrink.data.front_end import features, fitted
from shrink.data.sources.images import find_files

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_FORMAT = struct.Struct("<HHIIHH")
_SUBFORMAT_AT = 24
_HINT = "save it as uncompressed WAV, for example with: ffmpeg -i IN -c:a pcm_s16le OUT.wav"


@dataclass(frozen=True)
class Clip:
    """The samples of a file.

    Attributes:
        samples: float64 (n, channels); PCM lies from -1 to below 1.
        rate: Hz.
    """

    samples: np.ndarray
    rate: int


def read_wav(path: str | bytes) -> Clip:
    """Return the samples of a WAV file.

    Raises:
        DataError: it cannot be read, is compressed, cut short, empty, or holds no finite numbers;
            its subject is the file.
    """
    try:
        return parse_wav(read_content(path))
    except DataError as error:
        raise DataError(error.message, subject=shown(os.fsdecode(path)), hint=error.hint) from error


def parse_wav(content: bytes) -> Clip:
    """Return the samples of a WAV file's content.

    Raises:
        DataError: see `read_wav`, without a subject.
    """
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise DataError("not a WAV file", hint=_HINT)
    try:
        kind, channels, rate, bits, data = _chunks(content)
    except struct.error as error:
        raise DataError("the header of the WAV file is cut short", hint=_HINT) from error
    if channels < 1 or rate < 1:
        raise DataError(f"the WAV file has {channels} channels at {rate} Hz", hint=_HINT)
    values = _values(kind, bits, data)
    if not values.size or values.size % channels:
        raise DataError(
            f"the WAV file has {values.size} samples for {channels} channels", hint=_HINT
        )
    if not np.isfinite(values).all():
        raise DataError("a sample of the WAV file is not a finite number", hint=_HINT)
    return Clip(values.reshape(-1, channels), rate)


def _chunks(content: bytes) -> tuple[int, int, int, int, bytes]:
    """Return format, channels, rate, bits and data."""
    at, form = 12, None
    while at + 8 <= len(content):
        name, size = content[at : at + 4], struct.unpack_from("<I", content, at + 4)[0]
        start = at + 8
        if name == b"fmt ":
            kind, channels, rate, _, _, bits = _FORMAT.unpack_from(content, start)
            if kind == _EXTENSIBLE:
                (kind,) = struct.unpack_from("<H", content, start + _SUBFORMAT_AT)
            form = kind, channels, rate, bits
        elif name == b"data" and form is not None:
            if start + size > len(content):
                raise DataError(
                    f"the WAV file declares {size} bytes of samples and holds "
                    f"{len(content) - start}",
                    hint="it is cut short; copy it again",
                )
            return *form, content[start : start + size]
        at = start + size + size % 2
    raise DataError("the WAV file has no samples", hint=_HINT)


def _values(kind: int, bits: int, data: bytes) -> np.ndarray:
    """Return samples as float64 (n,)."""
    if kind == _FLOAT and bits in (32, 64):
        return _whole(data, bits).view(f"<f{bits // 8}").astype(np.float64)
    if kind != _PCM or bits not in (8, 16, 24, 32):
        raise DataError(f"the WAV file has format {kind} of {bits} bits", hint=_HINT)
    raw = _whole(data, bits)
    if bits == 8:
        return (raw.astype(np.float64) - 128) / 128
    if bits == 24:  # as the high bytes of 32 bits, which keeps the sign
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = raw.reshape(-1, 3)
        return wide.view("<i4")[:, 0] / 2.0**31
    return raw.view(f"<i{bits // 8}") / 2.0 ** (bits - 1)


def _whole(data: bytes, bits: int) -> np.ndarray:
    """Return the bytes of whole samples."""
    size = bits // 8
    return np.frombuffer(data, np.uint8, len(data) // size * size)


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
    dataset.reference.arrays(np.arange(1))
    return dataset
