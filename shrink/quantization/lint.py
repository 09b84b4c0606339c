"""What is wrong with calibration examples, told before their ranges are trusted."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from shrink.quantization.calibration import Batches, CalibrationExamples

_FEW = 100
_MOST_NAMED = 5


def lint_calibration(calibration: CalibrationExamples, class_names: Sequence[str]) -> list[str]:
    """Return a sentence for everything that makes the examples a poor sample of the training split.

    Args:
        calibration: the sample.
        class_names: names of the labels, empty where they have none.
    """
    notes = []
    if len(calibration.indices) < _FEW:
        notes.append(
            f"calibration: {len(calibration.indices)} examples; ranges from fewer than {_FEW} "
            "depend on which these are"
        )
    constant, duplicated = count_repeats(calibration.batches())
    if constant:
        notes.append(f"calibration: {constant} examples hold one value everywhere")
    if duplicated:
        notes.append(f"calibration: {duplicated} examples repeat another one")
    if missing := calibration.missing_labels():
        named = [class_names[i] if i < len(class_names) else str(i) for i in missing]
        more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        notes.append(
            f"calibration: no example of the classes {', '.join(named[:_MOST_NAMED])}{more}"
        )
    return notes


def count_repeats(batches: Batches) -> tuple[int, int]:
    """Return the number of examples with one value everywhere, and of those seen before.

    Of several inputs, each must hold one value, and all of them count for a repeat.
    Constant examples are not counted as repeats of one another.
    """
    constant = duplicated = 0
    seen: set[bytes] = set()
    for arrays in batches:
        for parts in zip(*arrays.values(), strict=True):
            if any(part.size > 1 for part in parts) and not any(np.ptp(part) for part in parts):
                constant += 1
                continue
            values = b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
            digest = hashlib.blake2b(values).digest()
            duplicated += digest in seen
            seen.add(digest)
    return constant, duplicated
