"""Classes of tensorflow-model-optimization that a model file may name, and where they are.

A file only says a name. What is loaded for it is the class of the installed package that stands
here, in the module that stands here, whatever module the file says. Classes of users, such as a
QuantizeConfig of their own, are none of these; nor are the package's experimental ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from shrink.base.types import Json, JsonObject

_CORE = "tensorflow_model_optimization.python.core"
_PRUNING = f"{_CORE}.sparsity.keras"
_QUANTIZATION = f"{_CORE}.quantization.keras"
_EIGHT_BITS = f"{_QUANTIZATION}.default_8bit"

CLASSES: Mapping[str, str] = {
    "PruneLowMagnitude": f"{_PRUNING}.pruning_wrapper",
    "ConstantSparsity": f"{_PRUNING}.pruning_schedule",
    "PolynomialDecay": f"{_PRUNING}.pruning_schedule",
    "ClusterWeights": f"{_CORE}.clustering.keras.cluster_wrapper",
    "QuantizeAnnotate": f"{_QUANTIZATION}.quantize_annotate",
    "QuantizeWrapper": f"{_QUANTIZATION}.quantize_wrapper",
    "QuantizeWrapperV2": f"{_QUANTIZATION}.quantize_wrapper",
    "QuantizeLayer": f"{_QUANTIZATION}.quantize_layer",
    "QuantizeAwareActivation": f"{_QUANTIZATION}.quantize_aware_activation",
    "NoOpActivation": f"{_QUANTIZATION}.quantize_aware_activation",
    "OutputOnlyConfig": f"{_QUANTIZATION}.quantize_config",
    "LastValueQuantizer": f"{_QUANTIZATION}.quantizers",
    "MovingAverageQuantizer": f"{_QUANTIZATION}.quantizers",
    "AllValuesQuantizer": f"{_QUANTIZATION}.quantizers",
    "Default8BitQuantizeConfig": f"{_EIGHT_BITS}.default_8bit_quantize_registry",
    "Default8BitConvQuantizeConfig": f"{_EIGHT_BITS}.default_8bit_quantize_registry",
    "Default8BitConvTransposeQuantizeConfig": f"{_EIGHT_BITS}.default_8bit_quantize_registry",
    "Default8BitActivationQuantizeConfig": f"{_EIGHT_BITS}.default_8bit_quantize_registry",
    "Default8BitOutputQuantizeConfig": f"{_EIGHT_BITS}.default_8bit_quantize_configs",
    "NoOpQuantizeConfig": f"{_EIGHT_BITS}.default_8bit_quantize_configs",
}
"""Each class that may be named, with its module."""

WRAPPERS = frozenset(
    {"PruneLowMagnitude", "ClusterWeights", "QuantizeAnnotate", "QuantizeWrapper",
     "QuantizeWrapperV2", "QuantizeLayer"}
)  # fmt: skip
"""Layers among them; a file without any is no model of tfmot."""
QUANTIZING = frozenset({"QuantizeWrapper", "QuantizeWrapperV2", "QuantizeLayer"})

_ATTRIBUTES = {
    "weight_attrs": frozenset({"kernel", "depthwise_kernel"}),
    "activation_attrs": frozenset({"activation"}),
}
"""Attributes of a layer that tfmot reads and sets by the name that the file says."""


def is_class(name: str, module: str | None) -> bool:
    """Whether a name means a class of tfmot; the old formats say no module."""
    return name in CLASSES and module in (None, CLASSES[name])


def strange_attribute(config: Json) -> str | None:
    """Return an attribute that no class of tfmot itself would name, None where there is none.

    Args:
        config: of an object that `is_class` takes.
    """
    if not isinstance(config, dict):
        return None
    for key, known in _ATTRIBUTES.items():
        given = config.get(key, [])
        for name in given if isinstance(given, list) else [given]:
            if not isinstance(name, str) or name not in known:
                return f"{key}: {str(name)[:80]}"
    return None


def holds_wrappers(config: Json) -> bool:
    """Whether a model's configuration names a layer of tfmot."""
    if isinstance(config, dict):
        return config.get("class_name") in WRAPPERS or any(map(holds_wrappers, config.values()))
    return isinstance(config, list) and any(map(holds_wrappers, config))


def built_once(config: Json) -> Json:
    """Return a model's configuration with which tfmot's quantizing layers are built once.

    tfmot 0.8.1 does not say of them that they are built: where the file says how, as .keras files
    do, they are built then and again when they are called, and have twice the variables.
    """
    if isinstance(config, list):
        return [built_once(item) for item in config]
    if not isinstance(config, dict):
        return config
    left_out = {"build_config"} if config.get("class_name") in QUANTIZING else set()
    changed: JsonObject = {k: built_once(v) for k, v in config.items() if k not in left_out}
    return changed
