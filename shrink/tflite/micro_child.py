"""Child process: run a model in TFLite Micro on examples from a file, and save its outputs."""

from __future__ import annotations

import sys

from shrink.base.child import die_with_parent


def main(parent: str, path: str, arena_bytes: str, examples: str, outputs: str) -> None:
    """Run every example.

    Args:
        parent: its process id.
        path: the .tflite file.
        arena_bytes: size of the arena.
        examples: an .npz file of stored (quantized) values, `input_0` (n, ...) and so on.
        outputs: the .npz file to write, `output_0` (n, ...) and so on, as stored.
    """
    die_with_parent(int(parent))
    import numpy as np
    from tflite_micro import runtime

    interpreter = runtime.Interpreter.from_file(path, arena_size=int(arena_bytes))
    with np.load(examples) as archive:
        arrays = [archive[f"input_{index}"] for index in range(len(archive.files))]
    found: dict[str, list[np.ndarray]] = {}
    for row in range(len(arrays[0])):
        interpreter.reset()  # else the states of LSTMs would last from one example to the next
        for index, array in enumerate(arrays):
            interpreter.set_input(array[row : row + 1], index)
        interpreter.invoke()
        for index in range(_count(interpreter)):
            output = np.array(interpreter.get_output(index))
            found.setdefault(f"output_{index}", []).append(output)
    arrays_by_name = {name: np.concatenate(rows) for name, rows in found.items()}
    np.savez(outputs, **arrays_by_name)  # type: ignore[arg-type]


def _count(interpreter: object) -> int:
    """Return the number of outputs; the runtime has no name for it."""
    count = 0
    while True:
        try:
            interpreter.get_output_details(count)  # type: ignore[attr-defined]
        except (IndexError, ValueError, RuntimeError):
            return count
        count += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
