from __future__ import annotations

import numpy as np
import pytest

from shrink.base.errors import StageError
from shrink.tflite.interpreter import load
from shrink.tflite.micro import predict_in_micro
from tests.stages.quantize.toys import float_cnn, pictures


def test_predict_in_micro_gives_what_litert_gives() -> None:
    x = pictures(3)
    (found,) = predict_in_micro(float_cnn(), x)
    np.testing.assert_allclose(found, load(float_cnn()).predict(x)[0], rtol=0, atol=1e-5)
    assert np.ptp(found[:, 0]) > 1e-3  # else any example would do for any other


def test_predict_in_micro_says_when_it_takes_too_long() -> None:
    with pytest.raises(StageError, match=r"took longer than 0\.01 s"):
        predict_in_micro(float_cnn(), pictures(1), timeout_s=0.01)
