import importlib
from pathlib import Path

import pytest

from shrink.base.errors import ModelError
from shrink.base.types import JsonObject
from shrink.model.scan_config import check_config
from shrink.model.tfmot.names import CLASSES, WRAPPERS, built_once, holds_wrappers

_PATH = Path("model.keras")


def _wrapper(**changes: object) -> JsonObject:
    layer = {"class_name": "Dense", "config": {"name": "dense", "activation": "relu"}}
    rounds = {"weight_attrs": ["kernel"], "activation_attrs": ["activation"]}
    wrapped: JsonObject = {
        "module": CLASSES["QuantizeWrapperV2"],
        "class_name": "QuantizeWrapperV2",
        "registered_name": "QuantizeWrapperV2",
        "config": {
            "name": "quant_dense",
            "layer": layer,
            "quantize_config": {"class_name": "Default8BitQuantizeConfig", "config": rounds},
        },
    }
    return {**wrapped, **changes}


def test_classes_are_those_of_the_installed_package() -> None:
    for name, module in CLASSES.items():
        found = getattr(importlib.import_module(module), name)
        assert isinstance(found, type)
        assert (found.__name__, found.__module__) == (name, module)


def test_check_config_passes_what_tfmot_writes() -> None:
    assert check_config(_wrapper(), _PATH) == []


@pytest.mark.parametrize("module", ["os", "tensorflow_model_optimization.python.core.version"])
def test_check_config_refuses_a_class_of_tfmot_from_another_module(module: str) -> None:
    with pytest.raises(ModelError, match="comes from the module"):
        check_config(_wrapper(module=module), _PATH)


def test_check_config_refuses_a_users_quantize_config() -> None:
    config = {**_wrapper()["config"], "quantize_config": {"class_name": "Mine", "config": {}}}
    with pytest.raises(ModelError, match="Mine is not a layer"):
        check_config(_wrapper(config=config), _PATH)


def test_check_config_refuses_a_registered_name_of_somebody() -> None:
    with pytest.raises(ModelError, match="custom object"):
        check_config(_wrapper(registered_name="mine>PruneLowMagnitude"), _PATH)


@pytest.mark.parametrize(
    ("key", "names"),
    [("weight_attrs", ["call"]), ("activation_attrs", ["__class__"]), ("weight_attrs", "kernels")],
)
def test_check_config_refuses_attributes_that_tfmot_does_not_name(key: str, names: object) -> None:
    rounds = {"class_name": "Default8BitQuantizeConfig", "config": {key: names}}
    config = {**_wrapper()["config"], "quantize_config": rounds}
    with pytest.raises(ModelError, match=f"attribute that tfmot does not, {key}"):
        check_config(_wrapper(config=config), _PATH)


@pytest.mark.parametrize("name", sorted(WRAPPERS))
def test_check_config_refuses_code_in_a_wrapper(name: str) -> None:
    inner = {"class_name": "Lambda", "config": {"name": "code", "function": ["4wEAAAA="]}}
    with pytest.raises(ModelError, match="a Lambda carries code"):
        check_config({"class_name": name, "config": {"name": "outer", "layer": inner}}, _PATH)


def test_holds_wrappers_tells_layers_from_other_classes() -> None:
    assert holds_wrappers({"config": {"layers": [_wrapper()]}})
    assert not holds_wrappers({"class_name": "PolynomialDecay", "config": {}})


def test_built_once_leaves_other_layers_alone() -> None:
    dense = {"class_name": "Dense", "build_config": {"input_shape": [None, 3]}}
    both = {"layers": [dense, {**_wrapper(), "build_config": {"input_shape": [None, 3]}}]}
    assert built_once(both) == {"layers": [dense, _wrapper()]}
