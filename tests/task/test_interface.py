from __future__ import annotations

from shrink.data.config import DataConfig
from shrink.data.opening import open_dataset
from shrink.measure.memory import one_op_model
from shrink.task.interface import describe_interface


def test_describe_interface_carries_labels_and_normalisation() -> None:
    normalize = {"scale": 0.0625, "offset": -0.5}
    config = DataConfig.model_validate({"source": "digits", "normalize": normalize})
    told = describe_interface(one_op_model(), open_dataset(config, seed=0), config)
    assert told.normalize == normalize
    assert told.labels == tuple("0123456789")
    assert [detail.scale for detail in told.inputs] == [None]


def test_describe_interface_says_that_nothing_is_normalized() -> None:
    config = DataConfig(source="digits")
    told = describe_interface(one_op_model(), open_dataset(config, seed=0), config)
    assert told.normalize is None
