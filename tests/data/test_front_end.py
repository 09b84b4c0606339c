"""The audio front end against TensorFlow's tf.signal in float64, and against closed forms."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError

from shrink.data.config import AudioConfig
from shrink.data.front_end import features, fitted, mel_weights

SAMPLES = np.random.default_rng(0).uniform(-1, 1, (3, 8_000))
SETTINGS: list[dict[str, Any]] = [
    {"sample_rate": 8_000},
    {"sample_rate": 8_000, "window_ms": 32, "stride_ms": 16, "bands": 20, "low_hz": 125},
    {"sample_rate": 16_000, "seconds": 0.5, "high_hz": 4_000, "fft_size": 1_024, "bands": 32},
]


def by_tensorflow(config: AudioConfig) -> tuple[np.ndarray, np.ndarray]:
    """Return log-mel energies and MFCCs of `SAMPLES`, float64."""
    spectrum = tf.signal.stft(
        tf.constant(SAMPLES),
        config.window_samples,
        config.stride_samples,
        config.transform_samples,
        window_fn=tf.signal.hann_window,
    )
    weights = tf.signal.linear_to_mel_weight_matrix(
        config.bands,
        config.transform_samples // 2 + 1,
        config.sample_rate,
        config.low_hz,
        config.highest_hz,
        dtype=tf.float64,
    )
    energies = tf.matmul(tf.abs(spectrum) ** 2, weights)
    log_mel = tf.math.log(energies + config.log_offset)
    mfcc = tf.signal.mfccs_from_log_mel_spectrograms(log_mel)
    return log_mel.numpy(), mfcc.numpy()


@pytest.mark.parametrize("settings", SETTINGS)
def test_features_are_those_of_tensorflow(settings: dict[str, Any]) -> None:
    config = AudioConfig.model_validate(settings)
    log_mel, mfcc = by_tensorflow(config)
    assert log_mel.dtype == np.float64
    found = features(SAMPLES, config)
    assert found.shape == (3, config.frames, config.bands, 1)
    np.testing.assert_allclose(found[..., 0], log_mel, rtol=1e-6, atol=1e-6)
    some = config.model_copy(update={"features": "mfcc", "coefficients": 7})
    np.testing.assert_allclose(features(SAMPLES, some)[..., 0], mfcc[..., :7], rtol=1e-6, atol=2e-5)


def test_mel_weights_are_those_of_tensorflow_in_float64() -> None:
    config = AudioConfig(sample_rate=16_000, bands=30, low_hz=60, high_hz=7_600)
    expected = tf.signal.linear_to_mel_weight_matrix(
        30, 257, 16_000, 60.0, 7_600.0, dtype=tf.float64
    )
    np.testing.assert_allclose(mel_weights(config), expected, rtol=0, atol=1e-12)


def test_a_tone_is_loudest_in_the_band_around_it() -> None:
    config = AudioConfig(sample_rate=8_000, bands=24, low_hz=100)
    low, high = np.log1p(100 / 700), np.log1p(4_000 / 700)
    edges = 700 * np.expm1(np.linspace(low, high, 26))
    for band in (3, 11, 20):
        time = np.arange(config.clip_samples) / 8_000
        tone = np.sin(2 * np.pi * edges[band + 1] * time)
        assert (features(tone[None], config)[0, ..., 0].argmax(axis=1) == band).all()


def test_silence_is_the_logarithm_of_the_offset() -> None:
    config = AudioConfig(sample_rate=8_000, log_offset=1e-3)
    found = features(np.zeros((1, 8_000)), config)
    np.testing.assert_array_equal(found, np.float32(np.log(1e-3)))


def test_flatten_and_waveform_keep_the_numbers() -> None:
    config = AudioConfig(sample_rate=8_000)
    flat = config.model_copy(update={"flatten": True})
    np.testing.assert_array_equal(features(SAMPLES, flat), features(SAMPLES, config).reshape(3, -1))
    waveform = config.model_copy(update={"features": "waveform"})
    np.testing.assert_array_equal(features(SAMPLES, waveform)[..., 0], SAMPLES.astype(np.float32))


@pytest.mark.parametrize("kind", ["log_mel", "mfcc", "waveform"])
def test_features_of_many_clips_are_to_the_bit_those_of_each(kind: str) -> None:
    settings = {"sample_rate": 8_000, "seconds": 0.1, "features": kind, "bands": 11}
    config = AudioConfig.model_validate(settings)
    clips = np.random.default_rng(1).uniform(-1, 1, (2 * 64 + 1, 800))
    each = [features(clip[None], config) for clip in clips]
    np.testing.assert_array_equal(features(clips, config), np.concatenate(each))


def test_more_clips_take_only_the_memory_of_their_features() -> None:
    config = AudioConfig(sample_rate=8_000, seconds=0.25, bands=8)
    peaks = {}
    for count in (64, 320):
        clips = np.zeros((count, config.clip_samples), np.float32)
        tracemalloc.start()
        features(clips, config)
        peaks[count] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    added = (320 - 64) * math.prod(config.shape) * 4
    assert peaks[320] - peaks[64] < 1.2 * added + 50_000


def test_fitted_cuts_and_continues_with_zeros() -> None:
    np.testing.assert_array_equal(fitted(np.arange(5.0), 3), [0, 1, 2])
    np.testing.assert_array_equal(fitted(np.arange(3.0), 5), [0, 1, 2, 0, 0])


def test_frames_lie_wholly_in_the_clip() -> None:
    config = AudioConfig(sample_rate=16_000, window_ms=30, stride_ms=20)
    assert (config.window_samples, config.stride_samples, config.transform_samples) == (
        480, 320, 512,
    )  # fmt: skip
    assert config.frames == 49  # as in MLPerf Tiny's keyword spotting
    assert AudioConfig(features="mfcc").shape == (49, 10, 1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"high_hz": 9_000}, "at most half the rate"),
        ({"low_hz": 500, "high_hz": 400}, "low_hz is below high_hz"),
        ({"window_ms": 2_000}, "longer than a clip"),
        ({"fft_size": 256}, "at least a frame's 480"),
        ({"features": "mfcc", "bands": 8}, "10 coefficients need"),
        ({"stride_ms": 0.05}, "at least two samples"),
    ],
)
def test_audio_config_refuses_what_cannot_be(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        AudioConfig.model_validate(settings)
