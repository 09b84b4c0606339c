"""What a stage is given does not depend on the stage's own settings where it must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from shrink.stages.context import StageContext


def context(tmp_path: Path, **training: Any) -> StageContext:
    step = {"name": "s", "kind": "train", "claims": [], "training": training, "inputs": {}}
    job = {"step": step, "data": {"source": "digits"}, "task": {}, "split_seed": 0}
    return StageContext(job, lambda *args, **fields: None, tmp_path)


def test_dataset_is_split_alike_whatever_the_stages_own_seed(tmp_path: Path) -> None:
    one, other = context(tmp_path).dataset, context(tmp_path, seed=7).dataset
    everything = np.arange(len(one.test))
    np.testing.assert_array_equal(one.test.arrays(everything)[0], other.test.arrays(everything)[0])
