"""Child process: run a file on examples in LiteRT's and TFLite Micro's kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shrink.base.child import Channel, serve
from shrink.base.types import Array

MODULE = "shrink.compact.verify_child"
MICRO = "TFLite Micro"
XNNPACK = "LiteRT XNNPACK"


@dataclass(frozen=True)
class RunRequest:
    """The file to run.

    Attributes:
        path: the .tflite file.
        arena_bytes: size of TFLite Micro's arena.
        examples: an .npz file of stored values, `input_0` (n, ...) and so on.
        outputs: the .npz file to write: `runtime/0` (n, ...) and so on, as stored.
    """

    path: str
    arena_bytes: int
    examples: str
    outputs: str


def run(request: RunRequest, _: Channel) -> None:
    """Run every example in every runtime; one that TFLite Micro cannot run it leaves out.

    So it does with LiteRT where kernels are stored as only TFLite Micro reads them.
    """
    import numpy as np
    from ai_edge_litert.interpreter import OpResolverType

    from shrink.tflite.decode import has_decode

    with np.load(request.examples) as archive:
        arrays = [archive[f"input_{index}"] for index in range(len(archive.files))]
    kernels = {
        "LiteRT reference": OpResolverType.BUILTIN_REF,
        "LiteRT built-in": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        XNNPACK: OpResolverType.AUTO,
    }
    found: dict[str, Array] = {}
    for name, resolver in ({} if has_decode(Path(request.path).read_bytes()) else kernels).items():
        for place, answers in enumerate(_in_litert(request.path, resolver, arrays)):
            found[f"{name}/{place}"] = np.stack(answers)
    for place, answers in enumerate(_in_micro(request.path, request.arena_bytes, arrays)):
        found[f"{MICRO}/{place}"] = np.stack(answers)
    np.savez(request.outputs, **found)  # type: ignore[arg-type]


def _in_litert(path: str, resolver: object, arrays: Sequence[Array]) -> list[list[Array]]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(
        model_path=path, num_threads=1, experimental_op_resolver_type=resolver
    )
    interpreter.allocate_tensors()
    places = [detail["index"] for detail in interpreter.get_output_details()]
    found: list[list[Array]] = [[] for _ in places]
    for row in range(len(arrays[0])):
        for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
            interpreter.set_tensor(detail["index"], array[row : row + 1])
        interpreter.invoke()
        for answers, index in zip(found, places, strict=True):
            answers.append(interpreter.get_tensor(index).copy())
    return found


def _in_micro(path: str, arena_bytes: int, arrays: Sequence[Array]) -> list[list[Array]]:
    import numpy as np
    from tflite_micro import runtime

    from shrink.tflite.model import read_file

    count = len(read_file(Path(path))[0].outputs)
    try:
        interpreter = runtime.Interpreter.from_file(path, arena_size=arena_bytes)
    except RuntimeError:
        return []
    found: list[list[Array]] = [[] for _ in range(count)]
    for row in range(len(arrays[0])):
        for index, array in enumerate(arrays):
            interpreter.set_input(array[row : row + 1], index)
        interpreter.invoke()
        for index, answers in enumerate(found):
            answers.append(np.array(interpreter.get_output(index)))
    return found


if __name__ == "__main__":
    serve({RunRequest: run})
