"""What shrink uses of tf-keras that is not public: with a new tf-keras, tests of this module fail.

Nothing heavy is imported: models, layers, tensors and nodes are tf-keras' own. Not here, as they
are overridden in classes: `_maybe_load_initial_counters_from_ckpt` (`engine/microbatch.py`),
`_supports_tf_logs` (callbacks), and the store of weights (`model/archive.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_LEGACY, _STATELESS = "legacy_stateful", "stateless"


def layers_of(model: Any) -> list[Any]:
    """Return every layer of a model or wrapper, those of nested ones too."""
    # Not `submodules`: TensorFlow cannot sort the graphs by which recurrent layers keep masks.
    return list(model._flatten_layers(include_self=False))


def parts_of(layer: Any) -> list[Any]:
    """Return a layer or model and every layer in it."""
    return list(layer._flatten_layers())


def inner_layers(model: Any) -> list[Any]:
    """Return the layers of a model or wrapper without what is inside these."""
    return list(model._flatten_layers(recursive=False, include_self=False))


def own_weights(layer: Any) -> list[Any]:
    """Return a layer's weights that training learns, whether frozen or not; not its parts'."""
    return list(layer._trainable_weights)


def own_state(layer: Any) -> list[Any]:
    """Return a layer's other weights, such as statistics; not its parts'."""
    return list(layer._non_trainable_weights)


def freeze_alone(layer: Any) -> None:
    """Freeze a layer and no part of it."""
    layer._trainable = False


def rename(layer: Any, name: str) -> None:
    """Give a layer another name."""
    layer._name = name


def takes_training(layer: Any) -> bool:
    """Whether the layer's call has an argument `training`."""
    return bool(layer._expects_training_arg)


def added_losses(layer: Any) -> bool:
    """Whether the layer called `add_loss` when it was last called."""
    return bool(layer._losses or layer._eager_losses)


def loss_functions(model: Any) -> list[Any]:
    """Return losses that were added to a model as functions."""
    return list(model._callable_losses)


def is_functional(model: Any) -> bool:
    """Whether a model is a graph of layers: functional, or sequential with known inputs."""
    return bool(getattr(model, "_is_graph_network", False))


def nodes_of(model: Any) -> list[Any]:
    """Return the calls of a functional model's layers in an order in which they can be made."""
    by_depth = model._nodes_by_depth
    return [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]


def calls_of(layer: Any) -> list[Any]:
    """Return the nodes of a layer's symbolic calls."""
    return list(layer._inbound_nodes)


def is_symbolic(value: object) -> bool:
    """Whether a value is a tensor between layers."""
    return hasattr(value, "_keras_history")


def made_by(tensor: Any) -> tuple[Any, int, int]:
    """Return the layer that makes a symbolic tensor, the index of its call and of the output."""
    layer, node, index = tensor._keras_history
    return layer, node, index


def node_of(tensor: Any) -> Any:
    """Return the call that makes a symbolic tensor."""
    layer, node, _ = made_by(tensor)
    return layer._inbound_nodes[node]


def mask_of(tensor: Any) -> Any:
    """Return a tensor's mask, or None."""
    return getattr(tensor, "_keras_mask", None)


def set_mask(tensor: Any, mask: Any) -> None:
    """Give a tensor a mask, or None."""
    tensor._keras_mask = mask


def input_structure(model: Any) -> Any:
    """Return the symbolic inputs of a functional model as it takes them, nested."""
    return model._nested_inputs


def output_structure(model: Any) -> Any:
    """Return the symbolic outputs of a functional model as it gives them, nested."""
    return model._nested_outputs


def unbuilt_input_shape(model: Any) -> Any:
    """Return the input shape with which a subclassed model was built; None where it was not."""
    return getattr(model, "_build_input_shape", None)


def insert_layers(model: Any, layers: Sequence[Any], nodes: Sequence[Any]) -> None:
    """Make layers that lead to no output part of a functional model."""
    model._insert_layers(layers, nodes)


def plain_run(model: Any) -> Callable[..., Any]:
    """Return what calls the layers of a functional model, from its inputs to its outputs."""
    run: Callable[..., Any] = model._run_internal_graph
    return run


@contextmanager
def run_by(model: Any, run: Callable[..., Any]) -> Iterator[None]:
    """Let a functional model call its layers by `run` in here."""
    model._run_internal_graph = run
    try:
        yield
    finally:
        del model._run_internal_graph


def flat_inputs(model: Any, inputs: Any) -> list[Any]:
    """Return what a functional model is called with, a tensor for each of its inputs."""
    pairs = zip(model._flatten_to_reference_inputs(inputs), model.inputs, strict=True)
    return [model._conform_to_reference_input(value, ref_input=own) for value, own in pairs]


def has_constants(layer: Any) -> bool:
    """Whether a recurrent layer is called with constants."""
    return bool(getattr(layer, "_num_constants", None))


def attention_parts(layer: Any) -> dict[str, Any]:
    """Return the dense layers of a built `MultiHeadAttention` by what they project."""
    return {name: getattr(layer, f"_{name}_dense") for name in ("query", "key", "value", "output")}


def heads_and_shape(layer: Any) -> tuple[int, Any]:
    """Return the number of heads of a `MultiHeadAttention`, and its output shape or None."""
    return int(layer._num_heads), layer._output_shape


def stateful_generator(layer: Any) -> Any:
    """Return the generator of a random layer whose state cannot be saved; None of any other."""
    generator = getattr(layer, "_random_generator", None)
    return generator if getattr(generator, "_rng_type", None) == _LEGACY else None


def saved_generator(layer: Any) -> Any:
    """Return the `tf.random.Generator` that a layer has of its own, or None."""
    return getattr(getattr(layer, "_random_generator", None), "_generator", None)


@contextmanager
def drawing_from(generators: Sequence[Any], seed: Callable[[], Any]) -> Iterator[None]:
    """Let stateful generators draw by stateless operations, from a seed for each draw, in here."""
    for generator in generators:
        generator._rng_type = _STATELESS
        generator.make_seed_for_stateless_op = seed
    try:
        yield
    finally:
        for generator in generators:
            generator._rng_type = _LEGACY
            del generator.make_seed_for_stateless_op


def loss_scale_state(optimizer: Any) -> list[Any]:
    """Return the variables of a dynamic `LossScaleOptimizer` that are not in its `variables`."""
    state = optimizer._loss_scale
    return [state.current_loss_scale, state.counter]
