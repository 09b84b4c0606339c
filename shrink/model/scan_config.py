"""Scans a model's configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from shrink.base.errors import ModelError
from shrink.base.file_kinds import OR_TRUST, refused
from shrink.base.types import Json, JsonObject
from shrink.contract.model_source import NO_TRUST, Trust
from shrink.model.allowlist import (
    ACTIVATIONS,
    FUNCTIONS,
    KERAS_OPS,
    LAYERS,
    LOOKUPS,
    LOSS_LAYERS,
    LOSS_MODULES,
    MODEL_MODULES,
    MODELS,
    OBJECTS,
    PUBLIC_MODULES,
    TENSOR_FUNCTION_LAYERS,
    TENSOR_FUNCTION_MODULES,
    TENSOR_FUNCTIONS,
    VALUES,
)
from shrink.model.tfmot.names import CLASSES, is_class, strange_attribute
from shrink.model.user_modules import trusted_names

_REFERENCE_LENGTHS = (3, 4)
Reference = tuple[str, Json]


def _name(layer: JsonObject) -> str:
    name = layer.get("name")
    return name if isinstance(name, str) else ""


def _nodes(layer: JsonObject) -> list[list[Reference]]:
    nodes = layer.get("inbound_nodes")
    if not isinstance(nodes, list):
        return []
    return [list(_references(node)) for node in nodes if isinstance(node, list)]


def _references(value: Json) -> Iterator[Reference]:
    """Yield layer and node of every tensor that a node names, as tf-keras finds them."""
    if isinstance(value, list):
        if len(value) in _REFERENCE_LENGTHS and isinstance(value[0], str):
            yield value[0], value[1]
            value = value[3:]
        for item in value:
            yield from _references(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _references(item)


_NEVER_LOADED = frozenset({"compile_config", "training_config"})
"""Optimizer, loss and metrics of the model itself: shrink has its own."""

_REBUILD = f"rebuild the model from Keras' own layers; {OR_TRUST}"
_CUSTOM = (
    "name the Python file that defines it: `custom_objects: file.py` in the recipe, or "
    "--custom-objects file.py"
)
_UNKNOWN = f"{_CUSTOM}; or rebuild the model from Keras' own layers"
_DEPTH_CAP = 200
_SIZE_KEYS = ("units", "filters", "input_dim", "output_dim", "key_dim", "value_dim")
_LARGE = 1 << 16
_COUNT_CAP = 1 << 31


@dataclass(frozen=True)
class DeclaredSize:
    """A width that a layer's configuration asks for, too large to be believed unseen."""

    where: str
    key: str
    value: int


def check_config(config: Json, path: Path, trust: Trust = NO_TRUST) -> list[DeclaredSize]:
    """Raise `ModelError` unless a configuration holds nothing but what Keras itself provides.

    Args:
        config: the parsed JSON of a model, as `.keras`, `.h5` and SavedModel files carry it.
        path: the file, for messages.
        trust: what else may pass.

    Returns:
        Sizes above 65,536, to be compared with the weights.
    """
    if isinstance(config, dict):
        config = {key: value for key, value in config.items() if key not in _NEVER_LOADED}
    sizes: list[DeclaredSize] = []
    names = trusted_names(trust)
    for key, value, where in _items(config, "", "model", 0, path):
        if isinstance(value, dict):
            if isinstance(value.get("layers"), list):
                # In a cycle tf-keras would wait without end for an input of a layer.
                layers = [each for each in value["layers"] if isinstance(each, dict)]
                calls = {
                    _name(each): _nodes(each)
                    for each in layers
                    if each.get("class_name") != "InputLayer"
                }
                models = {_name(each) for each in layers if str(each.get("class_name")) in MODELS}
                order = TopologicalSorter[tuple[str, int]]()
                for name, nodes in calls.items():
                    for at, references in enumerate(nodes):
                        order.add((name, at), *([(name, at - 1)] if at else []))
                        for other, index in references:
                            if other not in calls:  # an input, or a name that Keras itself refuses
                                continue
                            # Of a model the first node may be its own graph's.
                            own = int(other in models)
                            most = len(calls[other]) + own
                            if not isinstance(index, int) or not 0 <= index < most:
                                raise refused(
                                    "inbound_nodes name a missing node", f"{where}/{name}", path
                                )
                            order.add((name, at), (other, max(index - own, 0)))
                try:
                    order.prepare()
                except CycleError as error:
                    name, _ = error.args[1][0]
                    raise refused("inbound_nodes form a cycle", f"{where}/{name}", path) from error
            if not trust.everything and not _is_custom(value, names):
                _check_object(value, where, path)
        elif isinstance(value, str):
            activates = key == "activation" or key.endswith("_activation")
            if activates and not trust.everything and value not in ACTIVATIONS | names:
                what = f"{value[:80]!r} is not an activation of Keras"
                raise refused(what, where, path, _UNKNOWN)
        elif key in _SIZE_KEYS and isinstance(value, int | float) and value > _LARGE:
            sizes.append(_size(key, value, where, path))
    return sizes


