from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from shrink.stages.quantize.config import QuantizeConfig


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"scheme": "mixed"}, "exactly one budget"),
        ({"scheme": "mixed", "accuracy_drop": 0.1, "file_bytes": 1000}, "exactly one budget"),
        (
            {"scheme": "static_wi8_ai8", "file_bytes": 1000},
            "file_bytes is a budget of scheme mixed",
        ),
        ({"scheme": "float16", "activations": "float32"}, "activations belongs to scheme mixed"),
        ({"scheme": "mixed", "file_bytes": 1000, "input_type": "uint8"}, "int8 or float32"),
        ({"scheme": "float16", "aware": True, "epochs": 2}, "aware belongs to scheme static"),
        ({"scheme": "float16", "dense_scales": "tensor"}, "dense_scales belongs to static"),
        ({"sparse": True, "target": "tflm"}, "sparse needs target litert"),
        ({"scheme": "float16", "target": "tflm"}, "no kernels for the weights of float16"),
        ({"scheme": "dynamic_wi4_afp32", "target": "tflm"}, "no kernels for the weights of dyn"),
        (
            {"scheme": "mixed", "file_bytes": 9, "activations": "float32", "target": "tflm"},
            "target tflm: TFLite Micro runs mixed with activations: int8",
        ),
        ({"aware": True}, "aware and epochs need each other"),
        ({"epochs": 2}, "aware and epochs need each other"),
        (
            {"scheme": "mixed", "file_bytes": 9, "activations": "float32", "input_type": "int8"},
            "can have float32",
        ),
    ],
)
def test_quantize_config_refuses_keys_that_do_not_go_together(
    keys: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        QuantizeConfig(**keys)


@pytest.mark.parametrize(
    "keys", [{}, {"scheme": "float16"}, {"scheme": "mixed", "file_bytes": "60KB"}]
)
def test_quantize_config_loads_again_when_written_out_in_full(keys: dict[str, Any]) -> None:
    config = QuantizeConfig(**keys)
    assert QuantizeConfig.model_validate(config.model_dump(mode="json", by_alias=True)) == config


@pytest.mark.parametrize(
    ("word", "scheme"),
    [
        ("int8", "static_wi8_ai8"),
        ("int16x8", "static_wi8_ai16"),
        ("dynamic", "dynamic_wi8_afp32"),
        ("weight_only", "weight_only_wi8_afp32"),
        ("fp16", "float16"),
        ("fp32", "float32"),
    ],
)
def test_what_people_type_stands_for_a_scheme(word: str, scheme: str) -> None:
    assert QuantizeConfig(scheme=word) == QuantizeConfig(scheme=scheme)
