"""Sizes of an artifact, of its layers and its operators: bytes, parameters, MACs."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shrink.base.files import size_bytes
from shrink.base.measurement import Measured
from shrink.contract.details import OperatorRow
from shrink.graph.macs import MacsCounter, macs_figure
from shrink.tflite.litert_twin import not_in_litert
from shrink.tflite.model import Operator, Subgraph, Tensor
from shrink.tflite.weights import (
    loop_starts,
    nonzero,
    nonzero_parameters,
    operator_weights,
    parameters,
    weights,
)

if TYPE_CHECKING:
    import tf_keras as keras

_GZIP = zlib.MAX_WBITS | 16  # with a gzip header, whose time stamp zlib leaves at 0
_MANY_ZEROS = 0.3
_CHUNK_BYTES = 1 << 20


def measure_sizes(
    artifact: Path, tflite: Path, model: keras.Model | None
) -> dict[str, Measured[int]]:
    """Return the sizes of a stage's artifact, by the keys of the report's `size`.

    Args:
        artifact: what the stage made, a file or a folder: `file_bytes`, `gzip_bytes` (level 9).
        tflite: the artifact, or its float32 conversion: `tflite_bytes`, `macs` per example.
        model: where given, `parameters` and `nonzero_parameters` count all its weights, trainable
            or not; otherwise they come from `tflite`.

    Raises:
        ModelError: `tflite` is no TFLite model.
    """
    content = tflite.read_bytes()
    if model is None:
        total, nonzero = parameters(content), nonzero_parameters(content)
    else:
        total = int(model.count_params())
        nonzero = sum(int(np.count_nonzero(array)) for array in model.get_weights())
    return {
        **file_sizes(artifact),
        "tflite_bytes": Measured(len(content)),
        "parameters": Measured(total),
        "nonzero_parameters": Measured(nonzero),
        "macs": macs_figure(content),
    }


def file_sizes(artifact: Path) -> dict[str, Measured[int]]:
    """Return what a file or a folder takes: `file_bytes`, `gzip_bytes` (level 9).

    Of a .tflite file `tflite_bytes`, too.
    """
    size = Measured(size_bytes(artifact))
    own = {"tflite_bytes": size} if artifact.suffix == ".tflite" else {}
    return {"file_bytes": size, "gzip_bytes": Measured(gzip_bytes(artifact)), **own}


def zeros_note(
    size: Mapping[str, Measured[int]], tflite: Path, *, tried: bool = False
) -> list[str]:
    """Return a sentence on what zeros do not save, where many parameters are zero and stored.

    Args:
        size: what `measure_sizes` returned.
        tflite: the file that it measured.
        tried: whether the stage was to leave the zeros out.
    """
    zeros = 1 - (size["nonzero_parameters"].value or 0) / max(size["parameters"].value or 0, 1)
    if zeros < _MANY_ZEROS:
        return []
    content = tflite.read_bytes()
    if not_in_litert(content) or any(one.sparse for one in weights(content)):
        return []
    return [
        f"{zeros:.0%} of the parameters are zero, but the TFLite file still stores them "
        f"({size['tflite_bytes'].value:,} bytes; {gzip_bytes(tflite):,} after gzip -9)"
        + ("" if tried else "; `quantize: {sparse: true}` drops them where it can")
    ]


def gzip_bytes(path: Path) -> int:
    """Return the bytes that `gzip -9` makes of a file, or of a folder's files one after another."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, _GZIP)
    size = sum(len(compressor.compress(chunk)) for chunk in _chunks(path))
    return size + len(compressor.flush())


def _chunks(path: Path) -> Iterator[bytes]:
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for file in files:
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk


