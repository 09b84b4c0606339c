"""Hostile model files, one generator each: what an attacker can put where shrink takes a model.

Every file that carries code writes a canary when it runs; nothing may ever create it. The modules
used here are light, so that the tests can show that refusing them loads no TensorFlow.
"""

from __future__ import annotations

import io
import json
import pickle
import stat
import struct
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.attacks.parts import (
    CANARY,
    Attack,
    archive,
    called_by,
    code,
    dense,
    foreign,
    function,
    h5,
    in_config,
    in_h5,
    lambda_layer,
    layer,
    legacy_lambda,
    nested,
    op_lambda,
    sequential,
    with_member,
    with_weights,
    wrapped,
)


def deep(folder: Path) -> Path:
    """Write a configuration nested deeper than a stack can follow."""
    return archive(folder, "[" * 100_000 + "]" * 100_000)


def duplicate(folder: Path) -> Path:
    """Write two members that are one file where case does not count."""

    def add(file: zipfile.ZipFile) -> None:
        file.writestr("assets/vocabulary.txt", "a")
        file.writestr("assets/Vocabulary.txt", "b")

    return archive(folder, sequential(dense()), add)


def exact_duplicate(folder: Path) -> Path:
    """Write a second configuration under the very same name, by patching a placeholder."""

    def add(file: zipfile.ZipFile) -> None:
        file.writestr("cOnfig.json", json.dumps(sequential(lambda_layer(folder))))

    path = archive(folder, sequential(dense()), add)
    path.write_bytes(path.read_bytes().replace(b"cOnfig.json", b"config.json"))
    return path


def zip_bomb(folder: Path) -> Path:
    """Write weights of zeros that unpack to 20 MiB."""
    path = folder / "model.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("metadata.json", '{"keras_version": "2.21.0"}')
        file.writestr("config.json", json.dumps(sequential(dense())))
        with file.open("model.weights.h5", "w") as member:
            for _ in range(20):
                member.write(bytes(1 << 20))
    return path


def encrypted(folder: Path) -> Path:
    """Write a file whose members claim to be encrypted."""
    path = archive(folder, sequential(dense()))
    content = bytearray(path.read_bytes())
    at = 0
    while (at := content.find(b"PK\x01\x02", at)) >= 0:
        content[at + 8] |= 1
        at += 4
    path.write_bytes(content)
    return path


def prefixed(folder: Path) -> Path:
    """Write an archive behind an HDF5 signature: what it is depends on who looks."""
    path = archive(folder, sequential(dense()))
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + path.read_bytes())
    return path


def upper_case(folder: Path) -> Path:
    """Write an archive by a name under which Keras takes it for HDF5."""
    return archive(folder, sequential(dense())).rename(folder / "model.KERAS")


def renamed_archive(folder: Path) -> Path:
    """Write an archive with a Lambda as `.h5`."""
    return archive(folder, sequential(lambda_layer(folder))).rename(folder / "model.h5")


def renamed_h5(folder: Path) -> Path:
    """Write an HDF5 model with a Lambda as `.keras`."""
    return h5(folder, sequential(legacy_lambda(folder))).rename(folder / "model.keras")


class _Payload:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.target), "w")


def pickled(name: str) -> Attack:
    """Return a pickle under a model's name."""

    def make(folder: Path) -> Path:
        (folder / name).write_bytes(pickle.dumps(_Payload(folder / CANARY)))
        return folder / name

    return make


def pickled_npz(folder: Path) -> Path:
    """Write weights as an `.npz` with a pickled object."""
    buffer = io.BytesIO()
    values = np.array([_Payload(folder / CANARY)], dtype=object)
    np.savez(buffer, values=values)

    def add(file: zipfile.ZipFile) -> None:
        file.writestr("model.weights.npz", buffer.getvalue())

    return archive(folder, sequential(dense()), add)


def external_link(file: Any) -> None:
    """Link to another file."""
    file["layers/dense/more"] = h5py.ExternalLink("/etc/passwd", "/x")


