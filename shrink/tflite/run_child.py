"""Child process: allocate an artifact in LiteRT and run it once, on ones: zeros may be padding."""

from __future__ import annotations

import sys

from shrink.base.child import die_with_parent


def main(parent: str, path: str) -> None:
    """Allocate and invoke; an operator without a kernel ends the process with LiteRT's words."""
    die_with_parent(int(parent))
    import numpy as np

    from shrink.tflite.interpreter import load

    runner = load(path, num_threads=1)
    details = runner.input_details
    runner.predict({one.name: np.ones((1, *one.shape[1:]), np.float32) for one in details})


if __name__ == "__main__":
    main(*sys.argv[1:])
