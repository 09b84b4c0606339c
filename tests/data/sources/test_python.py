from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shrink.base.errors import DataError
from shrink.data.config import AudioConfig, DataConfig
from shrink.data.dataset import Dataset
from shrink.data.fingerprint import fingerprint
from shrink.data.front_end import features
from tests.data.opened import all_of, configured, counts, everything, opened

_PRELUDE = "import numpy as np\nimport tensorflow as tf\nfrom pathlib import Path\n"
_NUMBERS = "((np.full(3, i, np.float32), i % 4) for i in range(40))"


def _open(folder: Path, body: str, **settings: Any) -> Dataset:
    path = folder / "data.py"
    path.write_text(f"{_PRELUDE}def examples():\n    {body}\n")
    return opened("python", f"{path}:examples", **settings)


def _config(file: Path, function: str = "examples", **settings: Any) -> DataConfig:
    return configured("python", f"{file}:{function}", **settings)


@pytest.mark.parametrize(
    "body",
    [
        f"return {_NUMBERS}",
        f"return list({_NUMBERS})",
        "return tf.data.Dataset.range(40).map(lambda i: (tf.fill([3], float(i)), i % 4))",
    ],
)
def test_open_dataset_takes_anything_that_can_be_iterated(tmp_path: Path, body: str) -> None:
    x, y = everything(_open(tmp_path, body))
    np.testing.assert_array_equal(np.sort(x[:, 0]), np.arange(40))
    np.testing.assert_array_equal(y, x[:, 0] % 4)
    assert x.dtype == np.float32


def test_open_dataset_takes_parts(tmp_path: Path) -> None:
    dataset = _open(tmp_path, f"return {{'train': {_NUMBERS}, 'test': list({_NUMBERS})[:8]}}")
    assert counts(dataset) == [36, 4, 8]


def test_open_dataset_takes_named_inputs_and_targets_in_the_recipes_order(tmp_path: Path) -> None:
    body = (
        "return (({'a': np.zeros(2), 'b': np.ones(3)}, {'even': i % 2, 'size': np.float32(i)})"
        " for i in range(30))"
    )
    train = _open(tmp_path, body, inputs=["b", "a"], targets=["size", "even"]).train
    x, y = train.arrays(np.arange(4))
    assert [part.shape for part in x] == [(4, 3), (4, 2)]
    assert [part.dtype for part in y] == [np.float32, np.int64]
    np.testing.assert_array_equal(y[1], y[0][:, 0] % 2)
    assert train.labels is None


def test_open_dataset_runs_the_function_once(tmp_path: Path) -> None:
    body = f"Path('{tmp_path}').joinpath('ran').mkdir()\n    return {_NUMBERS}"
    first = everything(_open(tmp_path, body))
    again = everything(opened("python", f"{tmp_path / 'data.py'}:examples"))
    np.testing.assert_array_equal(first[0], again[0])


def test_open_dataset_runs_a_generator_on_the_cpu(tmp_path: Path) -> None:
    body = (
        "from tensorflow.python.eager import context\n"
        "    def device(): return str(context.context().device_name)\n"
        "    outer = device()\n"
        "    return ((np.float32([d.endswith('CPU:0') for d in (outer, device())]), i % 2)"
        " for i in range(40))"
    )
    np.testing.assert_array_equal(everything(_open(tmp_path, body))[0], np.ones((40, 2)))