def soft_link(file: Any) -> None:
    """Link within the file, to what may not exist."""
    file["layers/dense/more"] = h5py.SoftLink("/layers/dense/vars/0")


def hard_cycle(file: Any) -> None:
    """Link a group into itself."""
    file["layers/dense/again"] = file["layers"]


def external_storage(file: Any) -> None:
    """Keep a data set's values in another file."""
    file.create_dataset("layers/secret", (16,), "u1", external=[("/etc/passwd", 0, 16)])


def virtual(file: Any) -> None:
    """Put a data set together from another file's."""
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (4,))
    file.create_virtual_dataset("layers/virtual", layout)


def unwritten(file: Any) -> None:
    """Declare a terabyte of which nothing is stored."""
    file.create_dataset("layers/huge", (1 << 38,), "f4")


def unwritten_chunks(file: Any) -> None:
    """Declare a terabyte in chunks of which one is stored."""
    data = file.create_dataset("layers/huge", (1 << 38,), "f4", chunks=(1024,), compression="gzip")
    data[0] = 1.0


def objects(file: Any) -> None:
    """Hold texts of any length in a data set."""
    file.create_dataset("layers/text", data=["a", "b"], dtype=h5py.string_dtype())


def references(file: Any) -> None:
    """Hold references in a data set."""
    file.create_dataset("layers/refs", data=[file.ref], dtype=h5py.ref_dtype)


def named_type(file: Any) -> None:
    """Hold a type, which is neither group nor data set."""
    file["layers/type"] = np.dtype("f4")


def field(number: int, value: bytes) -> bytes:
    """Return a field of a protocol buffer."""
    size, head = len(value), bytes([number << 3 | 2])
    while size >= 0x80:
        head += bytes([size & 0x7F | 0x80])
        size >>= 7
    return head + bytes([size]) + value


def node(operator: str, name: str = "node") -> bytes:
    """Return a node of a graph."""
    return field(1, name.encode()) + field(2, operator.encode())


def saved_model(folder: Path, graph: bytes, more: bytes = b"") -> Path:
    """Write a SavedModel folder around a graph."""
    target = folder / "saved"
    (target / "variables").mkdir(parents=True)
    (target / "saved_model.pb").write_bytes(field(2, field(2, graph) + more))
    return target


def operator(name: str) -> Attack:
    """Return an operator among the nodes of a graph."""
    return lambda folder: saved_model(folder, field(1, node(name)))


def operator_within(name: str) -> Attack:
    """Return an operator in a function of the graph."""
    function_def = field(1, field(1, b"__inference_f_1")) + field(3, node(name))
    return lambda folder: saved_model(folder, field(2, field(1, function_def)))


def borrowed_saver(folder: Path) -> Path:
    """Write a SavedModel whose inference calls the function that reads files."""
    reads = field(1, field(1, b"__inference__traced_restore_1")) + field(3, node("RestoreV2"))
    calls = field(1, field(1, b"__inference_f_2")) + field(
        3, node("PartitionedCall") + field(5, b"__inference__traced_restore_1")
    )
    library = field(2, field(1, reads) + field(1, calls))
    return saved_model(folder, library, field(7, b""))


def linked_variables(folder: Path) -> Path:
    """Write a SavedModel in which a file is a link."""
    target = saved_model(folder, field(1, node("Add")))
    (target / "variables" / "variables.index").symlink_to("/etc/passwd")
    return target


def metadata_lambda(folder: Path) -> Path:
    """Write a SavedModel in whose Keras description a Lambda stands."""
    target = saved_model(folder, field(1, node("Add")))
    described = json.dumps(lambda_layer(folder)).encode()
    entry = field(3, b"root.layer-0") + field(5, described)
    (target / "keras_metadata.pb").write_bytes(field(1, entry))
    return target


def truncated_graph(folder: Path) -> Path:
    """Write a graph whose size goes beyond its end."""
    target = saved_model(folder, field(1, node("Add")))
    (target / "saved_model.pb").write_bytes(struct.pack("BB", 0x12, 0x7F) + b"x")
    return target


