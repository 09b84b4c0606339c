"""Clips in folders: front end, rates, channels, lengths, splits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import wavfile
from scipy.signal import resample_poly

from shrink.base.errors import DataError
from shrink.data.config import AudioConfig, DataConfig
from shrink.data.dataset import Dataset
from shrink.data.fingerprint import fingerprint
from shrink.data.front_end import features
from shrink.data.slices import slicings_of
from shrink.recipe.data_reference import parse_data_reference
from tests.data import opened as data
from tests.data.opened import all_of

RATE = 4_000
AUDIO: dict[str, Any] = {"sample_rate": RATE, "seconds": 0.25, "bands": 8}


def configured(path: Path, **audio: Any) -> DataConfig:
    return data.configured("audio", path, audio={**AUDIO, **audio})


def opened(path: Path, **audio: Any) -> Dataset:
    return data.opened("audio", path, audio={**AUDIO, **audio})


def samples(index: int, length: int = 1_000) -> np.ndarray:
    return np.random.default_rng(index).integers(-(2**15), 2**15, length).astype(np.int16)


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    root = tmp_path / "clips"
    for index in range(20):
        folder = root / ("yes" if index % 2 else "no")
        folder.mkdir(parents=True, exist_ok=True)
        wavfile.write(folder / f"{index:02}.wav", RATE, samples(index))
    return root


def expected(values: np.ndarray, **audio: Any) -> np.ndarray:
    return features(values[None] / 2**15, AudioConfig.model_validate({**AUDIO, **audio}))[0]


def test_open_dataset_transforms_the_clips_of_each_class(clips: Path) -> None:
    dataset = opened(clips)
    known = {expected(samples(index)).tobytes(): index for index in range(20)}
    seen = set()
    for part in (dataset.train, dataset.validation, dataset.test):
        for row, label in zip(*all_of(part), strict=True):
            index = known[row.tobytes()]
            assert label == index % 2
            seen.add(index)
    assert len(seen) == 20
    assert (dataset.class_names, dataset.num_classes) == (("no", "yes"), 2)
    assert parse_data_reference(str(clips), clips)["source"] == "audio"


def test_slices_by_path_stay_with_their_clips(clips: Path) -> None:
    slices = [{"folder": 1}, {"pattern": r"(\d+)\.wav"}]
    config = data.configured("audio", clips, audio=AUDIO, slices=slices)
    dataset = data.opened("audio", clips, audio=AUDIO, slices=slices)
    folder, number = slicings_of(dataset, "test", config)
    x, y = all_of(dataset.test)
    assert list(folder.labels) == [dataset.class_names[label] for label in y]
    for name, row in zip(number.labels, x, strict=True):
        np.testing.assert_array_equal(row, expected(samples(int(name))))


def test_load_gives_what_arrays_gives(clips: Path) -> None:
    import tensorflow as tf

    part = opened(clips, features="mfcc", coefficients=5).train
    x, y = part.load(tf.constant([3, 1], tf.int64))
    wanted = part.arrays(np.array([3, 1]))
    np.testing.assert_array_equal(x, wanted[0])
    np.testing.assert_array_equal(y, wanted[1])


def test_open_dataset_fits_lengths_takes_channels_and_resamples_when_told(clips: Path) -> None:
    stereo = np.stack([samples(50), samples(51)], axis=1)
    for folder in ("yes", "no"):
        for file in (clips / folder).iterdir():
            wavfile.write(file, RATE, stereo[:700])
    long = np.pad(stereo[:700], ((0, 300), (0, 0)))
    for channel, values in ((0, long[:, 0]), (1, long[:, 1]), ("mean", long.mean(axis=1))):
        x, _ = opened(clips, channel=channel).test.arrays(np.arange(1))
        np.testing.assert_allclose(x[0], expected(values), rtol=1e-6)
    half = {"sample_rate": RATE // 2, "resample": True, "channel": 0}
    x, _ = opened(clips, **half).test.arrays(np.arange(1))
    resampled = np.pad(resample_poly(stereo[:700, 0] / 2**15, 1, 2), (0, 150)) * 2**15
    np.testing.assert_allclose(x[0], expected(resampled, sample_rate=RATE // 2), rtol=1e-5)


@pytest.mark.parametrize(
    ("audio", "words"),
    [
        ({"sample_rate": 8_000}, r"no/00.wav: its sample rate is 4000 Hz"),
        ({"channel": 1}, r"it has 1 channels, and data.audio.channel is 1"),
    ],
)
def test_open_dataset_refuses_other_rates_and_channels(
    clips: Path, audio: dict[str, Any], words: str
) -> None:
    with pytest.raises(DataError, match=words) as caught:
        opened(clips, **audio).train.arrays(np.arange(14))
    assert caught.value.exit_code == 3


def test_arrays_names_the_clip_that_cannot_be_read(clips: Path) -> None:
    part = opened(clips).train
    for file in (clips / "yes").iterdir():
        file.write_bytes(file.read_bytes()[:60])
    with pytest.raises(DataError) as raised:
        all_of(part)
    assert "yes/" in str(raised.value.subject)


def test_a_class_without_clips_is_refused(clips: Path) -> None:
    (clips / "maybe").mkdir()
    with pytest.raises(DataError, match="the class 'maybe' has no clips"):
        opened(clips)


def test_fingerprint_follows_names_and_contents_not_settings(clips: Path) -> None:
    before = fingerprint(configured(clips))
    assert fingerprint(configured(clips, bands=5)) == before
    wavfile.write(clips / "no" / "00.wav", RATE, samples(99))
    assert fingerprint(configured(clips)) != before
