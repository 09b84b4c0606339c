"""Automatic fine-tuning doubles while the loss on validation examples falls, and resumes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.progress import Progress
from shrink.base.types import Spec
from shrink.engine.config import TrainingConfig
from shrink.engine.record import TrainingRecord
from shrink.engine.resume import Cadence
from shrink.measure.training_peak import Parts
from shrink.pruning.masks import count_zeros
from shrink.stages.context import StageContext
from shrink.stages.prune import length
from shrink.stages.prune.config import PruneConfig
from shrink.stages.prune.run import run
from tests.jobs import context_of, quiet

L = keras.layers
SPREAD = 0.199
"""Of 100 examples half gain so much more than the mean, half so much less: the standard error of
the mean is SPREAD / sqrt(99) = 0.02."""


class Toy:
    """A model whose weights are the epochs that it was trained for."""

    def __init__(self) -> None:
        self.epochs = 0

    def get_weights(self) -> int:
        return self.epochs

    def set_weights(self, epochs: int) -> None:
        self.epochs = epochs


def tuned(
    curve: Sequence[float],
    patch: pytest.MonkeyPatch,
    *,
    examples: int = 6400,
    validation: int = 100,
    patience: int = 10**6,
    loss: str = "mean_squared_error",
    spread: float = SPREAD,
) -> Any:
    """Fine-tune a toy whose mean loss after each training is `curve`; return what happened."""
    model, trainings = Toy(), list[tuple[int, int]]()

    def train(
        _: Toy, __: None, epochs: int, ___: None, *, training: TrainingConfig
    ) -> TrainingRecord:
        trainings.append((epochs, training.seed))
        epochs = min(epochs, patience)
        model.epochs += epochs
        return TrainingRecord(
            replicas=1, accumulation_steps=1, epochs=epochs, updates=0, peak=Parts()
        )

    def losses(*_: object) -> np.ndarray:
        count = len(trainings)
        return curve[count - 1] + spread * (count % 2) * np.repeat([-1.0, 1.0], 50)

    patch.setattr(length, "validation_losses", losses)
    context: Any = SimpleNamespace(
        dataset=SimpleNamespace(
            train=range(examples),
            validation=range(validation),
            reference=SimpleNamespace(target_spec=Spec((), np.dtype(np.int64))),
        ),
        training=TrainingConfig(seed=5),
        devices=SimpleNamespace(workers=1),
        train=train,
        task=lambda _: SimpleNamespace(objective=lambda: None, losses=(loss,), loss_weights=(1.0,)),
    )
    epochs = length.first_epochs(PruneConfig(), context)
    toy: Any = model
    first = context.train(toy, None, epochs, (), training=context.training)
    record, (choice,) = length.prolong(toy, first, epochs, context)
    return SimpleNamespace(
        trainings=trainings, kept=model.epochs, epochs=record.epochs, choice=choice
    )


@pytest.mark.parametrize(
    ("curve", "epochs", "kept", "why"),
    [
        # 100 updates an epoch: 600 are 6 epochs. Falls of 0.1, then 0.021 against an error of 0.02.
        ([1.0, 0.9, 0.879, 0.86], [6, 6, 12, 24], 48, "by -0.019 (standard error 0.02)"),
        ([1.0, 0.981], [6, 6], 12, "by -0.019 (standard error 0.02)"),
        (
            [1.0, 0.9, 1.0],
            [6, 6, 12],
            12,
            "by +0.1 (standard error 0.02), so the weights before them were kept",
        ),
        ([1.0, 0.9, 0.8, 0.7, 0.6], [6, 6, 12, 24, 48], 96, "twice as many would exceed"),
    ],
)
def test_training_doubles_while_the_loss_falls_by_its_standard_error(
    curve: list[float],
    epochs: list[int],
    kept: int,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = tuned(curve, monkeypatch)
    # No two trainings shuffle alike.
    assert found.trainings == [(count, 5 + n) for n, count in enumerate(epochs)]
    assert (found.kept, found.epochs) == (kept, sum(epochs))
    assert found.choice.value == f"{sum(epochs)} ({sum(epochs) * 100:,} updates)"
    assert why in found.choice.why
    measured = [option.figures["validation_loss"] for option in found.choice.options]
    np.testing.assert_allclose(measured, curve, rtol=1e-12)


@pytest.mark.parametrize(
    ("curve", "trainings", "why"),
    [
        # ln 2 / 100 is 0.0069: falls of 0.1 and 0.006, then no more than 0.006 is left to fall.
        ([0.2, 0.1, 0.094, 0.09], 3, "by -0.006 (one wrong answer adds at least 0.0069)"),
        ([0.2, 0.006, 0.0], 2, "examples is 0.006, and one wrong answer adds at least 0.0069"),
        ([0.006, 0.0], 1, "examples is 0.006, and one wrong answer adds at least 0.0069"),
    ],
)
def test_training_ends_where_less_than_a_wrong_answer_is_gained(
    curve: list[float], trainings: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tuned(curve, monkeypatch, loss="sparse_categorical_crossentropy", spread=0.001)
    assert len(found.trainings) == trainings
    assert why in found.choice.why


@pytest.mark.parametrize(
    ("losses", "shape", "least"),
    [
        (("sparse_categorical_crossentropy",), (), math.log(2) / 50),
        (("binary_crossentropy",), (1,), math.log(2) / 50),
        (("categorical_crossentropy",), (10,), math.log(2) / 50),
        (("sparse_categorical_crossentropy",), (8, 8), 0.0),  # an answer for each pixel
        (("binary_crossentropy",), (4,), 0.0),  # four answers
        (("mean_squared_error",), (1,), 0.0),
        (("binary_crossentropy", "mean_squared_error"), (1,), 0.0),
    ],
)
def test_the_least_fall_is_what_a_wrong_answer_adds(
    losses: tuple[str, ...], shape: tuple[int, ...], least: float
) -> None:
    task: Any = SimpleNamespace(losses=losses, loss_weights=(1.0,) * len(losses))
    found = length.least_fall(task, Spec(shape, np.dtype(np.float32)), 50)
    assert found == pytest.approx(least, rel=1e-12)


@pytest.mark.parametrize(
    ("settings", "epochs", "why"),
    [
        ({"examples": 64}, 20, None),  # an update an epoch
        ({"examples": 64_000 * 2}, 5, "twice as many would exceed 9,600"),
        ({"validation": 1}, 6, "no validation examples"),
        ({"patience": 4}, 6, "training.patience ended it"),
    ],
)
def test_limits_of_the_first_training(
    settings: dict[str, Any], epochs: int, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tuned([1.0, 1.0], monkeypatch, **settings)
    assert found.trainings[0] == (epochs, 5)
    if why is not None:
        assert len(found.trainings) == 1
        assert why in found.choice.why


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where a small model is; its automatic fine-tuning is 40 updates, and 40 more."""
    keras.utils.set_random_seed(0)
    inputs = L.Input((8, 8, 1))
    hidden = L.Dense(8, activation="relu")(L.Flatten()(L.Rescaling(1 / 16)(inputs)))
    keras.Model(inputs, L.Dense(10, activation="softmax")(hidden)).save(tmp_path / "model.keras")
    monkeypatch.setattr(length, "MOST_UPDATES", 80)
    return tmp_path


