from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.data import examples as examples_module
from shrink.data import pipeline
from shrink.data.arrays import ArrayExamples
from shrink.data.config import DataConfig
from shrink.data.examples import Batch, Examples
from shrink.data.opening import open_dataset
from shrink.data.pipeline import (
    PREFETCH_BYTES,
    batches_waiting,
    epoch_order,
    evaluation_batches,
    naming_bad_examples,
    training_batches,
)
from shrink.data.views import View
from shrink.tflite import lazy

Batches = list[tuple[np.ndarray, np.ndarray]]


def _numbered(n: int) -> ArrayExamples:
    """Examples whose label is their own index."""
    numbers = np.arange(n, dtype=np.int64)
    return ArrayExamples(np.tile(numbers[:, None], 3).astype(np.uint8), numbers, numbers)


def _train(examples: Examples, batch: int, first: int, last: int, seed: int = 0) -> Batches:
    dataset = training_batches(
        examples, global_batch_size=batch, seed=seed, first_step=first, last_step=last
    )
    return list(dataset.as_numpy_iterator())


def test_training_batches_visit_each_example_once_an_epoch() -> None:
    batches = _train(_numbered(25), 8, 0, 8)
    assert [len(y) for _, y in batches] == [8, 8, 8, 1] * 2
    for epoch in (batches[:4], batches[4:]):
        assert sorted(np.concatenate([y for _, y in epoch])) == list(range(25))


def test_training_batches_follow_epoch_order() -> None:
    batches = _train(_numbered(25), 8, 0, 8, seed=7)
    labels = np.concatenate([y for _, y in batches])
    assert labels.tolist() == [*epoch_order(25, 7, 0), *epoch_order(25, 7, 1)]
    assert all(np.array_equal(x, np.tile(y[:, None], 3)) for x, y in batches)


@pytest.mark.parametrize("first", [1, 3, 4, 9])
def test_training_batches_resume_bit_for_bit(first: int) -> None:
    whole, resumed = _train(_numbered(25), 8, 0, 12), _train(_numbered(25), 8, first, 12)
    assert len(resumed) == 12 - first
    for (x, y), (again_x, again_y) in zip(whole[first:], resumed, strict=True):
        assert np.array_equal(x, again_x)
        assert np.array_equal(y, again_y)


class _Noting(ArrayExamples):
    """Keeps the rows that are read."""

    def __init__(self, n: int) -> None:
        numbers = np.arange(n, dtype=np.int64)
        super().__init__(np.tile(numbers[:, None], 3), numbers, numbers)
        self.read: list[np.ndarray] = []

    def arrays(self, indices: np.ndarray) -> Any:
        self.read.append(indices)
        return super().arrays(indices)


@pytest.mark.parametrize("examples", [25, 8, 7])
def test_each_of_several_machines_reads_its_share_alone(examples: int) -> None:
    def read(worker: int, workers: int) -> tuple[Batches, int]:
        noting = _Noting(examples)
        batches = training_batches(
            noting,
            global_batch_size=8,
            seed=0,
            first_step=0,
            last_step=4,
            share=(worker, workers),
        )
        return list(batches.as_numpy_iterator()), max(map(len, noting.read))

    whole, _ = read(0, 1)
    shares, most = zip(*(read(worker, 3) for worker in range(3)), strict=True)
    assert max(most) == 3
    for (x, y), *parts in zip(whole, *shares, strict=True):
        np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), x)
        np.testing.assert_array_equal(np.concatenate([part[1] for part in parts]), y)


