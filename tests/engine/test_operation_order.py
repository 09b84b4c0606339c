from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import tensorflow as tf

from shrink.engine.operation_order import in_order_of_creation, one_by_one
from tests.engine._graphs import all_before


def _gradients(weights: list[Any], use: Callable[[int, Any], None] | None = None) -> Any:
    with tf.GradientTape() as tape:
        hidden = tf.ones((4, 3))
        tape.watch(weights)
        for weight in weights:
            hidden = tf.nn.relu(hidden @ weight)
        loss = tf.reduce_sum(hidden)
    return in_order_of_creation(lambda: tape.gradient(loss, weights), use)


def test_in_order_of_creation_leaves_one_order_of_the_operations_on_floats() -> None:
    with tf.Graph().as_default() as graph:
        gradients = _gradients([tf.ones((3, 3)) for _ in range(3)])
    ordered = [each for each in graph.get_operations() if each.type in ("MatMul", "ReluGrad")]
    backward = [each for each in ordered if each.name.startswith("gradient_tape")]
    assert len(backward) == 3 + 2 + 3
    for first, second in pairwise(backward):
        assert first in all_before(second)
    assert all(gradient.op in backward for gradient in gradients)


def test_in_order_of_creation_keeps_replicas_apart() -> None:
    def work_on(device: str) -> Any:
        with tf.device(device):
            return tf.square(tf.compat.v1.placeholder(tf.float32), name="work")

    with tf.Graph().as_default() as graph:
        in_order_of_creation(lambda: [work_on(d) for d in ("CPU:0", "CPU:1", "CPU:0")])
    first, other, last = (each for each in graph.get_operations() if each.type == "Square")
    assert first.control_inputs == other.control_inputs == []
    assert last.control_inputs == [first]


def test_in_order_of_creation_has_nothing_wait_for_what_no_result_needs() -> None:
    with tf.Graph().as_default() as graph:
        x, kernel = tf.ones((1, 5, 5, 2)), tf.ones((3, 3, 2, 4))
        with tf.GradientTape() as tape:
            tape.watch(kernel)
            y = tf.nn.conv2d(x, kernel, 1, "SAME")
        (gradient,) = in_order_of_creation(lambda: tape.gradient(y, [kernel]))
    types = {each.type for each in all_before(gradient.op)} | {gradient.op.type}
    assert "Conv2DBackpropFilter" in types
    assert "Conv2DBackpropInput" not in types
    (unused,) = (each for each in graph.get_operations() if each.type == "Conv2DBackpropInput")
    assert unused.control_inputs == []


def test_in_order_of_creation_changes_nothing_in_eager_execution() -> None:
    weights = [tf.constant([[0.5, -1.0], [2.0, 1.5], [0.0, 3.0]]), tf.constant([[1.0], [2.0]])]
    compiled = tf.function(lambda: _gradients(weights))()
    for eager, in_graph in zip(_gradients(weights), compiled, strict=True):
        assert eager.numpy().tolist() == in_graph.numpy().tolist()


def test_in_order_of_creation_uses_each_result_before_the_next_is_computed() -> None:
    used: list[Any] = []

    def use(place: int, gradient: Any) -> None:
        used.append(tf.negative(gradient, name=f"use_{place}"))

    with tf.Graph().as_default():
        gradients = _gradients([tf.ones((3, 3)) for _ in range(3)], use)
    # The last layer's gradient comes first: it is used before the others begin.
    for place in (0, 1):
        assert used[place + 1].op in all_before(gradients[place].op)
    assert gradients[0].op not in all_before(used[1].op)


def test_one_by_one_leaves_one_order_of_updates_and_their_results() -> None:
    variables = [tf.Variable([1.0, 2.0]) for _ in range(3)]

    @tf.function
    def update(factor: Any) -> None:
        one_by_one(lambda: [v.assign_add(v * factor, read_value=False) for v in variables])

    concrete = update.get_concrete_function(tf.constant(2.0))
    changes = [o for o in concrete.graph.get_operations() if o.type == "AssignAddVariableOp"]
    products = [o for o in concrete.graph.get_operations() if o.type == "Mul"]
    assert len(changes) == len(products) == 3
    for change, product in zip(changes, products[1:], strict=False):
        assert change in all_before(product)
    update(tf.constant(2.0))
    assert [v.numpy().tolist() for v in variables] == [[3.0, 6.0]] * 3


def test_in_order_of_creation_makes_nothing_wait_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [kind])
    used: list[int] = []
    with tf.Graph().as_default() as graph:
        _gradients([tf.ones((3, 3)) for _ in range(3)], lambda index, _: used.append(index))
    assert used == [0, 1, 2]
    assert not any(operation.control_inputs for operation in graph.get_operations())
