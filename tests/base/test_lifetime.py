from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

_CHILD = """
import sys, time
from shrink.base.child import die_with_parent
if {bound}:
    die_with_parent({parent})
print("ready", flush=True)
time.sleep(2)
print("survived", flush=True)
"""
_PARENT = """
import os, subprocess, sys, time
code = {child!r}.format(bound={bound}, parent=os.getpid())
subprocess.Popen([sys.executable, "-c", code])
time.sleep(60)
"""


def words_after_parent_is_killed(bound: bool) -> str:
    code = _PARENT.format(child=_CHILD, bound=bound)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        stream = parent.stdout
        assert stream is not None
        assert stream.readline() == "ready\n"
        os.kill(parent.pid, signal.SIGKILL)
        return stream.read()  # until the child, too, has let go of the pipe


@pytest.mark.parametrize(("bound", "words"), [(True, ""), (False, "survived\n")])
def test_die_with_parent_ends_the_child_when_the_parent_is_killed(bound: bool, words: str) -> None:
    assert words_after_parent_is_killed(bound) == words


def test_die_with_parent_ends_the_child_when_the_parent_has_gone_before() -> None:
    code = "from shrink.base.child import die_with_parent\ndie_with_parent(1 << 30)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