def operator_table(graphs: tuple[Subgraph, ...], layers: Collection[str] = ()) -> list[OperatorRow]:
    """Return a row per operator of the entry subgraph, in order of execution.

    Args:
        graphs: of a .tflite file; what a loop runs counts as the loop's.
        layers: paths of the Keras layers that it was made from, to find the layer of each operator.

    Returns:
        `name` (CONV_2D), `layer` or None, `inputs` and `outputs` (types of activations), `weights`
        (type of the weights, or None), `parameters`, `macs` (None where they are not known),
        `activation_bytes` of the outputs, and `sparsity` of the weights, None where there are none.
    """
    counter, owners, graph = MacsCounter(graphs), Owners(layers), graphs[0]
    rows: list[OperatorRow] = []
    for operator in graph.operators:
        weights = _weights(graphs, graph, operator)
        written = [graph.tensors[index] for index in operator.outputs if index >= 0]
        rows.append(
            OperatorRow(
                name=operator.name,
                layer=owners.of(graphs, operator),
                inputs=tuple(_dtypes(graph, operator.inputs)),
                weights=next((tensor.dtype.lower() for tensor in weights), None),
                outputs=tuple(_dtypes(graph, operator.outputs)),
                parameters=sum(tensor.elements for tensor in weights),
                macs=counter.operator(operator),
                activation_bytes=sum(tensor.size_bytes for tensor in written),
                sparsity=_zeros(weights),
            )
        )
    return rows


class Owners:
    """Tells which layer an operator computes, from the names that the converter gave its tensors.

    A tensor is named after the path of the layer in the model, `model/outer/inner/name/MatMul`; of
    operations that were fused the names are joined by `;`, last first, so that of several layers
    (activation, batch normalization, convolution) the first one computed counts.

    Args:
        paths: of the layers, `name` or `outer/inner/name`.
    """

    def __init__(self, paths: Collection[str]) -> None:
        self._paths = {tuple(path.split("/")): path for path in paths}
        leaves = [path[-1] for path in self._paths]
        # Some names lack the models around a layer; then its own has to be the only such one.
        self._alone = {p[-1:]: path for p, path in self._paths.items() if leaves.count(p[-1]) == 1}

    def of(self, graphs: tuple[Subgraph, ...], operator: Operator) -> str | None:
        """Return the path of the layer that an operator of the entry subgraph computes, or None."""
        for name in _names(graphs, operator):
            paths = [path for part in name.split(";") if (path := self._named(part))]
            if paths:
                return paths[-1]
        return None

    def _named(self, name: str) -> str | None:
        parts = tuple(name.split("/"))
        # The longest path that the name holds: a layer may be called as a model around it is.
        for known in (self._paths, self._alone):
            for length in range(len(parts), 0, -1):
                for start in range(len(parts) - length + 1):
                    if path := known.get(parts[start : start + length]):
                        return path
        return None


def _names(graphs: tuple[Subgraph, ...], operator: Operator) -> list[str]:
    """Return the names of an operator's tensors that tell its layer, the surest first."""
    tensors = graphs[0].tensors
    if not operator.subgraphs:
        return [tensors[i].name for i in (*operator.outputs[:1], *operator.inputs[1:2]) if i >= 0]
    # A loop's inputs may be named after the layer before it, its constants are its own.
    held = [tensors[i] for i in operator.inputs if i >= 0 and tensors[i].constant]
    inside = [t for i in operator.subgraphs for t in graphs[i].tensors if t.constant]
    return [*(tensors[i].name for i in operator.outputs), *(t.name for t in (*held, *inside))]


def _weights(
    graphs: tuple[Subgraph, ...], graph: Subgraph, operator: Operator, depth: int = 0
) -> list[Tensor]:
    """Return the weights of an operator and of what it runs, each buffer once."""
    starts = loop_starts(graphs, graph)
    tensors = {tensor.buffer: tensor for tensor in operator_weights(graph, operator, starts)}
    if depth < len(graphs):  # no deeper than there are subgraphs, if one should run itself
        for index in operator.subgraphs:
            for inner in graphs[index].operators:
                for tensor in _weights(graphs, graphs[index], inner, depth + 1):
                    tensors.setdefault(tensor.buffer, tensor)
    return list(tensors.values())


def _zeros(weights: list[Tensor]) -> float | None:
    kernels = [tensor for tensor in weights if len(tensor.shape) > 1]
    size = sum(tensor.elements for tensor in kernels)
    return 1 - sum(nonzero(tensor) for tensor in kernels) / size if size else None


def _dtypes(graph: Subgraph, indices: tuple[int, ...]) -> list[str]:
    tensors = [graph.tensors[index] for index in indices if index >= 0]
    return [tensor.dtype.lower() for tensor in tensors if not tensor.constant]
