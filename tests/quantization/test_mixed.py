"""The search, on artifacts whose size and drop are known in closed form."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.quantization.edge_quantizer import weighted_operators
from shrink.quantization.mixed import (
    Sensitivity,
    least_error_within_bytes,
    measure_sensitivity,
    smallest_within_drop,
)
from shrink.tflite.convert import convert

RANKED = [
    Sensitivity(name, "CONV_2D", parameters, error)
    for name, parameters, error in (("a", 400, 0.01), ("b", 100, 0.02), ("c", 200, 0.2))
]
NAMES = [one.name for one in RANKED]


def build(bits: Mapping[str, int], careful: bool) -> bytes:
    """An artifact as long as its weights, whose first bytes are the widths."""
    widths = [bits.get(name, 8) for name in NAMES]
    size = sum(one.parameters * w // 8 for one, w in zip(RANKED, widths, strict=True))
    return bytes(widths) + b"x" * (size - len(widths))


def drop_of(content: bytes) -> float:
    narrow = [w == 4 for w in content[:3]]
    return sum(one.error * is_narrow for one, is_narrow in zip(RANKED, narrow, strict=True))


@pytest.mark.parametrize(("limit", "narrow"), [(0.0, ""), (0.011, "a"), (0.1, "ab"), (0.3, "abc")])
def test_smallest_within_drop_takes_as_many_operators_as_the_budget_allows(
    limit: float, narrow: str
) -> None:
    found = smallest_within_drop(RANKED, build, drop_of, limit)
    assert {name for name, width in found.bits.items() if width == 4} == set(narrow)
    assert found.content == build(found.bits, True)
    assert found.drop == pytest.approx(drop_of(found.content))


def test_smallest_within_drop_refuses_when_8_bits_lose_more() -> None:
    with pytest.raises(StageError, match="8-bit weights everywhere"):
        smallest_within_drop(RANKED, build, lambda content: 0.02, 0.01)


@pytest.mark.parametrize(
    ("limit", "narrow"), [(700, ""), (500, "a"), (450, "ab"), (400, "ac"), (350, "abc")]
)
def test_least_error_within_bytes_narrows_only_what_the_budget_needs(
    limit: int, narrow: str
) -> None:
    found = least_error_within_bytes(RANKED, build, limit)
    assert {name for name, width in found.bits.items() if width == 4} == set(narrow)
    assert len(found.content) <= limit


def test_least_error_within_bytes_refuses_a_size_out_of_reach() -> None:
    with pytest.raises(StageError, match="4-bit weights wherever possible"):
        least_error_within_bytes(RANKED, build, 349)


def test_least_error_within_bytes_counts_what_is_added_to_the_file() -> None:
    found = least_error_within_bytes(RANKED, build, 500, lambda content: len(content) + 50)
    assert {name for name, width in found.bits.items() if width == 4} == set("ab")
    with pytest.raises(StageError, match="4-bit weights wherever possible"):
        least_error_within_bytes(RANKED, build, 350, lambda content: len(content) + 1)


L = keras.layers


def test_measure_sensitivity_ranks_a_layer_that_matters_behind_one_that_does_not() -> None:
    keras.utils.set_random_seed(0)
    inputs = L.Input((16,))
    loud = L.Dense(8, name="loud")(inputs)
    quiet = L.Dense(8, name="quiet")(inputs)
    model = keras.Model(inputs, L.Add()([loud, L.Rescaling(0.01)(quiet)]))
    content = convert(model, "float32").content
    x = np.random.default_rng(0).normal(size=(50, 16)).astype(np.float32)
    ranked = measure_sensitivity(content, weighted_operators(content), [{"x": x}])
    assert ["quiet" in one.name for one in ranked] == [True, False]
    assert ranked[0].error < 0.01 * ranked[1].error
    assert [one.saved_bytes for one in ranked] == [64, 64]


@pytest.mark.parametrize(("largest", "is_exact"), [(7, True), (15, False)])
def test_measure_sensitivity_rounds_to_4_bits(largest: int, is_exact: bool) -> None:
    codes = np.arange(-largest, largest + 1, dtype=np.float32)[:, None]  # of a symmetric type
    model = keras.Sequential([L.Input((len(codes),)), L.Dense(1, use_bias=False)])
    model.set_weights([codes / largest])
    content = convert(model, "float32").content
    x = np.random.default_rng(0).normal(size=(50, len(codes))).astype(np.float32)
    (found,) = measure_sensitivity(content, weighted_operators(content), [{"x": x}])
    assert (found.error < 1e-9) is is_exact
