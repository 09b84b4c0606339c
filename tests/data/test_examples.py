from __future__ import annotations

import numpy as np

from shrink.base.types import Spec
from shrink.data.examples import example_bytes

LABEL = Spec((), np.dtype(np.int64))


def test_example_bytes_adds_up_any_structure() -> None:
    image = Spec((4, 3, 2), np.dtype(np.uint8))
    assert example_bytes((image, {"a": Spec((5,), np.dtype(np.float32))}), LABEL) == 24 + 20 + 8
