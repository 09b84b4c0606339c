"""Scans what a model file holds before anything loads it.

Field numbers are those of tensorflow/core/protobuf/{saved_model,meta_graph,saver}.proto and
tensorflow/core/framework/{graph,function,node_def}.proto.

A Keras file is a program: a Lambda layer carries byte code, a custom object names code to import,
a lookup layer reads files. Only what Keras itself provides, listed in `allowed.toml`, passes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from shrink.base.errors import ModelError
from shrink.base.file_kinds import OR_TRUST, fields, messages, refused, text, unreadable
from shrink.base.types import Json
from shrink.contract.model_source import NO_TRUST, Trust
from shrink.model.allowlist import MODELS, OPERATORS, SAVER_OPERATORS
from shrink.model.reference import KERAS_METADATA, holds_layers
from shrink.model.scan_config import DeclaredSize, check_config
from shrink.model.scan_files import check_archive, check_hdf5, open_weights, read_attribute
from shrink.model.tfmot.names import holds_wrappers

_META_GRAPHS, _GRAPH, _SAVER, _OBJECTS = 2, 2, 3, 7
_NODES, _LIBRARY = 1, 2
_FUNCTION, _FUNCTION_SIGNATURE, _FUNCTION_NODES = 1, 1, 3
_NAME, _OPERATOR = 1, 2
_GRAPH_CAP_BYTES = 2 << 30
_HINT = f"save the model without it; {OR_TRUST}"


def check_saved_model(folder: Path, trust: Trust = NO_TRUST) -> None:
    """Raise `ModelError` unless every operator of a SavedModel is on the list.

    Args:
        folder: holds `saved_model.pb`; what Keras adds (`keras_metadata.pb`) is looked at too.
        trust: what else may pass; operators only where everything may.
    """
    for entry in sorted(folder.rglob("*")):
        if entry.is_symlink():
            raise refused("a link", str(entry.relative_to(folder)), folder)
    if (folder / "assets.extra").exists() or (folder / "saved_model.pbtxt").exists():
        raise refused("files that shrink does not look at", "assets.extra", folder)
    try:
        with (folder / "saved_model.pb").open("rb") as file:
            content = memoryview(file.read(_GRAPH_CAP_BYTES))
        for graph in messages(content, _META_GRAPHS):
            if not trust.everything:
                functions = [
                    (_function_name(function), function)
                    for function in messages(graph, _GRAPH, _LIBRARY, _FUNCTION)
                ]
                names = frozenset(name for name, _ in functions)
                savers = {name for name, function in functions if _opens_files(function)}
                if savers and not any(True for _ in messages(graph, _OBJECTS)):
                    raise refused(
                        "TensorFlow 1 wrote it, whose graphs open files themselves", "graph", folder
                    )
                saver_nodes = {name.partition(":")[0] for name in _saver_names(graph)}
                for one in messages(graph, _GRAPH):
                    for node in messages(one, _NODES):
                        name = _check_node(node, "graph", names, OPERATORS, folder)
                        if name not in saver_nodes:
                            _check_calls(node, savers, f"graph/{name}", folder)
                for name, function in functions:
                    allowed = OPERATORS | SAVER_OPERATORS if name in savers else OPERATORS
                    for node in messages(function, _FUNCTION_NODES):
                        _check_node(node, name, names, allowed, folder)
                    _check_calls(function, savers - {name}, name, folder)
                _check_references(graph, savers, folder)
        _check_metadata(folder, trust)
    except (OSError, ValueError, RecursionError) as error:
        raise unreadable("a SavedModel", error, folder) from error


def _check_node(
    node: memoryview, where: str, functions: frozenset[str], allowed: frozenset[str], folder: Path
) -> str:
    """Return the node's name where its operator is allowed, or is a function of the graph."""
    name = operator = ""
    for number, value in fields(node):
        if number == _NAME and isinstance(value, memoryview):
            name = bytes(value).decode()
        elif number == _OPERATOR and isinstance(value, memoryview):
            operator = bytes(value).decode()
    if operator in allowed or operator in functions:
        return name
    spot = f"{where}/{name}"
    raise refused(f"the operator {operator!r} may act outside the graph", spot, folder, _HINT)


def _opens_files(function: memoryview) -> bool:
    """Whether a function has the saver's file operators."""
    content = bytes(function)
    return any(name.encode() in content for name in SAVER_OPERATORS) and any(
        text(node, _OPERATOR) in SAVER_OPERATORS for node in messages(function, _FUNCTION_NODES)
    )


def _function_name(function: memoryview) -> str:
    return next((text(s, _NAME) for s in messages(function, _FUNCTION_SIGNATURE)), "")


def _saver_names(graph: memoryview) -> Iterator[str]:
    for saver in messages(graph, _SAVER):
        yield text(saver, 2)  # save_tensor_name
        yield text(saver, 3)  # restore_op_name


def _check_calls(caller: memoryview, savers: set[str], where: str, folder: Path) -> None:
    """Refuse a call of a saver's function from anywhere but the saver itself."""
    content = bytes(caller)
    if any(name.encode() in content for name in savers):
        raise refused("it calls the function that writes or reads files", where, folder, _HINT)