def pruned(folder: Path, work: str, send: Any = quiet, **config: Any) -> Any:
    context = context_of(
        folder / work,
        send,
        kind="prune",
        inputs={"model": folder / "model.keras"},
        training={"global_batch_size": 1024, "optimizer": {"learning_rate": 0.01}},
        checkpoints=folder / work,
    )
    return run(PruneConfig.model_validate(config), context)


def test_a_teacher_is_for_the_first_training_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objectives, train = list[str](), StageContext.train

    def spy(context: StageContext, model: Any, objective: Any, *rest: Any, **more: Any) -> Any:
        objectives.append(type(objective).__name__)
        return train(context, model, objective, *rest, **more)

    monkeypatch.setattr(StageContext, "train", spy)
    result = pruned(folder, "work", method="channels", ratio=0.5, teacher="self")
    assert objectives == ["DistillationObjective", "SupervisedObjective"]
    assert (result.training.epochs, len(result.training.history["val_loss"])) == (40, 40)
    assert result.details.choices[0].key == "epochs"


class Killed(Exception):
    """Ends a run where it stands."""


@pytest.mark.slow
def test_a_run_that_was_killed_in_a_further_training_ends_as_one_that_was_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cadence, "due", lambda _, *, epoch_ends: epoch_ends)
    ends = list[bool]()

    def kill(event: object) -> None:
        ends.append(isinstance(event, Progress) and event.epoch_end)
        if sum(ends) == 27:
            raise Killed

    whole = pruned(folder, "whole", sparsity=0.8)
    with pytest.raises(Killed):
        pruned(folder, "killed", kill, sparsity=0.8)
    resumed = pruned(folder, "killed", sparsity=0.8)
    for one, other in zip(whole.model.get_weights(), resumed.model.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    # The second training keeps the masks of the first, which rose over its first updates.
    assert count_zeros(resumed.model).fraction == pytest.approx(0.8, abs=0.01)
    assert resumed.training.updates == 80
    assert any("from a checkpoint after 12 updates" in n for n in resumed.training.notes)
    assert any(n.startswith("epochs: 40 (80 updates), chosen automatically") for n in resumed.notes)
