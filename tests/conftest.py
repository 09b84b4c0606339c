"""Fixtures and the environment that every test shares."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

# Before any import of TensorFlow: tf-keras is the training substrate, and banners say nothing.
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

SHARED = {"finished": "a finished run of every stage", "twins": "two runs on one store"}
"""Fixtures that cost a minute: the tests that use one share a process, and so its result."""


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, None, None]:
    """Keep the tests of a file, and those that share an expensive fixture, in one process.

    A wrapper, because pytest-xdist reads the groups in this very hook.
    """
    expensive = {
        str(item.path): name
        for item in items
        for name in SHARED
        if name in getattr(item, "fixturenames", ())
    }
    for item in items:
        group = expensive.get(str(item.path), str(item.path))
        item.add_marker(pytest.mark.xdist_group(group))
    return (yield)
