"""The scan of a model file in a process of its own, for a parent that no file may bring down."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from shrink.base.errors import ModelError, ShrinkError
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.model_source import NO_TRUST, Trust
from shrink.model.scan import check_model_file

_TIMEOUT_S = 60
_MEMORY_CAP_BYTES = 4 << 30


def guard_model_file(path: Path, trust: Trust = NO_TRUST) -> None:
    """Scan a model file in a child with limited time and memory, which loads no TensorFlow.

    Args:
        path: of the model.
        trust: what may pass that is not Keras' own.

    Raises:
        ModelError: the file is damaged, refused, or brought the child down.
    """
    job = json.dumps({"path": str(path), "trust": to_plain(trust)})
    command = [sys.executable, "-P", "-m", "shrink.model.guard", job]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise _died(path, f"looking at it takes more than {_TIMEOUT_S} s") from error
    if done.returncode == ModelError.exit_code:
        raise ShrinkError.from_dict(json.loads(done.stdout))
    if done.returncode:
        raise _died(path, f"looking at it ends the process with code {done.returncode}")


def _died(path: Path, what: str) -> ModelError:
    return ModelError(f"refused: {what}", subject=path, hint="save the model again with model.save")


def _main(job: dict[str, Any]) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_CAP_BYTES, _MEMORY_CAP_BYTES))
    try:
        check_model_file(Path(job["path"]), from_plain(Trust, job["trust"]))
    except ModelError as error:
        sys.stdout.write(json.dumps(error.to_dict()))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(_main(json.loads(sys.argv[1])))
