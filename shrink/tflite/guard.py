"""A .tflite file that somebody else made, tried in a process that it may bring down; light."""

from __future__ import annotations

from pathlib import Path

from shrink.base.child import NoAnswer, run_child
from shrink.base.errors import ModelError
from shrink.tflite.runtime import MODULE, GuardRequest

_TIMEOUT_S = 120.0
_AGAIN = "convert the model again, or give the Keras model that it was made from"


def guard_artifact(
    path: Path,
    timeout_s: float = _TIMEOUT_S,
    child: str = MODULE,
    to_be_quantized: bool = False,
    in_litert: bool = True,
) -> None:
    """Check a .tflite file's structure and run it once on zeros, in a child with limited memory.

    Args:
        path: of the artifact.
        timeout_s: seconds that the child may take.
        child: the module that it runs.
        to_be_quantized: whether it must be a float model.
        in_litert: whether LiteRT is to run it; if not, its structure alone is looked at.

    Raises:
        ModelError: its structure is corrupt, it asks for more memory than there is, or running it
            ends the child: by a signal, or by taking too long. Or it was to be quantized, and is.
    """
    request = GuardRequest(str(path.resolve()), to_be_quantized, in_litert)
    run = run_child(child, request, NoAnswer, timeout_s=timeout_s)
    if run.failure is None:
        return
    if run.error is not None:
        raise run.error
    raise ModelError(
        f"refused: a process that runs it once on zeros {run.failure}", subject=path, hint=_AGAIN
    )
