"""The run of recipes/digits.yaml that the tests of the command line share."""

from __future__ import annotations

from tests.cli.conftest import finished

__all__ = ["finished"]
