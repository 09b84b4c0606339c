"""Synthesised sounds of five kinds, one of which is to be spotted like a keyword.

`examples` is a function for `data.source: python` with `data.audio`.

`keyword` is three tones that rise by a third and a fifth; `other` is the same three in another
order, or two of them. All sounds begin anywhere, in noise of random level and colour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

CLASSES = ("chirp", "keyword", "noise", "other", "steady")
"""Names of the kinds by label."""
RATE, SECONDS = 8_000, 1.0
COUNTS = {"train": 1_600, "validation": 200, "test": 800}
"""Clips of each split, as many of each kind."""

_SEED = 2_102
_SOUND_S = 0.6
"""Of a sound; the clip may be longer."""
_RATIOS = (1.0, 1.25, 1.5)
_WRONG = ((2, 1, 0), (0, 2, 1), (1, 0, 2), (0, 0, 1), (1, 2, 2))
_EDGE_S = 0.01


@dataclass(frozen=True)
class Clips:
    """Clips and their labels.

    Attributes:
        samples: float32 (n, samples), from -1 to 1, in steps of 16-bit PCM.
        labels: int64 (n,), places in `CLASSES`.
    """

    samples: np.ndarray
    labels: np.ndarray


def synthesise(count: int, rate: int, seconds: float, seed: int) -> Clips:
    """Return `count` clips, the kinds in turn.

    Args:
        count: number of clips.
        rate: Hz.
        seconds: length of a clip.
        seed: decides everything.
    """
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([_SEED, seed])))
    length = round(rate * seconds)
    samples = np.empty((count, length), np.float32)
    labels = np.arange(count) % len(CLASSES)
    for row, label in enumerate(labels):
        clip = coloured_noise(random, length) * 10 ** random.uniform(-2.2, -1.0)
        sound = _sound(random, CLASSES[label], rate, min(_SOUND_S, seconds))
        start = int(random.integers(0, length - len(sound) + 1))
        clip[start : start + len(sound)] += random.uniform(0.05, 0.5) * sound
        samples[row] = np.round(np.clip(clip, -1, 1 - 2**-15) * 2**15) / 2**15
    return Clips(samples, labels.astype(np.int64))


def _sound(random: np.random.Generator, kind: str, rate: int, seconds: float) -> np.ndarray:
    """Return a sound of amplitude up to 1, float64."""
    length = round(rate * seconds)
    base = random.uniform(300, 1_000)
    if kind == "noise":
        return np.zeros(length)
    if kind == "steady":
        return _tone(random, np.full(length, base * random.choice(_RATIOS)), rate)
    if kind == "chirp":
        ends = base, base * random.uniform(1.4, 2.5)
        low, high = ends if random.random() < 0.5 else ends[::-1]
        return _tone(random, np.linspace(low, high, length), rate)
    order = (0, 1, 2) if kind == "keyword" else _WRONG[random.integers(0, len(_WRONG))]
    third = length // 3
    tones = [_tone(random, np.full(third, base * _RATIOS[step]), rate) for step in order]
    return np.concatenate(tones)


def _tone(random: np.random.Generator, hz: np.ndarray, rate: int) -> np.ndarray:
    """Return a tone of a frequency that may change, with one overtone and soft edges."""
    phase = 2 * np.pi * np.cumsum(hz) / rate + random.uniform(0, 2 * np.pi)
    wave = np.sin(phase) + random.uniform(0, 0.4) * np.sin(2 * phase)
    edge = max(1, round(rate * _EDGE_S))
    ramp = np.minimum(1, np.minimum(np.arange(len(hz)), np.arange(len(hz))[::-1]) / edge)
    return np.asarray(wave / 1.4 * ramp)


def coloured_noise(random: np.random.Generator, length: int) -> np.ndarray:
    """Return noise of mean square 1, white at one extreme and brown at the other."""
    white = random.normal(size=length)
    slope = random.uniform(0, 1)
    frequencies = np.maximum(np.arange(length // 2 + 1), 1)
    noise = np.fft.irfft(np.fft.rfft(white) * frequencies**-slope, length)
    return np.asarray(noise / np.sqrt(np.mean(noise**2)))


def examples() -> Mapping[str, Iterator[tuple[np.ndarray, np.ndarray]]]:
    """Return clips with labels, by split."""

    def of_split(number: int, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        clips = synthesise(count, RATE, SECONDS, number)
        yield from zip(clips.samples, clips.labels, strict=True)

    return {split: of_split(number, count) for number, (split, count) in enumerate(COUNTS.items())}
