"""Optimizers and their learning rates against closed forms."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
import tensorflow as tf
import tf_keras as keras
from pydantic import ValidationError

from shrink.engine.config import TAKERS, OptimizerConfig
from shrink.engine.trainer import OPTIMIZERS, WarmupDecay, build_optimizer


@pytest.mark.parametrize(
    ("decay", "expected"),
    [
        ("constant", lambda p: 1.0),
        ("cosine", lambda p: (1 + math.cos(math.pi * p)) / 2),
        ("exponential", lambda p: math.exp(math.log(0.01) * p)),
        ("step", lambda p: 1.0 if p < 0.5 else 0.1 if p < 0.75 else 0.01),
    ],
)
def test_warmup_decay_equals_its_closed_form(decay: str, expected: Any) -> None:
    schedule = WarmupDecay(0.1, decay, warmup_updates=4, total_updates=24)
    rates = [float(schedule(step)) for step in range(25)]
    assert rates[:4] == pytest.approx([0.02, 0.04, 0.06, 0.08], rel=1e-6)
    wanted = [0.1 * expected((step - 4) / 20) for step in range(4, 25)]
    assert rates[4:] == pytest.approx(wanted, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_build_optimizer_builds_every_name_with_decay_and_clipping(name: Any) -> None:
    config = OptimizerConfig(name=name, learning_rate=0.5, weight_decay=0.1, clipnorm=2.0)
    optimizer = build_optimizer(config, total_updates=10)
    assert type(optimizer) is OPTIMIZERS[name]
    assert float(optimizer.learning_rate) == 0.5
    assert (optimizer.weight_decay, optimizer.clipnorm) == (0.1, 2.0)


@pytest.mark.parametrize("argument", TAKERS)
def test_an_argument_is_refused_where_keras_does_not_take_it(argument: str) -> None:
    takers = {n for n, c in OPTIMIZERS.items() if argument in inspect.signature(c).parameters}
    assert set(TAKERS[argument]) == takers
    value: Any = True if argument == "nesterov" else 0.5
    for name in OPTIMIZERS:
        given = {"name": name, argument: value}
        if name in takers:
            given = {**given, "momentum": 0.5} if name == "sgd" else given
            OptimizerConfig.model_validate(given)
            build_optimizer(OptimizerConfig.model_validate(given), total_updates=10)
        else:
            with pytest.raises(ValidationError, match=f"{argument} does nothing"):
                OptimizerConfig.model_validate(given)


def test_two_kinds_of_clipping_are_refused() -> None:
    with pytest.raises(ValidationError, match="clipnorm and clipvalue exclude each other"):
        OptimizerConfig(clipnorm=1.0, clipvalue=1.0)


def test_build_optimizer_scales_the_loss_in_half_precision() -> None:
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        optimizer = build_optimizer(OptimizerConfig(), total_updates=10)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert isinstance(optimizer, keras.mixed_precision.LossScaleOptimizer)


def _all_before(node: Any, nodes: dict[str, Any]) -> set[str]:
    """Return the names of the nodes that have to run before one."""
    found: set[str] = set()
    waiting = [node]
    while waiting:
        for source in waiting.pop().input:
            name = source.lstrip("^").split(":")[0]
            if name in nodes and name not in found:
                found.add(name)
                waiting.append(nodes[name])
    return found


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_build_optimizer_updates_one_weight_after_the_other(policy: str) -> None:
    keras.mixed_precision.set_global_policy(policy)
    try:
        optimizer = build_optimizer(OptimizerConfig(name="sgd", learning_rate=1.0), total_updates=1)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    variables = [tf.Variable(tf.ones(2)) for _ in range(3)]
    optimizer.build(variables)

    @tf.function
    def update(gradient: Any) -> None:
        optimizer.apply_gradients([(gradient, variable) for variable in variables])

    graph = update.get_concrete_function(tf.ones(2)).graph.as_graph_def()
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    changing = [
        [n for n in body if n.op == "AssignAddVariableOp" and n.attr["dtype"].type == 1]
        for body in bodies
    ]
    (changes,) = (found for found in changing if len(found) == 3)
    nodes = {node.name: node for body in bodies for node in body if changes[0] in body}
    before = [sum(other.name in _all_before(n, nodes) for other in changes) for n in changes]
    assert sorted(before) == [0, 1, 2]


def test_build_optimizer_compiles_nothing_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: [kind])
    assert not build_optimizer(OptimizerConfig(), total_updates=1).jit_compile