@pytest.mark.parametrize(
    ("batch_bytes", "waiting"), [(1, 5), (9.6e6, 5), (15.9e6, 4), (33e6, 1), (1e12, 1)]
)
def test_batches_waiting_is_bounded_by_bytes(
    batch_bytes: float, waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "_cores", lambda: 4)
    numbers = np.arange(10, dtype=np.int64)
    row = np.broadcast_to(np.uint8(0), (10, int(batch_bytes)))
    assert batches_waiting(ArrayExamples(row, numbers, numbers), 1) == waiting
    assert batches_waiting(ArrayExamples(row, numbers, numbers), 5) == max(
        1, min(5, int(PREFETCH_BYTES // (5 * (batch_bytes + 8))))
    )


def test_a_batch_is_read_by_one_call_of_python_and_copied_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called = {"numpy_function": 0, "aligned_copy": 0}

    def count(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def counting(*arguments: Any) -> Any:
            called[name] += 1
            return function(*arguments)

        monkeypatch.setattr(owner, name, counting)

    count(lazy.tf, "numpy_function")
    count(examples_module, "aligned_copy")
    assert len(_train(_numbered(30), 10, 0, 3)) == 3
    # One call in the graph of a batch; inputs and targets of three batches.
    assert called == {"numpy_function": 1, "aligned_copy": 6}


def test_training_batches_differ_by_seed() -> None:
    one, other = (_train(_numbered(25), 25, 0, 1, seed=seed)[0][1] for seed in (0, 1))
    assert not np.array_equal(one, other)


def test_training_batches_take_all_when_the_batch_is_larger_than_the_data() -> None:
    assert [len(y) for _, y in _train(_numbered(5), 64, 0, 2)] == [5, 5]


def test_training_batches_have_static_features_and_stored_dtypes() -> None:
    dataset = training_batches(_numbered(9), global_batch_size=4, seed=0, first_step=0, last_step=3)
    x, y = dataset.element_spec
    assert (x.shape.as_list(), x.dtype) == ([None, 3], tf.uint8)
    assert (y.shape.as_list(), y.dtype) == ([None], tf.int64)
    assert int(dataset.cardinality()) == 3


def test_evaluation_batches_come_in_order() -> None:
    batches = list(evaluation_batches(_numbered(10), 4).as_numpy_iterator())
    assert [y.tolist() for _, y in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_evaluation_batches_take_only_the_indices_asked_for() -> None:
    chosen = np.array([7, 2, 9])
    batches = evaluation_batches(_numbered(10), 2, chosen).as_numpy_iterator()
    assert list(itertools.chain(*(y for _, y in batches))) == [7, 2, 9]


def test_evaluation_batches_are_none_when_no_index_is_asked_for() -> None:
    nothing = np.array([], np.int64)
    assert list(evaluation_batches(_numbered(10), 2, nothing).as_numpy_iterator()) == []


def test_naming_bad_examples_passes_errors_that_are_not_about_examples() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError), naming_bad_examples(_numbered(3)):
        tf.debugging.assert_equal(1, 2)


class _Broken(ArrayExamples):
    def arrays(self, indices: np.ndarray) -> Batch:
        if 2 in indices:
            raise DataError("corrupt", subject="2.png")
        return super().arrays(indices)


@pytest.mark.parametrize("is_view", [False, True])
def test_naming_bad_examples_names_the_example(is_view: bool) -> None:
    numbers = np.arange(3)
    examples: Examples = _Broken(numbers, numbers, numbers)
    examples = View(examples, rows=np.array([0, 2])) if is_view else examples
    with pytest.raises(DataError, match=r"2\.png: corrupt"), naming_bad_examples(examples):
        list(evaluation_batches(examples, 2))


def test_naming_bad_examples_blames_none_when_memory_ran_out() -> None:
    def greedy(step: int) -> np.ndarray:
        raise MemoryError

    steps = tf.data.Dataset.range(1).map(lambda s: tf.numpy_function(greedy, [s], tf.int64))
    numbers = np.arange(3)
    broken = _Broken(numbers, numbers, numbers)
    with pytest.raises(tf.errors.ResourceExhaustedError), naming_bad_examples(broken):
        list(steps)


def _augmented(normalize: bool = True) -> Examples:
    config = {"source": "digits", "augment": {"crop": 1, "rotate": 10, "mixup": 0.3}}
    if normalize:
        config["normalize"] = {"scale": 0.0625}
    return open_dataset(DataConfig.model_validate(config), 0).train


def test_training_batches_augment_alike_however_they_are_resumed() -> None:
    train = _augmented()
    whole, resumed = _train(train, 500, 0, 5), _train(train, 500, 2, 5)
    for (x, y), (again_x, again_y) in zip(whole[2:], resumed, strict=True):
        np.testing.assert_array_equal(x, again_x)
        np.testing.assert_array_equal(y, again_y)
    assert y.shape == (500, 10)


def test_training_batches_augment_each_epoch_anew() -> None:
    train = _augmented(normalize=False)
    order = [np.argsort(epoch_order(len(train), 0, epoch)) for epoch in (0, 1)]
    one, other = (_train(train, 1257, e, e + 1)[0][0][order[e]] for e in (0, 1))
    assert (one != other).any(axis=(1, 2, 3)).mean() > 0.9


def test_evaluation_batches_are_not_augmented() -> None:
    plain = open_dataset(DataConfig(source="digits"), 0).train
    one, other = (
        next(iter(evaluation_batches(examples, 50).as_numpy_iterator()))
        for examples in (plain, _augmented(normalize=False))
    )
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_array_equal(one[1], other[1])
