"""No test example is read by a point of a search: counted, in the work of real workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from shrink.base.console import Console
from shrink.base.yaml import loads
from shrink.contract.codec import to_plain
from shrink.contract.job import StepJob
from shrink.data import membership
from shrink.data.examples import Examples
from shrink.data.sources import digits
from shrink.data.views import View
from shrink.recipe.load import RawRecipe
from shrink.run.execute import execute, measure_again
from shrink.run.options import RunOptions
from shrink.search.candidates import Candidates
from shrink.search.session import Search
from tests.jobs import quiet
from tests.search.fake import FakeSizes
from tests.search.test_session import found_in

MODEL = """
import tf_keras as keras
L = keras.layers
def build():
    return keras.Sequential([L.Input((8, 8, 1)), L.Flatten(), L.Dense(8, "relu"), L.Dense(10)])
"""
RECIPE = """
name: r
data: {source: digits}
stages:
  - train: {epochs: 1}
  - distill: {epochs: 1, control: true, student: {width: 0.5}}
  - prune: {method: channels, parameters: 0.7, allocation: sensitivity, epochs: 1}
  - quantize: {}
gates: {accuracy_drop: 1.0}
"""


class Counted(View):
    """Test examples, of which it is counted what is read."""

    def __init__(self, of: Examples, read: Callable[[int], None]) -> None:
        super().__init__(of)
        self._read = read

    def arrays(self, indices: np.ndarray) -> Any:
        self._read(len(indices))
        return super().arrays(indices)

    def load(self, indices: tf.Tensor) -> Any:
        self._read(1)
        return super().load(indices)


@pytest.mark.slow
def test_points_read_no_test_example_with_control_sensitivities_and_gates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
    read, now = Counter[str](), ["nothing"]
    opened, hashes = digits.open_source, membership._hashes

    def counting(*given: Any) -> Any:
        found = opened(*given)
        test = Counted(found.test, lambda n: read.update({now[0]: n}))
        return replace(found, test=test)

    def attempt(job: StepJob, work: Path, on_event: Callable[..., None]) -> Any:
        now[0] = job.measured_on
        job = replace(job, work=work)
        done = (execute if job.made is None else measure_again)(job, quiet)
        return to_plain(done)

    def hashed(examples: Any) -> Any:
        before, now[0] = now[0], "hashed"
        try:
            return hashes(examples)
        finally:
            now[0] = before

    monkeypatch.setattr(digits, "open_source", counting)
    monkeypatch.setattr(membership, "_hashes", hashed)
    value: Any = {**loads(RECIPE, "r").value, "model": str(tmp_path / "model.py:build")}
    value["search"] = {
        "space": {"prune.parameters": [0.7]},
        "trials": 1,
        "objectives": ["accuracy"],
    }
    candidates = Candidates.read(RawRecipe(value, {}), Path("r"), ())
    made = Search(candidates, RunOptions(tmp_path / "out"), Console(quiet=True))
    made.runs.attempt, made.make_sizes = attempt, FakeSizes
    assert made.run() == 0
    assert read["test"] > 0
    # Which examples are in which split is kept by hashes of their contents: nothing is run on them.
    assert set(read) <= {"test", "hashed"}
    assert any("distill.control" in one for one in found_in(tmp_path)["warnings"])
