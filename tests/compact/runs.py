"""Outputs of .tflite files in every runtime, in this process."""

from __future__ import annotations

import contextlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tflite_micro import runtime

from shrink.base.types import Array

_KERNELS = (
    OpResolverType.BUILTIN_REF,
    OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    OpResolverType.AUTO,
)


def drawn_for(content: bytes, examples: int) -> list[Array]:
    """Return random values for the first input, of its type: integers, or about 0."""
    rng = np.random.default_rng(3)
    given = Interpreter(model_content=content).get_input_details()[0]
    if given["dtype"] is np.float32:
        return [rng.normal(0, 20, given["shape"]).astype(np.float32) for _ in range(examples)]
    low, high = np.iinfo(given["dtype"]).min, np.iinfo(given["dtype"]).max + 1
    return [rng.integers(low, high, given["shape"]).astype(given["dtype"]) for _ in range(examples)]


def outputs_of(
    content: bytes, examples: int = 2, drawn: list[Array] | None = None
) -> list[list[bytes]]:
    """Return the outputs for these inputs, or random ones: one list for each runtime."""
    first = Interpreter(model_content=content)
    drawn = drawn_for(content, examples) if drawn is None else drawn
    found: list[list[bytes]] = []
    for kernels in _KERNELS:
        one = Interpreter(
            model_content=content, num_threads=1, experimental_op_resolver_type=kernels
        )
        one.allocate_tensors()
        found.append([])
        for given in drawn:
            one.set_tensor(one.get_input_details()[0]["index"], given)
            one.invoke()
            found[-1] += [one.get_tensor(d["index"]).tobytes() for d in one.get_output_details()]
    micro = runtime.Interpreter.from_bytes(content, arena_size=4_000_000)
    found.append([])
    for given in drawn:
        micro.set_input(given, 0)
        micro.invoke()
        count = len(first.get_output_details())
        found[-1] += [np.array(micro.get_output(place)).tobytes() for place in range(count)]
    return found


def allocates(content: bytes, arena_bytes: int) -> bool:
    """Whether TFLite Micro finds room in so many bytes."""
    with contextlib.suppress(RuntimeError):
        runtime.Interpreter.from_bytes(content, arena_size=arena_bytes)
        return True
    return False
