"""Child process: check a .tflite file's structure, then allocate it and run it once on zeros."""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

from shrink.base.child import die_with_parent
from shrink.base.errors import ModelError

_ROOM_BYTES = 4 << 30
"""Address space beside what the file and its tensors take: libraries and their threads."""


def main(parent: str, name: str, needs: str = "") -> int:
    """Return 0, or 3 after printing the refusal as the last line.

    Args:
        parent: its process id.
        name: path of the file.
        needs: "float" where it must not be quantized.

    What LiteRT and its kernels do with a file that passes the check is not caught here: a signal
    ends this process, and the parent says so.
    """
    die_with_parent(int(parent))
    path = Path(name)
    try:
        needed = check_artifact(path)
        if needs == "float":
            _check_float(path)
        limit = _in_use_bytes() + _ROOM_BYTES + 4 * needed
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        _run_on_zeros(path)
    except (ModelError, MemoryError) as error:
        if isinstance(error, MemoryError):
            error = ModelError("refused: running it once takes more memory than its tensors")
        error.subject = error.subject or str(path)
        sys.stdout.flush()
        sys.stdout.write("\n" + json.dumps(error.to_dict()) + "\n")
        return error.exit_code
    return 0


def check_artifact(path: Path) -> int:
    """Return the bytes of file and arena of an artifact whose structure is sound.

    Raises:
        ModelError: it is corrupt, a constant is not as long as its shape says, or its activations
            need more memory than the machine has.
    """
    from shrink.tflite.arena import planned_bytes, tensor_bytes
    from shrink.tflite.structure import read_file

    arena = 0
    for graph in read_file(path):
        if any(index < 0 for index in (*graph.inputs, *graph.outputs)):
            raise ModelError("the TFLite file is corrupt (an input or output is left out)")
        for tensor in graph.tensors:
            stored, wanted = tensor.data.size, tensor_bytes(tensor)
            flexible = tensor.sparse or tensor.dtype in ("STRING", "RESOURCE", "VARIANT")
            if tensor.constant and not flexible and stored != wanted:
                raise ModelError(
                    f"the TFLite file is corrupt ({tensor.name[:80]} needs {wanted} bytes, "
                    f"{stored} are there)"
                )
        arena += planned_bytes(graph)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if arena > memory:
        raise ModelError(
            f"refused: its tensors take {arena:,} bytes, and this machine has {memory:,}",
            hint="convert the model with smaller inputs",
        )
    return arena + path.stat().st_size


def _check_float(path: Path) -> None:
    from shrink.tflite.flatbuffer import check_float

    check_float(path.read_bytes(), path)


def _run_on_zeros(path: Path) -> None:
    import numpy as np

    from shrink.tflite.interpreter import load

    runner = load(path, num_threads=1)
    details = runner.input_details
    runner.predict({one.name: np.zeros((1, *one.shape[1:]), np.float32) for one in details})


def _in_use_bytes() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
