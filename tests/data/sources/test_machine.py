"""Machine sounds of a Python function: normal ones to train on, faults to find, by slicing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import wavfile

from recipes.data.machine import FAULTS, NORMAL, synthesise
from shrink.base.errors import DataError
from shrink.data.config import DataConfig
from shrink.data.opening import open_dataset
from shrink.data.slices import slicings_of
from shrink.recipe.bundle import bundled_root
from tests.data import opened as data

AUDIO: dict[str, Any] = {
    "sample_rate": 8_000, "seconds": 0.288, "window_ms": 64, "stride_ms": 32, "bands": 32,
    "flatten": True,
}  # fmt: skip


def configured(**settings: Any) -> DataConfig:
    path = f"{bundled_root()}/recipes/data/machine.py:examples"
    return data.configured("python", path, **{"target": "input", "audio": AUDIO, **settings})


def test_synthesise_is_decided_by_the_seed_and_has_faults_in_turn() -> None:
    one, again = (synthesise(16, 8_000, 0.1, 3, faulty=True) for _ in range(2))
    np.testing.assert_array_equal(one.samples, again.samples)
    assert one.faults[::2] == (NORMAL,) * 8
    assert one.faults[1::2] == FAULTS * 2
    assert set(synthesise(6, 8_000, 0.1, 3, faulty=False).faults) == {NORMAL}
    assert np.abs(one.samples).max() <= 1


def test_slicings_say_which_test_sounds_are_normal() -> None:
    config = configured(slices=["condition", "fault"])
    dataset = open_dataset(config, seed=0)
    condition, fault = slicings_of(dataset, "test", config)
    assert condition.names == ("faulty", "normal")
    assert np.bincount(condition.index).tolist() == [300, 300]
    assert set(fault.names) == {NORMAL, *FAULTS}
    normal = {name == NORMAL for name in fault.labels}
    assert normal == {True, False}
    assert slicings_of(dataset, "train", config)[1].names == (NORMAL,)


def test_open_dataset_refuses_unknown_columns() -> None:
    with pytest.raises(DataError, match="wear"):
        open_dataset(configured(slices=["wear"]), seed=0)


def test_folders_of_an_autoencoder_may_lack_anomalies_in_training(tmp_path: Path) -> None:
    folders = {"train/good": 6, "validation/good": 2, "test/good": 3, "test/bad": 4}
    random = np.random.default_rng(0)
    for folder, count in folders.items():
        (tmp_path / "clips" / folder).mkdir(parents=True)
        for index in range(count):
            samples = random.integers(-(2**15), 2**15, 400).astype(np.int16)
            wavfile.write(tmp_path / "clips" / folder / f"{index}.wav", 4_000, samples)
    section: dict[str, Any] = {
        "audio": {"sample_rate": 4_000, "seconds": 0.1, "bands": 8},
        "slices": [{"folder": 2, "name": "state"}],
    }
    config = data.configured("audio", tmp_path / "clips", **section, target="input")
    dataset = open_dataset(config, seed=0)
    (state,) = slicings_of(dataset, "test", config)
    assert sorted(state.labels) == ["bad"] * 4 + ["good"] * 3
    assert data.counts(dataset) == [6, 2, 7]
    with pytest.raises(DataError, match=r"the class 'bad' of \w+ has no clips"):
        data.opened("audio", tmp_path / "clips", **section)
