"""Devices as a recipe asks for them, on a machine without a GPU."""

from __future__ import annotations

import pytest
import tensorflow as tf

from shrink.base.errors import ResourceError
from shrink.contract.training import Training
from shrink.engine.devices import open_devices

no_gpu = pytest.mark.skipif(
    bool(tf.config.list_physical_devices("GPU")), reason="is about CPU devices"
)


@no_gpu
def test_open_devices_opens_one_cpu_by_default() -> None:
    devices = open_devices(Training())
    assert (devices.replicas, devices.device_names) == (1, ("CPU:0",))
    assert devices.strategy is tf.distribute.get_strategy()


@no_gpu
def test_open_devices_refuses_more_replicas_when_tensorflow_runs_already() -> None:
    tf.zeros(()).numpy()
    with pytest.raises(ResourceError, match="already runs") as caught:
        open_devices(Training(replicas=3))
    assert "fresh process" in str(caught.value.hint)
