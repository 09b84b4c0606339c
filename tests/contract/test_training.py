"""The settings of training that a worker is given, and what a recipe may say of them."""

from __future__ import annotations

from dataclasses import fields

from shrink.contract.training import Optimizer, Training
from shrink.engine.config import OptimizerConfig, TrainingConfig


def test_settings_have_the_keys_and_the_defaults_of_a_recipe() -> None:
    assert TrainingConfig().settings() == Training()
    assert {one.name for one in fields(Training)} == set(TrainingConfig.model_fields)
    assert {one.name for one in fields(Optimizer)} == set(OptimizerConfig.model_fields)


def test_settings_are_what_the_recipe_says() -> None:
    said = {
        "global_batch_size": 24,
        "memory_limit": "2GB",
        "class_weights": {"dog": 3.0},
        "optimizer": {"name": "sgd", "momentum": 0.9},
    }
    assert TrainingConfig.model_validate(said).settings() == Training(
        global_batch_size=24,
        memory_limit=2_000_000_000,
        class_weights={"dog": 3.0},
        optimizer=Optimizer(name="sgd", momentum=0.9),
    )
