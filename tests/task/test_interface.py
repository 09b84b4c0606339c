from __future__ import annotations

from shrink.data.config import DataConfig
from shrink.data.opening import open_dataset
from shrink.measure.inference import one_op_model
from shrink.task.config import TaskConfig
from shrink.task.interface import describe_usage

TASK = TaskConfig()


def test_describe_usage_carries_labels_and_normalisation() -> None:
    normalize = {"scale": 0.0625, "offset": -0.5}
    config = DataConfig.model_validate({"source": "digits", "normalize": normalize})
    told = describe_usage(one_op_model(), open_dataset(config, seed=0), config, TASK)
    assert told.normalize == normalize
    assert told.labels == tuple("0123456789")
    assert [detail.scale for detail in told.inputs or ()] == [None]


def test_describe_usage_says_that_nothing_is_normalized() -> None:
    config = DataConfig(source="digits")
    told = describe_usage(one_op_model(), open_dataset(config, seed=0), config, TASK)
    assert told.normalize is None


def test_describe_usage_keeps_the_audio_front_end_with_what_follows_from_it() -> None:
    audio = {"features": "mfcc", "sample_rate": 8_000, "window_ms": 40, "stride_ms": 40}
    config = DataConfig.model_validate({"source": "audio", "path": "clips", "audio": audio})
    content, digits = one_op_model(), open_dataset(DataConfig(source="digits"), seed=0)
    told = describe_usage(content, digits, config, TASK).front_end
    assert told is not None
    counted = {"window_samples": 320, "stride_samples": 320, "fft_size": 512, "frames": 25}
    assert counted.items() <= told.items()
    assert (told["high_hz"], told["low_hz"], told["coefficients"]) == (4_000, 20, 10)
    assert describe_usage(content, digits, DataConfig(source="digits"), TASK).front_end is None
