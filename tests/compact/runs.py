"""Outputs of .tflite files in every runtime, in this process."""

from __future__ import annotations

import contextlib

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tflite_micro import runtime

_KERNELS = (
    OpResolverType.BUILTIN_REF,
    OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    OpResolverType.AUTO,
)


def outputs_of(content: bytes, examples: int = 2) -> list[list[bytes]]:
    """Return the outputs for random inputs: one list for each runtime."""
    rng = np.random.default_rng(3)
    first = Interpreter(model_content=content)
    shape = first.get_input_details()[0]["shape"]
    drawn = [rng.integers(-128, 128, shape).astype(np.int8) for _ in range(examples)]
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
