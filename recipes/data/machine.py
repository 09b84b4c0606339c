"""Synthesised sounds of a rotating machine, some of them of a faulty one.

`examples` is a function for `data.source: python` with `data.audio`.

A machine sounds by the harmonics of its rotation, the hiss of its bearing and the room's noise;
speed, load and noise differ from clip to clip. Faults are added to such a sound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

NORMAL = "normal"
FAULTS = ("impacts", "imbalance", "squeal", "looseness")
"""Kinds of faults: a damaged bearing, a swinging load, friction, and play."""
RATE, SECONDS = 8_000, 0.288
COUNTS = {"train": 1_500, "validation": 200, "test": 600}
"""Clips of each split; of the test split every other one is faulty."""

_SEED = 2_104
_HARMONICS = 12


@dataclass(frozen=True)
class Sounds:
    """Clips of a machine, and what state it was in.

    Attributes:
        samples: float32 (n, samples), from -1 to 1.
        faults: `NORMAL` or one of `FAULTS` for each clip.
    """

    samples: np.ndarray
    faults: tuple[str, ...]


def synthesise(count: int, rate: int, seconds: float, seed: int, faulty: bool) -> Sounds:
    """Return `count` clips.

    Args:
        count: number of clips.
        rate: Hz.
        seconds: length of a clip.
        seed: decides everything.
        faulty: whether every other clip has a fault, the kinds in turn.
    """
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([_SEED, seed])))
    length = round(rate * seconds)
    samples = np.empty((count, length), np.float32)
    faults = [NORMAL] * count
    for row in range(count):
        if faulty and row % 2:
            faults[row] = FAULTS[row // 2 % len(FAULTS)]
        turns = random.uniform(24, 30)
        sound = _running(random, turns, length, rate)
        sound = _spoiled(random, faults[row], sound, turns, rate)
        samples[row] = np.clip(0.15 * sound, -1, 1)
    return Sounds(samples, tuple(faults))


def _running(random: np.random.Generator, turns: float, length: int, rate: int) -> np.ndarray:
    """Return the sound of a sound machine at so many turns a second, float64 (length,)."""
    time = np.arange(length) / rate
    sound = np.zeros(length)
    for harmonic in range(1, _HARMONICS + 1):
        amplitude = random.uniform(0.8, 1.2) / harmonic**0.8
        sound += amplitude * np.sin(
            2 * np.pi * harmonic * turns * time + random.uniform(0, 2 * np.pi)
        )
    hiss = np.diff(random.normal(0, random.uniform(0.10, 0.16), length + 1))
    return np.asarray(sound + hiss + random.uniform(0.2, 0.4) * coloured_noise(random, length))


def _spoiled(
    random: np.random.Generator, fault: str, sound: np.ndarray, turns: float, rate: int
) -> np.ndarray:
    """Return a sound with a fault in it; a normal one as it is."""
    time = np.arange(len(sound)) / rate
    if fault == "impacts":
        period = 1 / (turns * random.uniform(3.0, 3.6))
        since = (time + random.uniform(0, period)) % period
        ringing = np.exp(-since * 400) * np.sin(2 * np.pi * random.uniform(2_000, 3_000) * since)
        return np.asarray(sound + random.uniform(0.5, 1.0) * ringing)
    if fault == "imbalance":
        swing = np.sin(2 * np.pi * turns / 2 * time + random.uniform(0, 2 * np.pi))
        return np.asarray(sound * (1 + random.uniform(0.5, 0.9) * swing))
    if fault == "squeal":
        whistle = np.sin(2 * np.pi * random.uniform(1_200, 3_200) * time)
        return np.asarray(sound + random.uniform(0.05, 0.15) * whistle)
    if fault == "looseness":
        limit = random.uniform(1.0, 1.5)
        return np.asarray(np.clip(sound, -limit, limit))
    return sound


def coloured_noise(random: np.random.Generator, length: int) -> np.ndarray:
    """Return noise of mean square 1, white at one extreme and brown at the other."""
    white = random.normal(size=length)
    slope = random.uniform(0, 1)
    frequencies = np.maximum(np.arange(length // 2 + 1), 1)
    noise = np.fft.irfft(np.fft.rfft(white) * frequencies**-slope, length)
    return np.asarray(noise / np.sqrt(np.mean(noise**2)))


def examples() -> Mapping[str, Iterator[Mapping[str, object]]]:
    """Return clips by split, with what `data.slices` can name: `condition` and `fault`.

    All clips of train and validation are normal.
    """

    def of_split(number: int, split: str) -> Iterator[Mapping[str, object]]:
        sounds = synthesise(COUNTS[split], RATE, SECONDS, number, faulty=split == "test")
        for samples, fault in zip(sounds.samples, sounds.faults, strict=True):
            condition = NORMAL if fault == NORMAL else "faulty"
            yield {"x": samples, "condition": condition, "fault": np.array(fault, "U9")}

    return {split: of_split(number, split) for number, split in enumerate(COUNTS)}
