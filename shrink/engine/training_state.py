"""Everything that the next update depends on, as named arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.engine.batch_norm import layers_of


class TrainingState:
    """The variables of a training run: those of the model, the optimizer, the metrics, the hooks.

    A variable whose replicas each hold a value of their own, such as batch-norm statistics and
    metrics, is saved once for each replica, so that nothing is rounded by taking means. Of
    several machines only the chief saves: there it is the mean over all replicas, for metrics
    the sum, which takes all workers to read. Both are linear: as good to continue from.

    Args:
        trainer: a compiled `shrink.engine.microbatch.MicroBatchTrainer` with a built optimizer.
        together: whether it trains on several machines.
    """

    def __init__(self, trainer: Any, *, together: bool = False) -> None:
        self._strategy = trainer.distribute_strategy
        self._together = together
        self._groups = {
            "model": list(trainer.model.variables),
            "optimizer": _optimizer_variables(trainer.optimizer),
            "hook": _hook_variables(trainer.after_update),
            "random": [
                *_generator_states(trainer.model),
                *([trainer.seeds.variable] if trainer.seeds else []),
            ],
            "metric": [v for metric in trainer.metrics for v in metric.variables],
        }

    def arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield every variable's name here and its value, one at a time."""
        for name, components in self._components():
            yield name, components[0].numpy()

    def take_part(self) -> None:
        """Read what it takes all workers to read, while the chief saves."""
        for variables in self._groups.values():
            for variable in variables:
                if _is_own(variable):
                    variable.numpy()

    def mismatch(self, shapes: Mapping[str, tuple[int, ...]]) -> str:
        """Say in which way saved arrays of these shapes do not fit; empty if they do."""
        names = {name: components[0] for name, components in self._components()}
        if missing := sorted(names.keys() - shapes.keys()):
            return f"it lacks {missing[0]} and {len(missing) - 1} more"
        for name, variable in names.items():
            given, wanted = shapes[name], tuple(variable.shape)
            if given != wanted:
                return f"{name} has the shape {given}, not {wanted}"
        return ""

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Assign saved arrays to all variables but the metrics."""
        self._assign(arrays, lambda name: not name.startswith("metric/"))

    def restore_metrics(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Assign the metrics, which Keras resets at the start of an epoch."""
        self._assign(arrays, lambda name: name.startswith("metric/"))

    def _assign(self, arrays: Mapping[str, np.ndarray], wanted: Any) -> None:
        for name, components in self._components():
            if wanted(name):
                value = arrays[name]
                for component in components:
                    component.assign(value)

    def _components(self) -> Iterator[tuple[str, list[Any]]]:
        """Yield a name and the variables, one or one per replica, that share its value."""
        for group, variables in self._groups.items():
            for index, variable in enumerate(variables):
                copies = list(self._strategy.experimental_local_results(variable))
                if _is_own(variable) and self._together:
                    yield f"{group}/{index}", [variable]
                elif _is_own(variable):
                    for replica, copy in enumerate(copies):
                        yield f"{group}/{index}/{replica}", [copy]
                else:
                    yield f"{group}/{index}", copies


def _is_own(variable: Any) -> bool:
    """Whether each replica has a value of its own."""
    return bool(variable.synchronization == tf.VariableSynchronization.ON_READ)


def _optimizer_variables(optimizer: Any) -> list[Any]:
    variables = list(optimizer.variables)
    if isinstance(optimizer, keras.mixed_precision.LossScaleOptimizer) and optimizer.dynamic:
        state = optimizer._loss_scale  # no part of `variables`, and public nowhere
        variables += [state.current_loss_scale, state.counter]
    return variables


def _hook_variables(hooks: Sequence[Any]) -> list[Any]:
    return [variable for hook in hooks for variable in getattr(hook, "variables", ())]


def _generator_states(model: Any) -> list[Any]:
    """Return the states of layers that draw from a `tf.random.Generator` of their own."""
    generators = [
        getattr(getattr(layer, "_random_generator", None), "_generator", None)
        for layer in layers_of(model)
    ]
    return [generator.state for generator in generators if generator is not None]
