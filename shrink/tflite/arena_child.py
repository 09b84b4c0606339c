"""Child process: allocate and run a model in TFLite Micro; it prints its allocations from C++."""

from __future__ import annotations

import sys

from shrink.run.lifetime import die_with_parent


def main(parent: str, path: str, arena_bytes: str, inputs: str) -> None:
    """Print the recording allocator's figures, then run the model once on zeros."""
    die_with_parent(int(parent))
    import numpy as np
    from tflite_micro import runtime

    interpreter = runtime.Interpreter.from_file(path, arena_size=int(arena_bytes))
    # Before running it: the allocation is complete, and a slow model may not get to its end.
    interpreter.print_allocations()
    for index in range(int(inputs)):
        detail = interpreter.get_input_details(index)
        interpreter.set_input(np.zeros(detail["shape"], detail["dtype"]), index)
    interpreter.invoke()


if __name__ == "__main__":
    main(*sys.argv[1:])
