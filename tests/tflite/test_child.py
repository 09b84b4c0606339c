"""The child processes that run an artifact load no TensorFlow: it would be most of their time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shrink.tflite.convert import convert
from tests.tflite.toys import small_cnn

HEAVY = ("tensorflow", "tf_keras", "keras", "ai_edge_quantizer", "sklearn", "scipy")
_PROBE = """
import runpy, sys
module, sys.argv = sys.argv[1], sys.argv[1:]
try:
    runpy.run_module(module, run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
print("HEAVY", [name for name in {heavy!r} if name in sys.modules])
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a float artifact."""
    path = tmp_path_factory.mktemp("artifact") / "model.tflite"
    path.write_bytes(convert(small_cnn(), "float32").content)
    return path


@pytest.mark.parametrize(
    ("module", "action", "arguments"),
    [
        ("shrink.tflite.child", "litert", []),
        ("shrink.tflite.child", "guard", []),
        ("shrink.tflite.child", "arena", ["100000", "1", "0"]),
        ("shrink.measure.inference", "memory", ["1", ""]),
        ("shrink.measure.inference", "latency", ["1", ""]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_child_loads_nothing_heavy(
    artifact: Path, module: str, action: str, arguments: list[str]
) -> None:
    words = [module, str(os.getpid()), action, str(artifact), *arguments]
    command = [sys.executable, "-W", "ignore", "-c", _PROBE.format(heavy=HEAVY), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "HEAVY []"
