"""Masked equals rebuilt on the smallest model of every family of `tf_keras.applications`."""

from __future__ import annotations

from typing import Any

import pytest
import tf_keras as keras

from tests.graph.equivalence import check

A = keras.applications
_DEFAULT: dict[str, tuple[Any, int]] = {
    "MobileNetV2": (A.MobileNetV2, 32),
}
_SLOW: dict[str, tuple[Any, int]] = {
    "MobileNetV3Small": (A.MobileNetV3Small, 32),
    "ConvNeXtTiny": (A.ConvNeXtTiny, 32),
    "DenseNet121": (A.DenseNet121, 32),
    "EfficientNetB0": (A.EfficientNetB0, 32),
    "EfficientNetV2B0": (A.EfficientNetV2B0, 32),
    "InceptionResNetV2": (A.InceptionResNetV2, 75),
    "InceptionV3": (A.InceptionV3, 75),
    "MobileNet": (A.MobileNet, 32),
    "NASNetMobile": (A.NASNetMobile, 32),
    "RegNetX002": (A.RegNetX002, 32),
    "RegNetY002": (A.RegNetY002, 32),
    "ResNet50": (A.ResNet50, 32),
    "ResNet50V2": (A.ResNet50V2, 32),
    "ResNetRS50": (A.ResNetRS50, 32),
    "VGG16": (A.VGG16, 32),
    "Xception": (A.Xception, 71),
}


def build(name: str) -> keras.Model:
    application, side = {**_DEFAULT, **_SLOW}[name]
    return application(
        weights=None, input_shape=(side, side, 3), classes=10, classifier_activation=None
    )


@pytest.mark.parametrize("name", _DEFAULT)
def test_application_is_rebuilt_as_masked(name: str) -> None:
    assert check(build(name), ratios=(0.3,)).groups


@pytest.mark.slow
# EfficientNetV2 of tf-keras itself has an initializer of TensorFlow's in a layer.
@pytest.mark.filterwarnings("ignore:The `keras.initializers.serialize:UserWarning")
@pytest.mark.parametrize("ratio", [0.3, 0.6])
@pytest.mark.parametrize("name", [*_DEFAULT, *_SLOW])
def test_application_is_rebuilt_as_masked_at_every_ratio(name: str, ratio: float) -> None:
    assert check(build(name), ratios=(ratio,)).groups
