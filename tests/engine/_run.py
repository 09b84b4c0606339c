"""Runs a function of a test in a fresh process: logical devices are fixed once TensorFlow runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_PROGRAM = """
import importlib, json, sys
call = json.load(sys.stdin)
function = getattr(importlib.import_module(call["module"]), call["function"])
print("RESULT" + json.dumps(function(**call["arguments"])))
"""


def run_in_fresh_process(
    module: str,
    function: str,
    *,
    environment: Mapping[str, str] | None = None,
    timeout_s: float | None = 600,
    **arguments: Any,
) -> Any:
    """Return what `module.function(**arguments)` returns as JSON in a process of its own."""
    call = json.dumps({"module": module, "function": function, "arguments": arguments})
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        input=call,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}")
    return json.loads(done.stdout.rsplit("RESULT", 1)[1])