URL = "https://example.org/vocabulary.txt"
ATTACKS: dict[str, Attack] = {
    "lambda": in_config(lambda_layer),
    "lambda_in_h5": in_h5(legacy_lambda),
    "lambda_in_keras3": in_config(lambda_layer, "3.15.0"),
    "lambda_in_nested_model": in_config(nested(nested(lambda_layer))),
    "lambda_in_time_distributed": in_config(wrapped("TimeDistributed", lambda_layer)),
    "lambda_in_bidirectional": in_config(wrapped("Bidirectional", lambda_layer, "backward_layer")),
    "lambda_in_spectral_normalization": in_h5(wrapped("SpectralNormalization", lambda_layer)),
    "lambda_as_activation": in_config(lambda folder: dense(activation=code(folder))),
    "lambda_as_initializer": in_config(lambda folder: dense(kernel_initializer=code(folder))),
    "lambda_in_inbound_node": in_config(
        lambda folder: {**dense(), "inbound_nodes": [[["in", 0, 0, {"x": code(folder)}]]]}
    ),
    "lambda_in_nested_compile_config": in_config(
        lambda folder: sequential(dense(), compile_config={"loss": code(folder)})
    ),
    "lambda_of_another_module": in_config(
        lambda folder: layer("Lambda", {"function": code(folder)}, "tf_keras.src.layers")
    ),
    "lambda_of_load_model": in_config(
        lambda _: layer("Lambda", {"function": function("keras.models", "load_model")})
    ),
    "module_os": in_config(lambda _: dense(activation=function("os", "system"))),
    "module_builtins": in_config(lambda _: dense(activation=function("builtins", "exec"))),
    "module_subprocess": in_config(foreign("subprocess", "Popen", {"args": "id"})),
    "module_get_file": in_config(lambda _: dense(activation=function("keras.utils", "get_file"))),
    "module_unsafe": in_config(
        lambda _: dense(activation=function("keras.config", "enable_unsafe_deserialization"))
    ),
    "module_keras_saving": in_config(foreign("keras.src.saving.saving_lib", "load_model")),
    "module_dotted_class": in_config(foreign("keras.layers", "os.system")),
    "module_with_nul": in_config(foreign("keras.layers\0os", "Dense")),
    "module_no_text": in_config(lambda _: {**dense(), "module": ["os"]}),
    "class_no_text": in_config(lambda _: {**dense(), "class_name": ["Lambda"]}),
    "class_builtin": in_config(foreign("builtins", "eval")),
    "class_unknown": in_config(foreign("keras.layers", "Backdoor")),
    "custom_object": in_config(lambda _: layer("Mine", {}, "mine", "Custom>Mine")),
    "custom_registered_dense": in_config(
        lambda _: layer("Dense", {"units": 2}, "keras.layers", "Mine>Dense")
    ),
    "tfsm_layer": in_config(lambda _: layer("TFSMLayer", {"filepath": "/tmp/evil"})),
    "torch_module": in_config(lambda _: layer("TorchModuleWrapper", {"module": "gASV"})),
    "jax_layer": in_config(lambda _: layer("JaxLayer", {"call_fn": "x"})),
    "string_lookup_path": in_config(lambda _: layer("StringLookup", {"vocabulary": "/etc/passwd"})),
    "string_lookup_url": in_config(lambda _: layer("StringLookup", {"vocabulary": URL})),
    "integer_lookup_path": in_h5(lambda _: layer("IntegerLookup", {"vocabulary": "/etc/passwd"})),
    "text_vectorization_path": in_config(
        lambda _: layer("TextVectorization", {"vocabulary": "gs://bucket/x"})
    ),
    "activation_by_name": in_config(lambda _: dense(activation="os.system")),
    "recurrent_activation_by_name": in_config(
        lambda _: layer("LSTM", {"units": 2, "recurrent_activation": "eval"})
    ),
    "op_read_file": in_config(op_lambda("io.read_file")),
    "op_py_function": in_config(op_lambda("py_function")),
    "op_load_library": in_config(op_lambda("load_op_library")),
    "op_map_fn": in_h5(op_lambda("map_fn")),
    "op_class_method": in_config(op_lambda("math.add", "ClassMethod")),
    "op_slicing_other": in_config(op_lambda("io.write_file", "SlicingOpLambda")),
    "op_graph_layer": in_config(op_lambda("ReadFile", "TensorFlowOpLayer")),
    "keras3_op_map": in_config(foreign("keras.src.ops.core", "Map"), "3.15.0"),
    "keras3_op_unknown": in_config(foreign("keras.src.ops.numpy", "System"), "3.15.0"),
    "typespec": in_config(
        lambda _: dense(x={"class_name": "__typespec__", "module": "os", "config": []})
    ),
    "units_bomb": in_config(lambda _: dense(units=10**12)),
    "units_not_in_weights": in_config(lambda _: dense(units=10**8)),
    "filters_bomb_in_h5": in_h5(lambda _: layer("Conv2D", {"filters": 10**9, "kernel_size": 3})),
    "node_that_never_comes": in_config(lambda _: called_by(["in", 0, 0, {}], ["dense", 7, 0, {}])),
    "node_of_no_number": in_config(lambda _: called_by(["dense", "same", 0, {}])),
    "layers_in_a_circle": in_config(lambda _: called_by(["dense", 0, 0, {}])),
    "deep_config": deep,
    "deep_objects": lambda folder: archive(
        folder, '{"class_name":"Sequential","config":' + '{"a":' * 500 + "1" + "}" * 501
    ),
    "traversal": with_member("assets/../../canary"),
    "traversal_absolute": with_member("/tmp/canary"),
    "traversal_backslash": with_member("assets\\..\\canary"),
    "traversal_drive": with_member("assets/C:canary"),
    "symlink": with_member("assets/link", b"/etc/passwd", stat.S_IFLNK),
    "device": with_member("assets/device", b"", stat.S_IFCHR),
    "stray_member": with_member("model.pkl"),
    "stray_code": with_member("sitecustomize.py"),
    "duplicate_by_case": duplicate,
    "duplicate": exact_duplicate,
    "zip_bomb": zip_bomb,
    "encrypted": encrypted,
    "polyglot": prefixed,
    "upper_case_name": upper_case,
    "archive_as_h5": renamed_archive,
    "h5_as_archive": renamed_h5,
    "pickle_as_keras": pickled("model.keras"),
    "pickle_as_h5": pickled("model.h5"),
    "pickle_in_npz": pickled_npz,
    "hdf5_external_link": with_weights(external_link),
    "hdf5_soft_link": with_weights(soft_link),
    "hdf5_hard_cycle": with_weights(hard_cycle),
    "hdf5_external_storage": with_weights(external_storage),
    "hdf5_virtual": with_weights(virtual),
    "hdf5_unwritten": with_weights(unwritten),
    "hdf5_unwritten_chunks": with_weights(unwritten_chunks),
    "hdf5_objects": with_weights(objects),
    "hdf5_references": with_weights(references),
    "hdf5_named_type": with_weights(named_type),
    "h5_external_link": lambda folder: h5(
        folder, sequential(dense()), lambda f: f.__setitem__("x", h5py.ExternalLink("/a", "/b"))
    ),
    "graph_read_file": operator("ReadFile"),
    "graph_write_file": operator("WriteFile"),
    "graph_py_func": operator_within("PyFunc"),
    "graph_eager_py_func": operator_within("EagerPyFunc"),
    "graph_table_from_file": operator_within("InitializeTableFromTextFileV2"),
    "graph_save": operator("SaveV2"),
    "graph_rpc": operator_within("RpcCall"),
    "graph_dataset": operator_within("TextLineDataset"),
    "graph_print": operator_within("PrintV2"),
    "graph_borrowed_saver": borrowed_saver,
    "graph_link": linked_variables,
    "graph_metadata_lambda": metadata_lambda,
    "graph_truncated": truncated_graph,
}
