"""Records are frozen dataclasses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from shrink.contract.record import record


@record
class _Point:
    x: float
    y: float = 0.0
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)


def test_record_names_what_is_missing_and_what_it_has_not() -> None:
    with pytest.raises(TypeError, match="_Point needs x"):
        _Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="_Point has no z"):
        _Point(x=1, z=2)  # type: ignore[call-arg]
