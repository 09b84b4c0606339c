"""Masked equals rebuilt on random models."""

from __future__ import annotations

import pytest

from tests.graph.equivalence import check
from tests.graph.random_models import random_model

_DEFAULT = 8


@pytest.mark.parametrize("seed", range(_DEFAULT))
def test_random_model_is_rebuilt_as_masked(seed: int) -> None:
    check(random_model(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(_DEFAULT, 200))
def test_larger_random_model_is_rebuilt_as_masked(seed: int) -> None:
    check(random_model(seed, blocks=10), ratios=(0.3, 0.6))