def _is_custom(value: JsonObject, names: frozenset[str]) -> bool:
    """Whether Keras will find an object among the custom ones, before it looks anywhere else.

    It looks for a function by its name, for a class by its registered name, and by the class's
    only in the old format, which has neither module nor registered name.
    """
    kind = value.get("class_name")
    if kind == "function":
        key = value.get("config")
    elif value.get("module") is None and value.get("registered_name") is None:
        key = kind
    else:
        key = value.get("registered_name")
    return isinstance(key, str) and key in names and kind not in ("Lambda", "__lambda__")


def _size(key: str, value: float, where: str, path: Path) -> DeclaredSize:
    if value > _COUNT_CAP or int(value) != value:
        raise refused(f"{key} of {value:g} needs more memory than this machine has", where, path)
    return DeclaredSize(where, key, int(value))


def _items(
    value: Json, key: str, where: str, depth: int, path: Path
) -> Iterator[tuple[str, Json, str]]:
    """Yield every value below with its key and the names of what is around it."""
    if depth > _DEPTH_CAP:
        raise refused("its configuration is nested too deep", where[:100], path)
    if isinstance(value, dict):
        where = _deeper(where, value)
        yield key, value, where
        for name, item in value.items():
            yield from _items(item, name, where, depth + 1, path)
    elif isinstance(value, list):
        for item in value:
            yield from _items(item, key, where, depth + 1, path)
    else:
        yield key, value, where


def _deeper(where: str, value: JsonObject) -> str:
    config = value.get("config")
    name = config.get("name") if isinstance(config, dict) and "class_name" in value else None
    return f"{where}/{name}"[:300] if isinstance(name, str) else where


def _check_object(value: JsonObject, where: str, path: Path) -> None:
    if "class_name" not in value:
        return
    name, module = value["class_name"], value.get("module")
    if not isinstance(name, str) or not isinstance(module, str | None):
        raise _foreign("an object's class or module is no text", where, path)
    if name in ("Lambda", "__lambda__"):
        raise _foreign("a Lambda carries code", where, path)
    if name in VALUES:
        return
    registered = value.get("registered_name")
    if registered is not None and (not isinstance(registered, str) or ">" in registered):
        raise refused(f"{registered} is a custom object", where, path, _CUSTOM)
    if name == "function":
        _check_function(value, where, path)
    elif name in TENSOR_FUNCTION_LAYERS:
        _check_tensor_function(value, where, path)
    elif name in CLASSES:
        _check_tfmot(value, where, path)
    else:
        _check_class(name, module, where, path)
    if name in LOOKUPS:
        config = value.get("config")
        for key in ("vocabulary", "idf_weights"):
            if isinstance(config, dict) and isinstance(config.get(key), str):
                raise refused(
                    f"{value['class_name']} reads its {key} from {config[key][:80]!r}",
                    where,
                    path,
                    hint="save the layer with its vocabulary inside: vocabulary=[...]",
                )


def _foreign(reason: str, where: str, path: Path) -> ModelError:
    return refused(reason, where, path, _REBUILD)


def _check_class(name: str, module: str | None, where: str, path: Path) -> None:
    if module in KERAS_OPS:
        if name not in KERAS_OPS[module]:
            raise _foreign(f"{name} is not an operation of {module} that is known", where, path)
        return
    if name in LOSS_LAYERS and (module is None or module in LOSS_MODULES):
        return
    in_models = name in MODELS and (module is None or module in MODEL_MODULES)
    public = module is None or module in PUBLIC_MODULES
    if module == "builtins":
        raise _foreign(f"{name} is a Python builtin", where, path)
    if not in_models and not public:
        raise refused(f"{name} comes from the module {module!r}", where, path, _UNKNOWN)
    if not in_models and name not in LAYERS and name not in OBJECTS:
        what = f"{name} is not a layer or object of Keras that is known"
        raise refused(what, where, path, _UNKNOWN if module is None else _REBUILD)


def _check_tfmot(value: JsonObject, where: str, path: Path) -> None:
    """Refuse what has the name of a class of tfmot and comes from elsewhere, or asks for more."""
    name, module = value["class_name"], value.get("module")
    if not is_class(name, module):
        raise refused(f"{name} comes from the module {module!r}", where, path, _UNKNOWN)
    if strange := strange_attribute(value.get("config")):
        raise _foreign(
            f"{name} reads and sets an attribute that tfmot does not, {strange}", where, path
        )


def _check_function(value: JsonObject, where: str, path: Path) -> None:
    module, name = value.get("module"), value.get("config")
    if module is not None and module not in PUBLIC_MODULES:
        raise refused(f"a function comes from the module {module!r}", where, path, _UNKNOWN)
    if not isinstance(name, str) or name not in FUNCTIONS:
        raise refused(f"{str(name)[:80]!r} is not a function of Keras", where, path, _UNKNOWN)


def _check_tensor_function(value: JsonObject, where: str, path: Path) -> None:
    module = value.get("module")
    if module is not None and module not in TENSOR_FUNCTION_MODULES | PUBLIC_MODULES:
        raise _foreign(f"{value['class_name']} comes from the module {module!r}", where, path)
    config = value.get("config")
    function = config.get("function") if isinstance(config, dict) else None
    if function is None and value["class_name"] == "SlicingOpLambda":
        return
    if not isinstance(function, str) or function not in TENSOR_FUNCTIONS:
        raise _foreign(f"it calls the TensorFlow function {str(function)[:80]!r}", where, path)
