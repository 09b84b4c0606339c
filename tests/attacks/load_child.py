"""Loads model files one by one; run as `python -m tests.attacks.load_child FILE...`.

Prints a line of JSON for each: what became of it, seconds of processor time, and the most resident
memory.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from shrink.base.errors import ModelError
from shrink.model.load import load_model

_STATUS = Path("/proc/self/status")


def peak_bytes() -> int:
    """Return the most resident memory since the last reset."""
    line = next(x for x in _STATUS.read_text().splitlines() if x.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path("/proc/self/clear_refs").write_text("5")
        began = time.process_time()
        try:
            load_model(Path(name))
            outcome = "loaded"
        except ModelError:
            outcome = "refused"
        figures = {"seconds": time.process_time() - began, "peak_bytes": peak_bytes()}
        sys.stdout.write(json.dumps({"name": name, "outcome": outcome, **figures}) + "\n")
        sys.stdout.flush()