def test_fingerprint_changes_with_the_code_and_the_function(tmp_path: Path) -> None:
    path = tmp_path / "data.py"
    path.write_text("def examples(): pass")
    one = fingerprint(_config(path))
    assert one != fingerprint(_config(path, "others"))
    path.write_text("def examples(): return 1")
    assert one != fingerprint(_config(path))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return tf.data.Dataset.range(3).map(lambda i: (i, i)).repeat()", "never ends"),
        ("return 1 / 0", r"it raised ZeroDivisionError: division by zero \(line 5\)"),
        (
            "return ((1 / (5 - i), i) for i in range(9))",
            r"its examples raised ZeroDivisionError: division by zero \(line 5\)",
        ),
        ("return [(np.zeros(i), i) for i in range(9)]", r"x of example 1 .* shape \(1,\)"),
        ("return []", "there are no examples"),
        ("return [3]", r"not a pair \(input, target\)"),
        ("return [((1, 2), 3)]", "an example has 2 arrays for x"),
        ("return [({'z': 1}, 3)]", "an example has no x; it has z"),
        ("return {'tset': []}", "it returned the parts tset"),
    ],
)
def test_open_dataset_raises_data_error_when_examples_are_wrong(
    tmp_path: Path, body: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        _open(tmp_path, body)


def test_open_dataset_raises_data_error_when_there_is_no_such_function(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text("def other(): pass")
    with pytest.raises(DataError, match="it has no function 'examples'; there are other"):
        opened("python", f"{tmp_path / 'data.py'}:examples")


_BESIDE = """
import numpy as np
from pathlib import Path
def examples():
    count = int((Path(__file__).parent / "count.txt").read_text())
    return ((np.full(3, i, np.float32), i % 4) for i in range(count))
"""


def _beside(folder: Path, count: int) -> int:
    """Return how many examples a function gives that reads their number beside itself."""
    folder.mkdir(exist_ok=True)
    (folder / "data.py").write_text(_BESIDE)
    (folder / "count.txt").write_text(str(count))
    return len(everything(opened("python", f"{folder / 'data.py'}:examples"))[1])


def test_open_dataset_reads_what_lies_beside_this_function_not_beside_its_twin(
    tmp_path: Path,
) -> None:
    assert _beside(tmp_path / "a", 40) == 40
    assert _beside(tmp_path / "b", 60) == 60


def test_open_dataset_runs_the_function_again_when_what_it_read_has_changed(
    tmp_path: Path,
) -> None:
    assert [_beside(tmp_path / "a", count) for count in (40, 40, 60)] == [40, 40, 60]


def test_clips_become_what_the_front_end_makes_of_them(tmp_path: Path) -> None:
    body = "return ((np.sin(np.arange(90 + i) / (1 + i % 2)), i % 2) for i in range(40))"
    audio = {"sample_rate": 1_000, "seconds": 0.1, "bands": 4}
    dataset = _open(tmp_path, body, audio=audio)
    x, y = all_of(dataset.test)
    # Clips of 90 to 129 samples are filled with zeros, or cut, to 100.
    clips = [np.sin(np.arange(90 + i) / (1 + i % 2))[:100] for i in range(40)]
    padded = np.stack([np.pad(clip, (0, 100 - len(clip))) for clip in clips])
    expected = features(padded, AudioConfig.model_validate(audio))
    for one, label in zip(np.asarray(x), np.asarray(y), strict=True):
        own = np.flatnonzero((expected == one).all(axis=(1, 2, 3)))
        assert own.size
        assert set(own % 2) == {label}


def test_boxes_are_rows_with_their_areas(tmp_path: Path) -> None:
    row = "[[2, 1, 6, 4, 1], [0, 0, 0, 0, -1]]"
    body = f"return ((np.full((8, 8, 1), i, np.uint8), np.array({row})) for i in range(20))"
    dataset = _open(tmp_path, body, targets=["boxes"], classes=["cat", "dog"])
    _, y = dataset.test.arrays(np.arange(1))
    np.testing.assert_array_equal(y, [[[2, 1, 6, 4, 1, 0, 12], [0, 0, 0, 0, -1, 0, 0]]])
    assert (dataset.has_boxes, dataset.class_names) == (True, ("cat", "dog"))


@pytest.mark.parametrize(
    ("example", "settings", "message"),
    [
        ("(np.zeros((9, 2)), 1)", {"audio": {}}, r"float64 of shape \(9, 2\)"),
        ("(np.zeros(9, np.int16), 1)", {"audio": {}}, "int16"),
        ("(np.zeros((4, 4, 1)), np.zeros(5))", {"targets": ["boxes"]}, r"of shape \(5,\)"),
        ("(np.zeros(3), 1)", {"slices": ["room"]}, "1 arrays for x, room"),
    ],
)
def test_clips_boxes_and_columns_are_refused_in_another_form(
    tmp_path: Path, example: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        _open(tmp_path, f"return [{example}] * 20", **settings)
