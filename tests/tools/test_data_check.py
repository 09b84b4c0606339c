"""What `shrink data check` says of targets that are no plain labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shrink.contract.job import CheckJob
from shrink.data.config import DataConfig
from shrink.tools.data_check import data_check

LABELS = np.arange(40) % 4


@pytest.mark.parametrize(
    ("y", "keys", "notes"),
    [
        (LABELS, {}, []),
        (np.eye(4)[LABELS], {}, ["targets of shape (4,) are one-hot labels"]),
        (np.tile([1, 1, 0], (40, 1)), {}, ["targets of shape (3,) are zeros and ones"]),
        (np.full((40, 2), 0.5), {}, ["targets of shape (2,) are numbers"]),
        (np.full((40, 3, 3), 7), {}, ["targets of shape (3, 3) are whole numbers"]),
        (np.eye(4)[LABELS], {"target": "input"}, []),
    ],
)
def test_data_check_says_what_targets_look_like(
    tmp_path: Path, y: np.ndarray, keys: dict[str, Any], notes: list[str]
) -> None:
    np.savez(tmp_path / "d.npz", x=np.arange(80.0).reshape(40, 2), y=y)
    config = DataConfig.model_validate({"source": "npz", "path": str(tmp_path / "d.npz"), **keys})
    job = CheckJob(name="d", data=config.model_dump(mode="json"))
    assert data_check(job, lambda *words, **fields: None).notes == tuple(notes)


def test_data_check_takes_images_of_several_sizes(tmp_path: Path) -> None:
    noise = np.random.default_rng(0)
    for index in range(40):
        height, width = (12, 16) if index == 0 else (8 + index, 20)
        pixels = noise.integers(0, 256, (height, width, 3), np.uint8)
        path = tmp_path / "pictures" / f"class{index % 2}" / f"{index:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    (tmp_path / "pictures" / "class0" / "broken.png").write_bytes(path.read_bytes()[:100])
    config = DataConfig.model_validate({"source": "images", "path": str(tmp_path / "pictures")})
    job = CheckJob(name="d", data=config.model_dump(mode="json"))
    found = data_check(job, lambda *words, **fields: None)
    assert len(found.bad) == 1
    assert "broken.png" in found.bad[0]
    assert sum(split.examples for split in found.splits.values()) == 40
    assert any("40 sizes, from 9 x 20 to 47 x 20" in note for note in found.notes)


def test_data_check_takes_photos_with_a_second_picture_for_jpeg(tmp_path: Path) -> None:
    noise = np.random.default_rng(0)
    for index in range(20):
        photo, second = (
            Image.fromarray(noise.integers(0, 256, (16, 16, 3), np.uint8)) for _ in range(2)
        )
        path = tmp_path / "photos" / f"class{index % 2}" / f"{index:02}.{'jpg' if index else 'png'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        photo.save(path, "MPO", save_all=True, append_images=[second])
    config = DataConfig.model_validate({"source": "images", "path": str(tmp_path / "photos")})
    job = CheckJob(name="d", data=config.model_dump(mode="json"))
    found = data_check(job, lambda *words, **fields: None)
    assert not found.bad
    assert sum(split.examples for split in found.splits.values()) == 20
    assert [text.partition("00.png: ")[2] for text in found.suspicious] == [
        "the content is JPEG, whatever the name says"
    ]
