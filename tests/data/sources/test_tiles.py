from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from shrink.base.errors import DataError
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.opening import open_dataset
from tests.data.opened import all_of, everything, opened

SLIDE = np.random.default_rng(0).integers(0, 256, (200, 150, 3), np.uint8)
CORNERS = [(x, y) for x in (0, 3, 70, 118) for y in (0, 61, 100, 168)]  # (x, y), last ones fit


def _open(folder: Path, storage: dict[str, Any], rows: Any = CORNERS, **settings: Any) -> Dataset:
    with tifffile.TiffWriter(folder / "slide.tif") as writer:
        writer.write(SLIDE, photometric="rgb", subifds=1, **storage)
        writer.write(SLIDE[::2, ::2], photometric="rgb", subfiletype=1, **storage)
    lines = "".join(f"slide.tif,{x},{y},{index % 2}\n" for index, (x, y) in enumerate(rows))
    (folder / "tiles.csv").write_text("path,x,y,label\n" + lines)
    return opened("tiles", folder / "tiles.csv", **{"image_size": [32, 30], **settings})


@pytest.mark.parametrize("storage", [{"tile": (48, 32)}, {"rowsperstrip": 17}, {"rowsperstrip": 7}])
def test_arrays_gives_the_windows_that_are_listed(tmp_path: Path, storage: dict[str, Any]) -> None:
    dataset = _open(tmp_path, storage)
    found = {
        (window.tobytes(), int(label)) for window, label in zip(*everything(dataset), strict=True)
    }
    assert found == {
        (SLIDE[row : row + 32, column : column + 30].tobytes(), index % 2)
        for index, (column, row) in enumerate(CORNERS)
    }


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("codec", ["jpeg", "deflate", "lzw"])
def test_arrays_decodes_compressed_slides(tmp_path: Path, codec: str, level: int) -> None:
    pytest.importorskip("imagecodecs")
    corners = [(0, 0), (3, 5), (40, 60)] * 4
    storage = {"tile": (48, 32), "compression": codec}
    dataset = _open(tmp_path, storage, corners, level=level)
    whole = tifffile.imread(tmp_path / "slide.tif", level=level)
    expected = {whole[y : y + 32, x : x + 30].tobytes() for x, y in corners}
    assert {window.tobytes() for window in everything(dataset)[0]} == expected


def test_arrays_reads_a_coarser_level(tmp_path: Path) -> None:
    dataset = _open(tmp_path, {"tile": (16, 16)}, rows=[(40, 60), (0, 0)] * 6, level=1)
    x, y = all_of(dataset.train)
    expected = SLIDE[::2, ::2][60:92, 40:70]
    assert all(np.array_equal(window, expected) for window in x[y == 0])


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        ([(140, 0)] * 12, {}, "the window at x 140, y 0 of 32 x 30 pixels does not fit"),
        ([(-1, 0)] * 12, {}, "the window at x -1"),
        ([("a", 0)] * 12, {}, "x in line 2 is 'a', not a finite number"),
        (CORNERS, {"level": 5}, "there is no level 5; there are 2"),
        (CORNERS, {"image_size": None}, "the size of a window is missing"),
    ],
)
def test_open_dataset_raises_data_error_when_windows_are_wrong(
    tmp_path: Path, rows: Any, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        _read_first(_open(tmp_path, {"tile": (16, 16)}, rows, **settings))


def _read_first(dataset: Dataset) -> None:
    dataset.train.arrays(np.arange(1))


def test_open_dataset_raises_data_error_when_a_file_is_no_tiff(tmp_path: Path) -> None:
    (tmp_path / "a.tif").write_bytes(b"no TIFF")
    (tmp_path / "tiles.csv").write_text("path,x,y,label\na.tif,0,0,0\na.tif,0,0,1\n")
    with pytest.raises(DataError, match=r"a\.tif: not a TIFF file"):
        opened("tiles", tmp_path / "tiles.csv", image_size=[8, 8])


def test_open_dataset_leaves_out_windows_that_an_earlier_run_trained_on(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    first = _open(tmp_path / "a", {"tile": (48, 32)})
    assert first.membership is not None
    (tmp_path / "a.bin").write_bytes(first.membership().content())
    _open(tmp_path / "b", {"tile": (48, 32)}, rows=CORNERS[::-1])
    config = DataConfig(source="tiles", path=str(tmp_path / "b/tiles.csv"), image_size=(32, 30))
    second = open_dataset(config, seed=3, earlier=[tmp_path / "a.bin"])
    trained, tested = (
        {row.tobytes() for row in all_of(part)[0]} for part in (first.train, second.test)
    )
    assert tested
    assert not trained & tested
