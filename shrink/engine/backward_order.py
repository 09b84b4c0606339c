"""One order of the operations of a step, so that every process has the same peak.

TensorFlow's executor runs what is ready inline where it took less than 8,000 cycles before, and
else hands it to a queue: how fast the machine was decides which of a layer's two gradients comes
first, and how long an activation or a gradient waits for the second. Four convolutions peaked at
5, 6 or 7 activations, each in some processes and then in all of their steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf


def in_order_of_creation(
    compute: Callable[[], Sequence[Any]], use: Callable[[int, Any], None] | None = None
) -> Sequence[Any]:
    """Have the operations on floats that a call creates run one after the other.

    Operations on different devices stay independent, and so do those without inputs and on
    integers, such as shapes: TensorFlow computes most of them when it optimizes the graph. What
    no result needs, such as the gradient of a first layer's inputs, waits for nothing and is
    waited for by nothing, so that TensorFlow leaves it out. In eager execution nothing changes.

    Args:
        compute: creates operations, and returns the tensors that are needed.
        use: called with the place of each tensor among them and the tensor, creates what is done
            with it, which runs as soon as the tensor is there: it need not wait for the others.
    """
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    results = compute()
    computing = graph.get_operations()[before:]
    uses: dict[Any, list[Any]] = defaultdict(list)
    if use is not None:
        for place, result in enumerate(results):
            before = len(graph.get_operations())
            use(place, result)
            if tf.is_symbolic_tensor(result):
                uses[result.op] += filter(_reads_floats, graph.get_operations()[before:])
    needed = _needed_for(results)
    ordered = [operation for operation in computing if operation in needed]
    _chain([(operation, uses[operation]) for operation in ordered if _computes_floats(operation)])
    return results


def one_by_one(update: Callable[[], Any]) -> None:
    """Have the operations on floats that a call creates run in the order of creation.

    An optimizer's temporaries are then those of one variable, and not of all of them.

    Args:
        update: changes variables, whatever it returns; in eager execution it is just called.
    """
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    update()
    _chain([(each, ()) for each in graph.get_operations()[before:] if _reads_floats(each)])


def _chain(operations: Iterable[tuple[Any, Iterable[Any]]]) -> None:
    """Have each operation wait for the last one on its device, and for what follows on that."""
    last: dict[str, Any] = {}
    for operation, uses in operations:
        # On each device for itself: replicas that synchronise in here have to arrive together.
        for each in (operation, *uses):
            if operation.device in last:
                each._add_control_input(last[operation.device])
            last[operation.device] = each


def _needed_for(results: Any) -> set[Any]:
    """Return the operations that some result depends on; none in eager execution."""
    tensors = tf.nest.flatten(results, expand_composites=True)
    waiting = [tensor.op for tensor in tensors if tf.is_symbolic_tensor(tensor)]
    needed = set(waiting)
    while waiting:
        operation = waiting.pop()
        sources = {*operation.control_inputs, *(tensor.op for tensor in operation.inputs)}
        waiting += sources - needed
        needed |= sources
    return needed


def _reads_floats(operation: Any) -> bool:
    return any(source.dtype.is_floating for source in operation.inputs)


def _computes_floats(operation: Any) -> bool:
    outputs = operation.outputs
    return bool(operation.inputs) and any(output.dtype.is_floating for output in outputs)
