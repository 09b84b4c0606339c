"""Forms of constants for TFLM_DECODE: by hand, there and back, and damaged."""

from __future__ import annotations

import numpy as np
import pytest

from shrink.base.errors import ModelError
from shrink.compact.decode.codec import bit_mask, smallest_form
from shrink.tflite.litert_twin import decoded, dense_twin, has_decode


def test_a_bit_mask_has_a_bit_for_each_value_and_those_that_are_not_zero() -> None:
    form = bit_mask(np.array([[0, 5, 0], [-3, 0, 0], [0, 0, 7]], np.int8))
    assert form.stored.tolist() == [0b01010000, 0b10000000]
    assert form.ancillary[:16].tolist() == [2, 1, 0, 0, 1] + [0] * 11
    assert form.ancillary[16:].view(np.int8).tolist() == [5, -3, 7]


def test_one_table_has_indices_of_three_bits() -> None:
    # Sorted: -4, 1, 2, 7, 10; the indices are 2 3 3 4 1 0 3 2.
    form = smallest_form(np.array([2, 7, 7, 10, 1, -4, 7, 2] * 32, np.int8), None)
    assert form.form == "one table, 3 bits"
    assert form.stored[:3].tolist() == [0b01001101, 0b11000010, 0b00011010]
    assert len(form.stored) == 96
    assert form.ancillary.view(np.int8).tolist() == [0, 1, 0, 0, 1, 3, 5] + [0] * 9 + [
        -4, 1, 2, 7, 10,
    ]  # fmt: skip


def test_one_table_for_several_channels_lies_at_a_distance_of_zero() -> None:
    values = np.tile(np.array([3, -3], np.int8), (8, 32))
    form = smallest_form(values, 0)
    assert form.form == "one table, 1 bit"
    assert form.ancillary[6] == 0


def test_a_table_a_channel_where_channels_have_few_values_of_their_own() -> None:
    values = np.arange(-60, 60, dtype=np.int8)[:, None] + np.tile([0, 5], 200).astype(np.int8)
    form = smallest_form(values, 0)
    assert form.form == "a table a channel, 1 bit"
    assert form.ancillary[6] == 2
    assert len(form.ancillary) == 16 + 2 * 120
    found = decoded(form.stored, form.ancillary, values.shape, 120, 0)
    assert np.array_equal(found, values)


@pytest.mark.parametrize(
    ("shape", "axis"), [((5, 3, 3, 7), 0), ((1, 3, 5, 11), 3), ((9, 33), None)]
)
@pytest.mark.parametrize("count", [2, 3, 6, 16, 19, 40, 100, 200])
def test_what_is_decoded_is_what_was_stored(
    shape: tuple[int, ...], axis: int | None, count: int
) -> None:
    rng = np.random.default_rng(count)
    values = rng.choice(rng.permutation(np.arange(-128, 128))[:count], shape).astype(np.int8)
    values[rng.random(shape) < (count % 2) * 0.8] = 0
    form = smallest_form(values, axis)
    scales = 1 if axis is None else shape[axis]
    found = decoded(form.stored, form.ancillary, shape, scales, axis or 0)
    assert np.array_equal(found, values)


def damaged(form: str) -> tuple[np.ndarray, np.ndarray]:
    values = np.tile(np.array([0, 5, 0, 9], np.int8), 16)
    stored, ancillary = bit_mask(values)[1:]
    if form == "version":
        ancillary[1] = 2
    elif form == "kind":
        ancillary[0] = 1
    elif form == "short mask":
        stored = stored[:-1]
    elif form == "short values":
        ancillary = ancillary[:-1]
    elif form == "short header":
        ancillary = ancillary[:9]
    elif form == "no bits":
        ancillary[0] = 0
    elif form == "beyond":
        ancillary = np.array([0, 1, 0, 0, 1, 1, 2, *[0] * 9, 7], np.uint8)
    return stored, ancillary


@pytest.mark.parametrize(
    "form",
    ["version", "kind", "short mask", "short values", "short header", "no bits", "beyond"],
)
def test_what_is_damaged_is_refused(form: str) -> None:
    with pytest.raises(ModelError, match="cannot be decoded"):
        decoded(*damaged(form), (64,), 1, 0)


def test_a_constant_of_too_many_values_is_refused() -> None:
    with pytest.raises(ModelError, match="cannot be decoded"):
        decoded(*damaged("none"), (1 << 20, 1 << 20), 1, 0)


def test_a_file_without_the_operator_is_its_own_twin() -> None:
    from tests.compact.toys import chain

    content = chain()
    assert not has_decode(content)
    assert dense_twin(content) is content
