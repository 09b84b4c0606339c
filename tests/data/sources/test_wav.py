"""WAV files of every sample format, written by scipy, by Python's wave, or byte by byte."""

from __future__ import annotations

import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import wavfile

from shrink.base.errors import DataError
from shrink.data.sources.audio import parse_wav, read_wav

VALUES = np.array([[-1.0, 0.5], [0.25, -0.125], [0.0, 0.75]])


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [
        (np.uint8, VALUES * 128 + 128),
        (np.int16, VALUES * 2**15),
        (np.int32, VALUES * 2**31),
        (np.float32, VALUES),
        (np.float64, VALUES),
    ],
)
def test_read_wav_gives_what_scipy_wrote(tmp_path: Path, dtype: Any, stored: np.ndarray) -> None:
    path = tmp_path / "a.wav"
    wavfile.write(path, 8_000, stored.astype(dtype))
    clip = read_wav(str(path))
    assert clip.rate == 8_000
    np.testing.assert_array_equal(clip.samples, VALUES)


def test_read_wav_gives_24_bits(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(3)
        file.setframerate(44_100)
        whole = (VALUES * 2**23).astype("<i4")
        file.writeframes(b"".join(struct.pack("<i", v)[:3] for v in whole.ravel().tolist()))
    clip = read_wav(str(path))
    assert clip.rate == 44_100
    np.testing.assert_array_equal(clip.samples, VALUES)


def wav(form: bytes, data: bytes, before: bytes = b"") -> bytes:
    body = before + b"fmt " + struct.pack("<I", len(form)) + form
    body += b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


PCM16 = struct.pack("<HHIIHH", 1, 1, 8_000, 16_000, 2, 16)


def test_parse_wav_reads_the_extensible_format_and_skips_other_chunks() -> None:
    form = struct.pack("<HHIIHH", 0xFFFE, 1, 8_000, 16_000, 2, 16)
    form += struct.pack("<HHIH", 22, 16, 4, 1) + bytes(14)
    odd = b"LIST" + struct.pack("<I", 3) + b"abc\0"
    clip = parse_wav(wav(form, struct.pack("<2h", -(2**15), 2**14), odd))
    np.testing.assert_array_equal(clip.samples[:, 0], [-1, 0.5])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"OggS" + bytes(50), "not a WAV file"),
        (wav(PCM16, b"ab")[:30], "cut short"),
        (wav(PCM16, b"abcd")[:-2], "declares 4 bytes of samples and holds 2"),
        (wav(PCM16, b""), "0 samples"),
        (wav(struct.pack("<HHIIHH", 2, 1, 8_000, 0, 2, 4), b"abcd"), "format 2 of 4 bits"),
        (wav(struct.pack("<HHIIHH", 1, 0, 8_000, 0, 2, 16), b"abcd"), "0 channels"),
        (wav(struct.pack("<HHIIHH", 1, 3, 8_000, 0, 2, 16), b"abcd"), "2 samples for 3 channels"),
        (wav(struct.pack("<HHIIHH", 3, 1, 8_000, 0, 4, 32), struct.pack("<f", np.nan)), "finite"),
        (wav(PCM16, b"")[:-8], "has no samples"),
    ],
)
def test_parse_wav_refuses_what_it_cannot_read(content: bytes, words: str) -> None:
    with pytest.raises(DataError, match=words):
        parse_wav(content)


def test_parse_wav_raises_nothing_else_whatever_the_bytes() -> None:
    random = np.random.default_rng(0)
    whole = wav(PCM16, bytes(range(40)))
    for _ in range(2_000):
        spoiled = bytearray(whole)
        for place in random.integers(0, len(whole), 3):
            spoiled[place] = random.integers(0, 256)
        cut = bytes(spoiled[: random.integers(0, len(whole) + 1)])
        try:
            assert parse_wav(cut).samples.size
        except DataError:
            continue
