from __future__ import annotations

from typing import Any

import numpy as np

from shrink.quantization.calibration import CalibrationExamples, count_repeats, lint_calibration
from tests.stages.quantize.toys import pictures


class Few:
    """Examples in memory."""

    def __init__(self, x: np.ndarray, labels: np.ndarray | None) -> None:
        self.x = x
        self.labels = labels

    def __len__(self) -> int:
        return len(self.x)

    def arrays(self, indices: np.ndarray) -> tuple[Any, Any]:
        return self.x[indices], None


def linted(x: np.ndarray, labels: np.ndarray | None, count: int) -> list[str]:
    examples: Any = Few(x, labels)
    return lint_calibration(CalibrationExamples(examples, count, seed=0), ("cat", "dog", "owl"))


def test_lint_calibration_has_nothing_to_say_of_a_good_sample() -> None:
    assert linted(pictures(150), np.arange(150) % 3, 120) == []
    assert linted(pictures(150), None, 120) == []


def test_lint_calibration_names_what_is_wrong() -> None:
    x = pictures(150)
    x[:3] = 1.0
    x[5:9] = x[4]
    notes = linted(x, np.arange(150) % 3, 150)
    assert notes == [
        "calibration: 3 examples hold one value everywhere",
        "calibration: 4 examples repeat another one",
    ]


def test_lint_calibration_names_missing_classes_and_small_samples() -> None:
    labels = np.repeat([0, 1, 2], 50)
    notes = linted(pictures(150), labels, 2)
    assert "2 examples" in notes[0]
    assert notes[1].startswith("calibration: no example of the classes ")


def test_count_repeats_counts_across_batches() -> None:
    x = pictures(4)
    assert count_repeats([{"x": x}, {"x": x[:2]}]) == (0, 2)
    assert count_repeats([{"x": np.zeros((3, 2, 2))}]) == (3, 0)
