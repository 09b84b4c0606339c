"""Fixtures of the tests of recipes."""

from __future__ import annotations

import pytest
import yaml as pyyaml


@pytest.fixture(params=["libyaml", "python"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test once with each of PyYAML's parsers."""
    if request.param == "python":
        monkeypatch.delattr(pyyaml, "CSafeLoader", raising=False)
    elif not pyyaml.__with_libyaml__:
        pytest.skip("PyYAML was built without libyaml")
    return str(request.param)
