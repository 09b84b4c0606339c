"""What is no mean over batches, measured on all validation examples after an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import DataError
from shrink.base.types import Array, Tensors
from shrink.engine.whole_split import Outputs, WholeSplit


class Half:
    """Every number as an example, with itself and twice itself as targets."""

    def __len__(self) -> int:
        return 5

    def arrays(self, indices: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        x = np.asarray(indices, np.float32)[:, None]
        return x, (x, 2 * x)


class Remembering:
    """Keeps the batches that it scores; the score is the number of examples."""

    def __init__(self) -> None:
        self.outputs: list[Sequence[Array]] = []
        self.targets: list[Sequence[Array]] = []
        self.masks: list[Sequence[Array | None]] = []

    def __call__(self, batches: Iterator[Outputs]) -> Mapping[str, float | None]:
        for outputs, targets, masks in batches:
            self.outputs.append(outputs)
            self.targets.append(targets)
            self.masks.append(masks)
        return {"count": float(sum(len(one[0]) for one in self.outputs))}


def call(x: Tensors) -> Tensors:
    """Return three outputs, of which the last is a feature that no target belongs to."""
    return [tf.cast(x, tf.float16) + 1, x + 2, x + 3]


def test_measure_gives_every_example_once_and_the_tasks_outputs_alone() -> None:
    kept = Remembering()
    whole = WholeSplit(Half(), kept, 2, ("count",))  # type: ignore[arg-type]
    assert whole.measure(call, 2) == {"count": 5.0}
    assert [len(one[0]) for one in kept.outputs] == [2, 2, 1]
    assert [len(one) for one in kept.outputs] == [2, 2, 2]
    np.testing.assert_array_equal(
        np.concatenate([o[1] for o in kept.outputs])[:, 0], np.arange(5) + 2
    )
    np.testing.assert_array_equal(
        np.concatenate([t[1] for t in kept.targets])[:, 0], np.arange(5) * 2
    )
    assert kept.outputs[0][0].dtype == np.float32


def test_measure_tells_which_elements_a_mask_leaves() -> None:
    tokens = keras.Input((3,))
    found = keras.layers.Embedding(9, 2, mask_zero=True)(tokens)
    model, kept = keras.Model(tokens, found), Remembering()

    class Tokens(Half):
        def arrays(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[override]
            rows = np.array([[1, 2, 0]] * len(indices))
            return rows, rows

    whole = WholeSplit(Tokens(), kept, 1, ("count",))  # type: ignore[arg-type]
    whole.measure(lambda x: model(x, training=False), 5)
    mask = kept.masks[0][0]
    assert mask is not None
    assert mask.tolist() == [[True, True, False]] * 5


def test_measure_says_where_a_metric_is_not_defined() -> None:
    whole = WholeSplit(Half(), lambda batches: {"roc_auc": None}, 2, ("roc_auc",))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="roc_auc is not defined on the validation examples"):
        whole.measure(call, 5)
