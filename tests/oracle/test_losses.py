"""The oracle's losses against shrink's, on outputs as coarse as int8's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shrink.base import losses as known
from shrink.task.losses import loss_sums
from tests.oracle.losses import LOSSES, dice
from tests.oracle.metrics import RULES

RANDOM = np.random.default_rng(9)
N, T, K = 20, 3, 4
LOGITS = np.round(RANDOM.normal(size=(N, T, K)) * 8) / 4
SHARES = np.round(256 * np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)) / 256
NUMBERS = RANDOM.integers(0, K, (N, T))
YES = RANDOM.integers(0, 2, (N, T, K))
REAL = RANDOM.normal(size=(N, T, K))
COUNTS = RANDOM.integers(0, 4, (N, T, K))
OF_COUNTS = ("poisson", "mean_squared_logarithmic_error")
SETTINGS: dict[str, dict[str, Any]] = {
    "categorical_focal_crossentropy": {"gamma": 3.0, "alpha": 0.4, "label_smoothing": 0.1},
    "binary_focal_crossentropy": {"gamma": 1.5, "label_smoothing": 0.1},
    "categorical_crossentropy": {"label_smoothing": 0.2},
    "huber": {"delta": 0.5},
}


def targets(name: str) -> np.ndarray:
    """Return targets that a loss is of."""
    kind = known.LOSSES[name].kind
    if kind == "classes":
        return np.eye(K)[NUMBERS]
    return YES if kind == "labels" else COUNTS if name in OF_COUNTS else REAL


def test_the_oracle_has_every_loss() -> None:
    assert set(LOSSES) | set(RULES) | {"dice"} >= set(known.LOSSES)


@pytest.mark.parametrize("from_logits", [True, False])
@pytest.mark.parametrize("name", LOSSES)
def test_oracle_and_shrink_agree(name: str, from_logits: bool) -> None:
    settings = SETTINGS.get(name, {})
    outputs = LOGITS if from_logits else SHARES
    if name == "poisson":
        outputs = SHARES
    key = known.key_of_loss({"name": name, **settings})
    sums = loss_sums(outputs, targets(name), key, from_logits=from_logits)
    expected = LOSSES[name](outputs, targets(name), from_logits, settings)
    np.testing.assert_allclose(sums.values / sums.valid, expected.mean(-1), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("of", ["classes", "labels"])
def test_oracle_and_shrink_agree_on_dice(of: str) -> None:
    wanted = NUMBERS if of == "classes" else YES
    sums = loss_sums(LOGITS, wanted, f"dice(smooth=0.5, of={of})", from_logits=True)
    np.testing.assert_allclose(sums.values, dice(LOGITS, wanted, True, of, 0.5), rtol=1e-9)
