"""Order the operations of a step, so that every process has the same peak.

TensorFlow's executor runs what is ready inline where it took less than 8,000 cycles before, and
else hands it to a queue: how fast the machine was decides which of a layer's two gradients comes
first, and how long an activation or a gradient waits for the second. Four convolutions peaked at
5, 6 or 7 activations, each in some processes and then in all of their steps.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import tensorflow as tf

Result = TypeVar("Result")


def in_order_of_creation(
    compute: Callable[[], Sequence[tf.Tensor]], use: Callable[[int, tf.Tensor], None] | None = None
) -> Sequence[tf.Tensor]:
    """Have the operations on floats that a call creates run one after the other.

    Operations on different devices stay independent, and so do those without inputs and on
    integers, such as shapes: TensorFlow computes most of them when it optimizes the graph. What
    no result needs, such as the gradient of a first layer's inputs, waits for nothing and is
    waited for by nothing, so that TensorFlow leaves it out. In eager execution nothing changes, nor
    where there is a GPU: its stream has an order, and TensorFlow fuses no kernels that wait.

    Args:
        compute: creates operations, and returns the tensors that are needed.
        use: called with the index of each tensor among them and the tensor, creates what is done
            with it, which runs as soon as the tensor is there: it need not wait for the others.
    """
    results, computing = _created_by(compute)
    if tf.config.list_logical_devices("GPU"):
        for index, result in enumerate(results):
            if use is not None:
                use(index, result)
        return results
    uses: dict[tf.Operation, list[tf.Operation]] = defaultdict(list)
    if use is not None:
        for index, result in enumerate(results):
            _, using = _created_by(functools.partial(use, index, result))
            if tf.is_symbolic_tensor(result):
                uses[result.op] += filter(_reads_floats, using)
    chained = _needed_for(results) - _waiting_on_weights(computing)
    ordered = [
        one
        for one in computing
        if one in chained and one.inputs and any(o.dtype.is_floating for o in one.outputs)
    ]
    # What is done with a result counts to the device that computed it.
    _chain((one.device, each) for one in ordered for each in (one, *uses[one]))
    return results


def one_by_one(update: Callable[[], object]) -> None:
    """Have the operations on floats that a call creates run in the order of creation.

    An optimizer's temporaries are then those of one variable, and not of all of them.

    Args:
        update: changes variables, whatever it returns; in eager execution it is just called.
    """
    _, updating = _created_by(update)
    _chain((each.device, each) for each in updating if _reads_floats(each))


def _created_by(call: Callable[[], Result]) -> tuple[Result, list[tf.Operation]]:
    """Return what a call returns, and the operations it creates; none in eager execution."""
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    result = call()
    return result, graph.get_operations()[before:]


def _chain(operations: Iterable[tuple[str, tf.Operation]]) -> None:
    """Have each operation wait for the one before it of the same device."""
    last: dict[str, tf.Operation] = {}
    for device, operation in operations:
        # On each device for itself: replicas that synchronise in here have to arrive together.
        if device in last:
            operation._add_control_input(last[device])
        last[device] = operation


def _needed_for(results: Sequence[tf.Tensor]) -> set[tf.Operation]:
    """Return the operations that some result depends on; none in eager execution."""
    waiting = [tensor.op for tensor in results if tf.is_symbolic_tensor(tensor)]
    needed = set(waiting)
    while waiting:
        operation = waiting.pop()
        sources = {*operation.control_inputs, *(tensor.op for tensor in operation.inputs)}
        waiting += sources - needed
        needed |= sources
    return needed


def _waiting_on_weights(operations: Iterable[tf.Operation]) -> set[tf.Operation]:
    """Return the operations on weights alone that have control inputs from their creator.

    A convolution that is computed again reads its bias after its product. oneDNN makes one
    operation of the product and the addition, whatever waits in between: had the reading, or its
    cast to half precision, to wait for the product, that one would wait for itself.
    """
    found: set[tf.Operation] = set()
    for each in operations:
        inputs = {source.op for source in each.inputs}
        waits_for = each.control_inputs or inputs & found
        of_weights = all(
            source in found
            or source.type == "Const"
            or all(output.dtype == tf.resource for output in source.outputs)
            for source in inputs
        )
        if waits_for and inputs and of_weights:
            found.add(each)
    return found


def _reads_floats(operation: tf.Operation) -> bool:
    return any(source.dtype.is_floating for source in operation.inputs)
