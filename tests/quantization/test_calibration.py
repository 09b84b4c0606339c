from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shrink.quantization import calibration
from shrink.quantization.calibration import CalibrationExamples


class Counted:
    """Examples that count how often they are read."""

    labels = np.arange(120) % 4
    reads = 0

    def __len__(self) -> int:
        return 120

    def arrays(self, indices: np.ndarray) -> tuple[Any, Any]:
        self.reads += len(indices)
        return np.asarray(indices, np.uint8)[:, None], None


@pytest.mark.parametrize(("most_bytes", "reads"), [(1000, 120), (300, 240)])
def test_batches_read_small_examples_once_and_large_ones_each_time(
    monkeypatch: pytest.MonkeyPatch, most_bytes: int, reads: int
) -> None:
    monkeypatch.setattr(calibration, "_MOST_KEPT_BYTES", most_bytes)
    examples: Any = Counted()
    sample = CalibrationExamples(examples, 120, seed=0)
    batches = sample.batches()
    for _ in range(2):
        rows = np.concatenate([x for arrays in batches for x in arrays.values()])
        np.testing.assert_array_equal(rows[:, 0], sample.indices)
        assert rows.dtype == np.float32
    assert examples.reads == reads


def test_missing_labels_are_those_without_a_chosen_example() -> None:
    examples: Any = Counted()
    assert CalibrationExamples(examples, 120, seed=0).missing_labels() == []
    chosen = CalibrationExamples(examples, 2, seed=0)
    labels = set(Counted.labels[chosen.indices])
    assert set(chosen.missing_labels()) == {0, 1, 2, 3} - labels
