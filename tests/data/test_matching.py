from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shrink.base.errors import DataError
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.matching import ModelNames, in_model_order, indices_by_name, needs_names
from shrink.data.opening import open_dataset
from tests.unlabelled import UnlabelledExamples

MODEL = ModelNames((("a",), ("b", "key_b"), ("c",)), (("kind", "output_0"), ("side",)))


def opened(folder: Path, **keys: Any) -> Dataset:
    """Three inputs that tell themselves apart by their values, and two targets."""
    rows = np.arange(20, dtype=np.float32)[:, None]
    arrays = {name: 100 * (place + 1) + rows for place, name in enumerate(("a", "b", "c"))}
    labels = {"kind": np.arange(20) % 2, "side": np.arange(20) % 4}
    extra = {"x1": arrays["a"], "x2": arrays["b"], "x3": arrays["c"], "key_b": arrays["b"]}
    np.savez(folder / "data.npz", **{**arrays, **labels, **extra})  # type: ignore[arg-type]
    config = {"source": "npz", "path": str(folder / "data.npz"), "targets": ("kind", "side")}
    return open_dataset(DataConfig.model_validate({**config, **keys}), seed=0)


def hundreds(dataset: Dataset) -> list[int]:
    x, _ = dataset.test.arrays(np.arange(2))
    return [int(part[0, 0]) // 100 for part in x]


@pytest.mark.parametrize("names", [("a", "b", "c"), ("c", "a", "b"), ("b", "c", "a")])
def test_in_model_order_matches_by_name_whatever_the_recipes_order(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    dataset = in_model_order(opened(tmp_path, inputs=names, targets=("side", "kind")), MODEL)
    assert hundreds(dataset) == [1, 2, 3]
    assert (dataset.input_names, dataset.target_names) == (("a", "b", "c"), ("kind", "side"))
    _, (kind, side) = dataset.test.arrays(np.arange(4))
    assert (kind == side % 2).all()
    assert [spec.shape for spec in dataset.test.input_spec] == [(1,), (1,), (1,)]
    x, y = dataset.train.load(np.arange(2))
    assert [int(part[0, 0]) // 100 for part in x] == [1, 2, 3]
    assert len(y) == 2
    assert dataset.notes == opened(tmp_path, inputs=names).notes


def test_in_model_order_takes_a_dicts_key_for_a_name(tmp_path: Path) -> None:
    dataset = in_model_order(opened(tmp_path, inputs=("c", "key_b", "a")), MODEL)
    assert hundreds(dataset) == [1, 2, 3]
    assert dataset.input_arrays == ("a", "key_b", "c")


def test_in_model_order_goes_by_position_where_no_name_is_the_models(tmp_path: Path) -> None:
    dataset = in_model_order(opened(tmp_path, inputs=("x2", "x1", "x3")), MODEL)
    assert hundreds(dataset) == [2, 1, 3]
    assert dataset.notes[-1] == (
        "inputs by position, as their names are not the model's: x2 to a, x1 to b, x3 to c"
    )


def test_in_model_order_refuses_a_position_that_contradicts_a_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the array b belongs to the model's input a") as one:
        in_model_order(opened(tmp_path, inputs=("b", "x1", "x3")), MODEL)
    assert one.value.subject == "data.inputs"
    assert "a, b, c" in one.value.message
    with pytest.raises(DataError, match="output") as other:
        in_model_order(opened(tmp_path, inputs=("a", "b", "c"), targets=("side", "x1")), MODEL)
    assert other.value.subject == "data.targets"


class Varied(UnlabelledExamples):
    """Inputs that are one more with every draw, and targets named apart."""

    input_spec = target_spec = (None, None)
    is_augmented = True

    def draw(self, seed: int, epoch: int, indices: np.ndarray) -> np.ndarray:
        return np.full((len(indices), 1), epoch, np.float32)

    def load_augmented(self, indices: np.ndarray, numbers: np.ndarray) -> tuple[Any, Any]:
        x, _ = self.arrays(indices)
        return tuple(part + numbers for part in x), ("first", "second")


def test_in_model_order_moves_what_is_drawn_anew_in_every_epoch() -> None:
    examples: Any = Varied(np.zeros((3, 1)), np.ones((3, 1)))
    dataset = Dataset(examples, examples, examples, (), None, (), ("b", "a"), ("q", "p"))
    names = ModelNames((("a",), ("b",)), (("p",), ("q",)))
    train: Any = in_model_order(dataset, names).train
    indices = np.arange(3)
    (a, b), targets = train.load_augmented(indices, train.draw(0, 5, indices))
    assert (a == 6).all()
    assert (b == 5).all()
    assert targets == ("second", "first")


def test_in_model_order_keeps_what_normalizes(tmp_path: Path) -> None:
    dataset = opened(tmp_path, inputs=("c", "b", "a"), normalize={"scale": 2.0})
    assert hundreds(in_model_order(dataset, MODEL)) == [2, 4, 6]


def test_in_model_order_of_an_autoencoder_moves_its_targets_with_its_inputs(tmp_path: Path) -> None:
    data = opened(tmp_path, inputs=("c", "b", "a"), target="input")
    outputs = (("d1",), ("d2",), ("d3",))
    dataset = in_model_order(data, ModelNames(MODEL.inputs, outputs))
    x, y = dataset.test.arrays(np.arange(3))
    assert hundreds(dataset) == [1, 2, 3]
    for given, wanted in zip(x, y, strict=True):
        np.testing.assert_array_equal(given, wanted)


def test_needs_names_of_several_inputs_or_targets_alone(tmp_path: Path) -> None:
    assert needs_names(opened(tmp_path, inputs=("a",)))
    assert not needs_names(opened(tmp_path, inputs=("a",), targets=("kind",)))


@pytest.mark.parametrize(
    ("given", "wanted", "places"),
    [
        (("a", "b"), (("b",), ("a",)), [1, 0]),
        (("a",), (("a",), ("b",)), None),
        (("a", "x"), (("a",), ("b",)), None),
        (("a", "b"), (("a", "b"), ("a", "b")), None),
    ],
)
def test_indices_by_name_needs_one_array_for_each(
    given: tuple[str, ...], wanted: tuple[tuple[str, ...], ...], places: list[int] | None
) -> None:
    assert indices_by_name(given, wanted) == places
