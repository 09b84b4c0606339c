"""Optimizers of tf-keras from a recipe's `optimizer` section."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import tf_keras as keras

from shrink.base.errors import RecipeError
from shrink.engine.config import OptimizerConfig
from shrink.engine.schedules import WarmupDecay

OPTIMIZERS: Mapping[str, type[Any]] = {
    "adam": keras.optimizers.Adam,
    "adamw": keras.optimizers.AdamW,
    "sgd": keras.optimizers.SGD,
    "rmsprop": keras.optimizers.RMSprop,
    "adagrad": keras.optimizers.Adagrad,
    "nadam": keras.optimizers.Nadam,
    "adamax": keras.optimizers.Adamax,
    "lion": keras.optimizers.Lion,
}
_SCHEDULING = {"name", "learning_rate", "schedule", "warmup"}
_CLIPPING = ("clipnorm", "global_clipnorm", "clipvalue")


def build_optimizer(config: OptimizerConfig, total_updates: int) -> Any:
    """Return a tf-keras optimizer; call it inside the scope of the devices.

    Under the global policy `mixed_float16` it comes wrapped in a `LossScaleOptimizer` with a
    dynamic scale (Micikevicius et al. 2018, section 3.2).

    Args:
        config: what the recipe says; arguments left out keep tf-keras' defaults.
        total_updates: updates of the whole stage, over which the schedule runs.

    Raises:
        RecipeError: an argument that this optimizer does not take, or two kinds of clipping.
    """
    optimizer_class = OPTIMIZERS[config.name]
    arguments = config.model_dump(exclude=_SCHEDULING, exclude_none=True)
    _check_arguments(config.name, optimizer_class, arguments)
    optimizer = optimizer_class(learning_rate=_learning_rate(config, total_updates), **arguments)
    if keras.mixed_precision.global_policy().name == "mixed_float16":
        optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer)
    return optimizer


def _check_arguments(name: str, optimizer_class: type[Any], arguments: dict[str, Any]) -> None:
    accepted = inspect.signature(optimizer_class).parameters
    for argument in arguments:
        if argument not in accepted:
            raise RecipeError(
                f"the optimizer {name} takes no {argument}",
                subject=f"training.optimizer.{argument}",
                hint=f"remove {argument}, or use {_takers(argument)}",
            )
    clippings = [argument for argument in _CLIPPING if argument in arguments]
    if len(clippings) > 1:
        raise RecipeError(
            f"{' and '.join(clippings)} exclude each other",
            subject=f"training.optimizer.{clippings[1]}",
            hint="keep one of them",
        )


def _takers(argument: str) -> str:
    names = [n for n, c in OPTIMIZERS.items() if argument in inspect.signature(c).parameters]
    return " or ".join(names)


def _learning_rate(config: OptimizerConfig, total_updates: int) -> Any:
    warmup_updates = round(config.warmup * total_updates)
    if config.schedule == "constant" and warmup_updates == 0:
        return config.learning_rate
    return WarmupDecay(config.learning_rate, config.schedule, warmup_updates, total_updates)
