"""Files of old converters that TFLite Micro runs and LiteRT refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shrink.base.errors import ModelError
from shrink.measure.inference import measure_inference
from shrink.tflite.arena import predict_in_micro
from shrink.tflite.interpreter import Session, load
from shrink.tflite.litert_twin import OUT_OF_RANK, litert_twin, not_in_litert
from shrink.tools.artifact import describe_artifact
from tests.compact.toys import as_of_2020, chain


def test_only_files_that_litert_refuses_have_a_twin() -> None:
    new, old = chain(), as_of_2020(chain())
    assert litert_twin(new) is new
    assert not_in_litert(new) == ""
    assert not_in_litert(old) == OUT_OF_RANK
    with pytest.raises(ModelError, match="quantized_dimension"):
        Session(old)
    Session(litert_twin(old))


def test_the_twin_computes_what_tflite_micro_does() -> None:
    old, new = as_of_2020(chain()), chain()
    examples = np.random.default_rng(0).normal(0, 30, (3, 16, 8, 4)).astype(np.float32)
    (found,), (wanted,) = load(old).predict(examples), load(new).predict(examples)
    (micro,) = predict_in_micro(old, examples)
    assert found.tobytes() == wanted.tobytes()
    step = load(old).output_details[0].scale  # XNNPACK rounds some sums another way
    np.testing.assert_allclose(micro, found, rtol=0, atol=1.001 * step)
    assert len({row.tobytes() for row in found}) == 3


def test_figures_are_those_of_tflite_micro_and_others_say_why_there_are_none(
    tmp_path: Path,
) -> None:
    path = tmp_path / "old.tflite"
    path.write_bytes(as_of_2020(chain()))
    found = describe_artifact(path)
    assert found.arena_bytes is not None
    assert found.audit.tflm_fails is None
    assert "quantized_dimension" in str(found.audit.litert_fails)
    assert measure_inference(path).p50_ms.reason == f"latency not measured: {OUT_OF_RANK}"