def _check_references(graph: memoryview, savers: set[str], folder: Path) -> None:
    objects = b"".join(bytes(value) for value in messages(graph, _OBJECTS))
    for name in savers:
        if name.encode() in objects:
            raise refused("an object calls a function that opens files", name, folder, _HINT)


def _check_metadata(folder: Path, trust: Trust) -> None:
    """Walk what Keras wrote about its layers: by it, not by the graph, Keras builds them anew."""
    if not holds_layers(folder):
        return  # what is there is never read
    for node in messages(memoryview((folder / KERAS_METADATA).read_bytes()), 1):
        described = text(node, 5)
        if described:
            try:
                check_config(json.loads(described), folder, trust)
            except ModelError as error:
                error.message += f" in {text(node, 3)}"
                raise


def _names_wrappers(folder: Path) -> bool:
    if not holds_layers(folder):
        return False
    nodes = messages(memoryview((folder / KERAS_METADATA).read_bytes()), 1)
    return any(holds_wrappers(json.loads(text(node, 5) or "null")) for node in nodes)


@dataclass(frozen=True)
class ModelContent:
    """A scanned model file.

    Attributes:
        keras_version: of the Keras that saved it, empty where the file does not say.
        config: the model's parsed configuration; None for a SavedModel.
        of_tfmot: whether it names layers of tensorflow-model-optimization.
    """

    keras_version: str
    config: Json
    of_tfmot: bool = False

    @property
    def from_keras3(self) -> bool:
        """Whether Keras 3 saved it."""
        return self.keras_version.startswith("3")


def check_model_file(path: Path, trust: Trust = NO_TRUST) -> ModelContent:
    """Return what a model file says of itself, or raise `ModelError` with the exact spot.

    Args:
        path: a `.keras` or `.h5` file, or a SavedModel folder.
        trust: what may pass that is not Keras' own.
    """
    try:
        if path.is_dir():
            check_saved_model(path, trust)
            return ModelContent("", None, _names_wrappers(path))
        if path.suffix.lower() == ".keras":
            return _check_keras(path, trust)
        return _check_h5(path, trust)
    except RecursionError as error:
        raise refused("its configuration is nested too deep", "model", path) from error
    except MemoryError as error:
        raise unreadable("a model", error, path) from error


def _check_keras(path: Path, trust: Trust) -> ModelContent:
    if path.suffix != ".keras":
        # By this name Keras would take it for HDF5.
        raise ModelError("its name must end in .keras", subject=path, hint="rename the file")
    metadata, config = check_archive(path)
    _check_has_layers(config, path)
    sizes = check_config(config, path, trust)
    weights = open_weights(path)
    if weights is None:
        raise ModelError("it has no weights", subject=path, hint="save it again with model.save")
    with weights:
        _check_sizes(sizes, check_hdf5(weights, path), path)
    return ModelContent(_version(metadata), config, holds_wrappers(config))


def _check_h5(path: Path, trust: Trust) -> ModelContent:
    dimensions = check_hdf5(path, path)
    config = read_attribute(path, "model_config")
    if config is None:
        raise ModelError(
            "it holds weights without their model",
            subject=path,
            hint="save the whole model (model.save), not save_weights",
        )
    _check_has_layers(config, path)
    _check_sizes(check_config(config, path, trust), dimensions, path)
    return ModelContent(keras_version(path), config, holds_wrappers(config))


def _check_has_layers(config: Json, path: Path) -> None:
    """Raise `ModelError` for a subclassed model, whose file names a class instead of layers."""
    if not isinstance(config, dict) or not isinstance(kind := config.get("class_name"), str):
        return
    own = config.get("config")
    if kind in MODELS or (isinstance(own, dict) and "layers" in own):
        return
    hint = "export its graph, model.export('folder'): shrink quantizes and evaluates it, and takes "
    hint += "it as a teacher; or build the model with keras.Model(inputs, outputs)"
    if kind == "Distiller":
        hint = "save its student: distiller.student.save('student.keras')"
    raise ModelError(
        f"a subclassed model ({kind[:80]}) has no graph of layers to work on",
        subject=path,
        hint=hint,
    )


def keras_version(path: Path) -> str:
    """Return the version of the Keras that saved a `.keras` or `.h5` file; empty where unsaid.

    Raises:
        ModelError: damaged. What else the file holds is not looked at.
    """
    if path.suffix.lower() == ".keras":
        return _version(check_archive(path)[0])
    return str(read_attribute(path, "keras_version") or "")


def _version(metadata: Json) -> str:
    return str((metadata.get("keras_version") if isinstance(metadata, dict) else None) or "")


def _check_sizes(sizes: Iterable[DeclaredSize], dimensions: set[int], path: Path) -> None:
    """Refuse a width that no weight of the file has: building the layer would exhaust memory."""
    for size in sizes:
        if not any(dimension and dimension % size.value == 0 for dimension in dimensions):
            raise refused(f"{size.key} of {size.value} that no weight has", size.where, path)
