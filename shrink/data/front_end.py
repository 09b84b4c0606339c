"""The audio front end: from samples to log-mel energies or MFCCs, in numpy and float64.

Davis & Mermelstein, "Comparison of Parametric Representations for Monosyllabic Word Recognition",
1980; mel scale and coefficients as in HTK (Young et al., "The HTK Book", 5.4 and 5.6), which
TensorFlow's `tf.signal` follows. docs/audio.md has the equations.
"""

from __future__ import annotations

import functools

import numpy as np

from shrink.data.config import AudioConfig

_BLOCK = 64
"""Clips at once: frames in float64 take many times the memory of the samples."""
_MEL_HZ, _MEL_FACTOR = 700.0, 1127.0


def features(samples: np.ndarray, config: AudioConfig) -> np.ndarray:
    """Return what a model sees of some clips, float32 (n, *config.shape).

    Args:
        samples: float (n, clip_samples), from -1 to 1.
        config: the front end.
    """
    found = np.empty((len(samples), *config.shape), np.float32)
    for first in range(0, len(samples), _BLOCK):
        block = slice(first, first + _BLOCK)
        found[block] = _block_features(samples[block], config)
    return found


def _block_features(samples: np.ndarray, config: AudioConfig) -> np.ndarray:
    """Return what `features` does, float64, of all clips at once."""
    values = np.asarray(samples, np.float64)
    if config.features != "waveform":
        # The power spectrum of each frame, (n, frames, transform_samples // 2 + 1).
        window, stride = config.window_samples, config.stride_samples
        starts = stride * np.arange(config.frames)
        frames = values[:, starts[:, None] + np.arange(window)]
        hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
        spectrum = np.fft.rfft(frames * hann, config.transform_samples)
        energies = np.asarray(spectrum.real**2 + spectrum.imag**2) @ mel_weights(config)
        values = np.log(energies + config.log_offset)
        if config.features == "mfcc":
            # The cosine transform (DCT-II) times sqrt(2 / bands), (bands, coefficients).
            places = (np.arange(config.bands)[:, None] + 0.5) * np.arange(config.coefficients)
            values = values @ np.asarray(
                np.sqrt(2 / config.bands) * np.cos(np.pi * places / config.bands)
            )
    return values.reshape(len(samples), *config.shape)


@functools.lru_cache(maxsize=4)
def mel_weights(config: AudioConfig) -> np.ndarray:
    """Return the weight of each frequency in each band, float64 (transform // 2 + 1, bands).

    Triangles of equal width on the mel scale, linear there, 1 at their centres; the constant
    part of a signal (0 Hz) is in no band.
    """
    edges = np.linspace(_mel(config.low_hz), _mel(config.highest_hz), config.bands + 2)
    lower, centre, upper = edges[:-2], edges[1:-1], edges[2:]
    bins = config.transform_samples // 2 + 1
    at = _mel(np.linspace(0, config.sample_rate / 2, bins))[:, None]
    rising, falling = (at - lower) / (centre - lower), (upper - at) / (upper - centre)
    weights = np.maximum(0.0, np.minimum(rising, falling))
    weights[0] = 0
    return np.asarray(weights)


def _mel(hz: float | np.ndarray) -> np.ndarray:
    return np.asarray(_MEL_FACTOR * np.log1p(np.asarray(hz, np.float64) / _MEL_HZ))


def fitted(samples: np.ndarray, length: int) -> np.ndarray:
    """Return the first `length` samples (n,), with zeros behind where there are fewer."""
    return np.pad(samples[:length], (0, max(0, length - len(samples))))
