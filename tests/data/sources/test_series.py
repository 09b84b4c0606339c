"""Windows of time series: what they hold, and that none looks into another split."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recipes.data.season import HOURS, season
from shrink.base.errors import DataError
from shrink.data.sources.series import splits_by_time, stretches
from tests.data import opened as data
from tests.data.opened import all_of

ROWS, WINDOW, HORIZON = 100, 6, 2
SERIES: dict[str, Any] = {"window": WINDOW, "horizon": HORIZON}


def opened(path: Path, series: dict[str, Any] | None = None, **settings: Any) -> Any:
    return data.opened("series", path, 3, series={**SERIES, **(series or {})}, **settings)


def table(folder: Path, header: str, row: Callable[[int], str], count: int = ROWS) -> Path:
    path = folder / "t.csv"
    path.write_text("\n".join([header, *(row(i) for i in range(count))]) + "\n")
    return path


def test_windows_hold_rows_in_order_with_the_rows_behind(tmp_path: Path) -> None:
    dataset = opened(table(tmp_path, "v", str))
    x, y = all_of(dataset.train)
    assert (x.shape[1:], y.shape[1:]) == ((WINDOW, 1), (HORIZON,))
    np.testing.assert_array_equal(x[:, :, 0] - x[:, :1, 0], np.tile(np.arange(6), (len(x), 1)))
    np.testing.assert_array_equal(y, x[:, -1] + [[1, 2]])


def test_no_row_is_seen_in_two_splits(tmp_path: Path) -> None:
    dataset = opened(table(tmp_path, "v", str))
    rows = {
        name: {int(v) for array in all_of(getattr(dataset, name)) for v in array.ravel()}
        for name in data.SPLITS
    }
    # 100 rows: the last 20 test, the 10 before them validate.
    assert rows["train"] == set(range(70))
    assert rows["validation"] == set(range(70, 80))
    assert rows["test"] == set(range(80, 100))
    assert data.counts(dataset) == [63, 3, 13]


@pytest.mark.parametrize("stride", [1, 3, 20])
def test_stride_is_the_distance_of_windows(tmp_path: Path, stride: int) -> None:
    x, _ = all_of(opened(table(tmp_path, "v", str), {"stride": stride}).train)
    np.testing.assert_array_equal(x[:, 0, 0], np.arange(0, 70 - 8 + 1, stride))


def test_columns_are_chosen_and_groups_are_not_crossed(tmp_path: Path) -> None:
    def row(i: int) -> str:
        return f"{'ab'[i // 60]},{i % 60},{i},{-i},{10 * i}"

    path = table(tmp_path, "who,when,v,w,z", row, 120)
    series = {"group": "who", "time": "when"}
    shares = {"validation_split": 0.2}
    dataset = opened(path, series, inputs=["v", "z"], targets=["w", "v"], **shares)
    x, y = all_of(dataset.test)
    assert (x.shape[1:], y.shape[1:]) == ((WINDOW, 2), (HORIZON, 2))
    np.testing.assert_array_equal(x[..., 1], 10 * x[..., 0])
    np.testing.assert_array_equal(y[..., 0], -y[..., 1])
    np.testing.assert_array_equal(y[:, 0, 1], x[:, -1, 0] + 1)
    # Each series of 60 gives its last 12 rows: five windows of 8 that start at 48 and at 108.
    assert x[:, 0, 0].tolist() == [*range(48, 53), *range(108, 113)]
    assert all_of(opened(path, series, inputs=["v"], **shares).test)[1].shape[1:] == (HORIZON,)


def test_times_in_nanoseconds_are_in_their_order(tmp_path: Path) -> None:
    began = 1_700_000_000_000_000_000  # neighbours are the same number in float64
    path = table(tmp_path, "when,v", lambda i: f"{began + i},{i}")
    assert len(opened(path, {"time": "when"}).train) == 63
    path = table(tmp_path, "when,v", lambda i: f"{began + i - 2 * (i == 50)},{i}")
    with pytest.raises(DataError, match=r"when in line 52 is .* not after"):
        opened(path, {"time": "when"})
    path = table(tmp_path, "when,v", lambda i: f"{i / 2},{i}")
    assert len(opened(path, {"time": "when"}).train) == 63


def test_a_column_split_says_where_rows_belong(tmp_path: Path) -> None:
    parts = ["train"] * 40 + ["val"] * 20 + ["train"] * 20 + ["test"] * 20
    dataset = opened(table(tmp_path, "v,split", lambda i: f"{i},{parts[i]}"))
    x, _ = all_of(dataset.train)
    assert x[:, 0, 0].tolist() == [*range(33), *range(60, 73)]
    assert all_of(dataset.validation)[0][:, 0, 0].tolist() == list(range(40, 53))
    assert dataset.given == {"validation", "test"}


@pytest.mark.parametrize("short", ["train", "val", "test"])
def test_only_the_tested_split_has_to_hold_a_window(tmp_path: Path, short: str) -> None:
    parts = [name for name in ("train", "val", "test") for _ in range(3 if name == short else 20)]
    path = table(tmp_path, "v,split", lambda i: f"{i},{parts[i]}", len(parts))
    if short == "test":
        with pytest.raises(DataError, match="the test split has at most 3 rows"):
            opened(path, test_split=1)
    else:
        x, _ = all_of(opened(path, test_split=1).test)
        assert x[:, 0, 0].tolist() == list(range(23, 36))


@pytest.mark.parametrize("split", [False, True])
def test_arrays_of_an_npz_file_are_series(tmp_path: Path, split: bool) -> None:
    values = np.arange(ROWS, dtype=np.float64)
    arrays = {"x": np.stack([values, values**2], 1), "y": -values}
    if split:
        arrays = {"x_train": values[:60], "x_test": values[60:]}
    path = tmp_path / "s.npz"
    np.savez(path, allow_pickle=False, **arrays)
    dataset = opened(path, validation_split=0.2)
    x, y = all_of(dataset.test)
    assert dataset.given == ({"test"} if split else frozenset())
    if split:
        assert x[:, 0, 0].tolist() == list(range(60, 93))
        np.testing.assert_array_equal(y[:, 0], x[:, -1, 0] + 1)
        assert all_of(dataset.validation)[0][:, 0, 0].tolist() == list(range(48, 53))
    else:
        np.testing.assert_array_equal(x[..., 1], x[..., 0] ** 2)
        np.testing.assert_array_equal(y[:, 0], -x[:, -1, 0] - 1)


@pytest.mark.parametrize(
    ("header", "row", "series", "words"),
    [
        ("v", str, {"window": 30}, "the validation split has at most 10 rows in succession"),
        ("t,v", lambda i: f"{i % 50},{i}", {"time": "t"}, "t in line 52 is '0', not after '49'"),
        ("t,v", lambda i: f"2024-{9 - i % 2},{i}", {"time": "t"}, "t in line 3 is '2024-8'"),
        ("g,v", lambda i: f"{i // 40 % 2},{i}", {"group": "g"}, "line 82 continues the series"),
        ("v", lambda i: "nan" if i == 5 else "1", {}, "v in line 7 is 'nan'"),
        ("v", str, {"group": "who"}, "no column 'who'"),
    ],
)
def test_open_dataset_says_what_is_wrong(
    tmp_path: Path, header: str, row: Any, series: dict[str, Any], words: str
) -> None:
    with pytest.raises(DataError, match=words) as caught:
        opened(table(tmp_path, header, row), series)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("name", ["x", "y"])
def test_open_dataset_names_the_split_whose_arrays_have_other_columns(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / "s.npz"
    shapes = {"x_train": (500, 3), "y_train": (500, 3), "x_test": (300, 3), "y_test": (300, 3)}
    shapes[f"{name}_test"] = (300, 2)
    np.savez(path, allow_pickle=False, **{key: np.zeros(shape) for key, shape in shapes.items()})
    with pytest.raises(DataError, match="x, y have other columns in train and test") as caught:
        opened(path)
    assert (caught.value.exit_code, str(caught.value.subject)) == (3, str(path))


def test_stretches_and_splits_by_time() -> None:
    assert stretches(np.array([4, 4, 1, 4, 4, 4])) == [(0, 2), (2, 3), (3, 6)]
    run = np.repeat([0, 1], [10, 20])
    split = splits_by_time(run, 0.1, 0.2)
    assert split.tolist() == [0] * 7 + [1] + [2] * 2 + [0] * 14 + [1] * 2 + [2] * 4


def test_season_repeats_by_the_day_and_the_week() -> None:
    values = season()[:, 0]
    assert values.shape == (HOURS,)
    centred = values - values.mean()
    by_hour = [np.mean(centred[lag:] * centred[:-lag]) / centred.var() for lag in (12, 24, 84, 168)]
    assert by_hour[1] > 0.6 > 0.2 > by_hour[0]
    assert by_hour[3] > max(by_hour[0], by_hour[2])
