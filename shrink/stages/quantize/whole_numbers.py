"""Inputs that hold whole numbers as floats, such as those of an Embedding: no scale suits them."""

from __future__ import annotations

from shrink.base.errors import StageError
from shrink.quantization.source import FloatModel
from shrink.stages.quantize.config import QuantizeConfig
from shrink.tflite.structure import Subgraph, read

_INTEGERS = frozenset({"INT8", "UINT8", "INT16", "INT32", "INT64"})
_SAME_VALUES = frozenset(
    {"RESHAPE", "EXPAND_DIMS", "SQUEEZE", "TRANSPOSE", "SLICE", "STRIDED_SLICE", "SPLIT", "UNPACK"}
)


def with_exact_inputs(
    config: QuantizeConfig, source: FloatModel
) -> tuple[QuantizeConfig, tuple[str, ...]]:
    """Return the settings with float inputs where integers would change what is looked up.

    A layer such as Embedding truncates its input to a whole number. An input that is stored as
    scale * (q - zero point) comes back as 6.92 where 7 was given, and the sixth row is taken; above
    256 rows most of them cannot be told at all.

    Args:
        config: of the stage.
        source: the float model; it is converted to float32 where the scheme has integer inputs.

    Returns:
        The settings, and a note where they are others.

    Raises:
        StageError: the settings name a type of the inputs that changes the numbers.
    """
    if config.artifact_input_type == "float32":
        return config, ()
    names = [_given_name(name) for name in truncated_inputs(read(source.float32.content)[0])]
    if not names:
        return config, ()
    which = ", ".join(names)
    if config.input_type is not None:
        raise StageError(
            f"inputs of type {config.input_type} would change the whole numbers that the model "
            f"looks up: {which}",
            hint="leave input_type out, or set it to float32; or build the model with an input of "
            "dtype int32",
        )
    note = (
        f"inputs stay float32: {which} holds whole numbers that the model looks up, and "
        f"{config.artifact_input_type} would round them"
    )
    return config.model_copy(update={"input_type": "float32"}), (note,)


def truncated_inputs(graph: Subgraph) -> list[str]:
    """Return the names of the float inputs that an operator turns into integers."""
    return [
        graph.tensors[place].name
        for place in graph.inputs
        if graph.tensors[place].dtype == "FLOAT32" and _is_truncated(graph, place)
    ]


def _given_name(tensor: str) -> str:
    """Return the input's name without what the converter puts around it."""
    return tensor.removeprefix("serving_default_").partition(":")[0]


def _is_truncated(graph: Subgraph, place: int) -> bool:
    same = {place}
    for operator in graph.operators:
        if same.isdisjoint(operator.inputs):
            continue
        if operator.name in _SAME_VALUES:
            same.update(operator.outputs)
        elif operator.name == "CAST":
            if graph.tensors[operator.outputs[0]].dtype in _INTEGERS:
                return True
            same.update(operator.outputs)
    return False
