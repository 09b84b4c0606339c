"""An artifact that is measured again, against one that was measured so at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tf_keras as keras

from shrink.contract.codec import to_plain
from shrink.contract.job import Made, MeasuredOn
from shrink.run.execute import ARTIFACT, SCORES, execute, measure_again
from tests.jobs import quiet, step_job

L = keras.layers


@pytest.mark.parametrize(
    ("kind", "config"),
    [("quantize", {"scheme": "float16"}), ("prune", {"sparsity": 0.5, "epochs": 0})],
)
def test_an_artifact_measured_again_has_the_figures_of_one_measured_at_once(
    kind: str, config: Mapping[str, Any], tmp_path: Path
) -> None:
    keras.utils.set_random_seed(0)
    layers = [L.Flatten(), L.Dense(16, activation="relu"), L.Dense(10, activation="softmax")]
    model = keras.Sequential([L.Input((8, 8, 1)), *layers])
    model.save(tmp_path / "model.keras")

    def job(name: str, measured_on: MeasuredOn, **fields: Any) -> Any:
        work = tmp_path / name
        work.mkdir()
        inputs = {"model": tmp_path / "model.keras"}
        return step_job(
            work, kind=kind, config=config, inputs=inputs, measured_on=measured_on, **fields
        )

    expected = execute(job("at once", "validation"), quiet)
    first = execute(job("first", "nothing"), quiet)
    assert expected.result.metrics
    assert not first.result.metrics
    artifact = tmp_path / "first" / first.files[ARTIFACT]
    made = Made(artifact, to_plain(first.result))
    found = measure_again(job("again", "validation", made=made), quiet)
    for name in ("metrics", "examples", "notes", "warnings"):
        assert getattr(found.result, name) == getattr(expected.result, name)
    # A .keras file says when it was saved, which gzip packs into a byte more or less.
    sizes = [{**(one.result.size or {}), "gzip_bytes": None} for one in (found, expected)]
    assert sizes[0] == sizes[1]
    scores = [
        (tmp_path / name / done.files[SCORES]).read_bytes()
        for name, done in (("again", found), ("at once", expected))
    ]
    assert scores[0] == scores[1]
