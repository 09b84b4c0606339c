"""The gradient of the mean loss over a global batch, micro-batch by micro-batch.

For B examples on R replicas with K micro-batches each, the gradient of the mean loss is the sum
over all R·K micro-batches of the gradients of (sum of their examples' losses) / B. Every loss is
divided by B before it is differentiated, so that sums are all that is left to do, however the
batch is split.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import tensorflow as tf
import tf_keras as keras

from shrink.base.types import Tensors
from shrink.engine.operation_order import in_order_of_creation, one_by_one
from shrink.tflite.serving import traced

PACK_BYTES = 32 * 2**20
"""What is summed over replicas in one message, at least: one of all gradients copies them all."""
Body = TypeVar("Body", bound=Callable[..., list[tf.Tensor]])


class Batch(NamedTuple):
    """A replica's share of a global batch, or a slice of it: structures of (n, ...) tensors.

    `valid` is None, or bool (n,): false for a row that is no example and counts for nothing.
    """

    x: Tensors
    y: Tensors
    sample_weight: tf.Tensor | None
    valid: tf.Tensor | None = None

    @property
    def rows(self) -> tf.Tensor:
        """Number of examples, int64 ()."""
        if self.valid is not None:
            return tf.reduce_sum(tf.cast(self.valid, tf.int64))
        return tf.shape(tf.nest.flatten(self.x)[0], out_type=tf.int64)[0]

    def slice(self, start: tf.Tensor, stop: tf.Tensor) -> Batch:
        """Return the examples from `start` up to `stop`."""
        return tf.nest.map_structure(
            lambda tensor: None if tensor is None else tensor[start:stop], self
        )

    def part(self, index: tf.Tensor, count: tf.Tensor, rows: tf.Tensor) -> Batch:
        """Return one of `count` parts of the first rows, alike in size, and never empty.

        Where there are fewer examples than parts, some are a row of zeros that is not `valid`:
        convolutions and batch normalisation fail on batches of none.
        """
        taken = self.slice(rows * index // count, rows * (index + 1) // count)
        missing = tf.cast(taken.rows == 0, tf.int32)

        def with_zeros(tensor: tf.Tensor | None) -> tf.Tensor | None:
            if tensor is None:
                return None
            around = [[0, missing], *([0, 0] for _ in tensor.shape[1:])]
            return tf.ensure_shape(tf.pad(tensor, around), tensor.shape)

        padded = tf.nest.map_structure(with_zeros, taken)
        size = tf.shape(tf.nest.flatten(padded.x)[0])[0]
        return padded._replace(valid=tf.fill([size], missing == 0))


def unpack(data: Tensors) -> Batch:
    """Return x, (x, y) or (x, y, sample_weight), as Keras gives it to a step, as a `Batch`."""
    return Batch(*keras.utils.unpack_x_y_sample_weight(data))


def micro_batches(
    batch: Batch,
    micro_batch_size: tf.Tensor,
    body: Callable[[Batch, list[tf.Tensor]], list[tf.Tensor]],
    start: list[tf.Tensor],
    rows: tf.Tensor | None = None,
) -> list[tf.Tensor]:
    """Fold `body` over the micro-batches of a batch, one after the other.

    Args:
        batch: n examples; for n = 0 the body never runs.
        micro_batch_size: int64 (); the last micro-batch has what is left.
        body: (micro-batch, accumulators) to accumulators.
        start: the accumulators' first values.
        rows: int64 (), how many of the examples to go through; by default all.

    Returns:
        The accumulators after the last micro-batch.
    """
    rows = batch.rows if rows is None else rows

    def step(index: tf.Tensor, accumulators: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        first = index * micro_batch_size
        part = batch.slice(first, tf.minimum(first + micro_batch_size, rows))
        return index + 1, body(part, accumulators)

    # Forward passes do not depend on the accumulators: with the default of 10 iterations in
    # flight, accumulation would need as much memory as no accumulation.
    _, accumulators = tf.while_loop(
        lambda index, accumulators: index * micro_batch_size < rows,
        step,
        (tf.constant(0, tf.int64), start),
        parallel_iterations=1,
    )
    return accumulators


def out_of_line(body: Body) -> Body:
    """Return the body of a loop as a function that TensorFlow leaves whole.

    Bodies are written out in the graph around the loop, where oneDNN goes through the operations
    along the loop's cycle, from where a hash of addresses begins. It gives the gradient of a max
    pooling its own kernel only where it saw the pooling first: else TensorFlow's is used, ten
    times slower and with other memory, so that a step's peak differed by 12 % between processes.
    In a function of its own there is no cycle.
    """
    return traced(body, experimental_attributes={"_noinline": True})


class Accumulators:
    """Sums of gradients that keep their place in memory from one micro-batch to the next.

    As values that go round in the loop they would be written among the activations, and so cut
    what these leave free into pieces that fit nothing: an allocator lends a tensor the whole of
    a piece of up to twice its size. MobileNet (96 x 96, 2 x 64 examples) peaked 40 MiB higher.

    Args:
        variables: what gradients are of; create this in the scope of their strategy.
    """

    def __init__(self, variables: Sequence[tf.Variable]) -> None:
        self._sums = [_sum_variable(variable) for variable in variables]
        self._zero = _sum_variable(tf.constant(0.0))

    def clear(self) -> None:
        """Set all sums to 0; call it in a replica, in graph."""

        def clear() -> None:
            for one in self._sums:
                # Read from a variable: TensorFlow would keep constants. Assigned whole: after a
                # sliced or scattered change it copies a variable at every addition.
                zero = tf.cast(self._zero.read_value(), one.dtype)
                one.assign(tf.fill(one.shape, zero), read_value=False)

        one_by_one(clear)

    def add(self, index: int, gradient: tf.Tensor) -> None:
        """Add the gradient of the variable at an index; call it in a replica, in graph."""
        self._sums[index].assign_add(gradient, read_value=False)

    def values(self) -> list[tf.Tensor]:
        """Return the sums of this replica."""
        return [one.read_value() for one in self._sums]


def _sum_variable(variable: tf.Variable) -> tf.Variable:
    return tf.Variable(
        tf.zeros(variable.shape, variable.dtype),
        trainable=False,
        name="gradient_sum",
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.NONE,
    )


def sum_over_replicas(values: Tensors) -> Tensors:
    """Sum a structure of tensors over all replicas, in a few packs; call it in a replica."""
    replica = tf.distribute.get_replica_context()
    if replica.num_replicas_in_sync == 1:
        return values
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=PACK_BYTES)
    return replica.all_reduce(tf.distribute.ReduceOp.SUM, values, options)


def dense_gradients(
    tape: tf.GradientTape,
    loss: tf.Tensor,
    variables: Sequence[tf.Variable],
    use: Callable[[int, tf.Tensor], None] | None = None,
) -> Sequence[tf.Tensor]:
    """Return d loss / d variable in each variable's dtype; zeros where they are unconnected.

    Embeddings' sparse gradients become dense: sums and norms of slices with repeated indices
    are not those of the gradient.

    Args:
        tape: what recorded the loss.
        loss: a scalar.
        variables: what to differentiate by.
        use: see `in_order_of_creation`.
    """

    def compute() -> list[tf.Tensor]:
        unconnected = tf.UnconnectedGradients.ZERO
        gradients = tape.gradient(loss, variables, unconnected_gradients=unconnected)
        return [
            tf.cast(tf.convert_to_tensor(gradient), variable.dtype)
            for gradient, variable in zip(gradients, variables, strict=True)
        ]

    return in_order_of_creation(compute, use)
