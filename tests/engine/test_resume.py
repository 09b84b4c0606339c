"""Training that was cut short and is started again ends where it would have ended."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.progress import Progress
from shrink.contract.events import OutOfMemoryEvent
from shrink.engine.checkpoint import CheckpointFolder
from shrink.engine.config import OptimizerConfig, TrainingConfig
from shrink.engine.fit import train
from shrink.engine.progress import OnProgress
from shrink.engine.record import TrainingRecord
from shrink.engine.recovery import Watcher
from shrink.engine.resume import Cadence, Recovery
from shrink.pruning.masks import Masks, polynomial
from tests.engine._scenarios import dataset
from tests.engine._toys import setup

EPOCHS, STEPS = 3, 3
CONFIG = TrainingConfig(
    global_batch_size=24,
    micro_batch_size=10,
    restore_best=True,
    optimizer=OptimizerConfig(name="adam", learning_rate=0.02, schedule="cosine"),
)


class Cut(BaseException):
    """What ends a training run in the middle, in place of a signal."""


class CutBefore(Watcher):
    """Ends the run before a given update."""

    def __init__(self, step: int | None) -> None:
        super().__init__()
        self.steps: list[int] = []
        self._step = step

    def begin_step(self, step: int, micro_batch_size: int) -> None:
        if step == self._step:
            raise Cut
        self.steps.append(step)


class Noise(keras.layers.Layer):
    """Adds noise that it draws by itself."""

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return inputs + tf.random.normal(tf.shape(inputs)) if training else inputs


class OwnDropout(keras.layers.Layer):
    """Has a random layer of Keras inside."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.inner = keras.layers.Dropout(0.5)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return self.inner(inputs, training=training)


def model_and_masks(dropout: float = 0.0, noisy: Any = None) -> tuple[Any, Masks]:
    keras.utils.set_random_seed(1)
    layers = keras.layers
    inputs = layers.Input((6, 6, 2))
    hidden = layers.BatchNormalization()(layers.Dense(16)(layers.Flatten()(inputs)))
    hidden = layers.ReLU()(hidden)
    if noisy is not None:
        hidden = noisy(hidden)
    elif dropout:
        hidden = layers.Dropout(dropout)(hidden)
    model = keras.Model(inputs, layers.Dense(5)(hidden))
    return model, Masks([model.layers[2].kernel], polynomial(0.6, 7), last_update=7, frequency=2)


def run(
    folder: Path | None,
    cut_before: int | None = None,
    *,
    config: TrainingConfig = CONFIG,
    cadence: Cadence | None = None,
    dropout: float = 0.0,
    noisy: Any = None,
    on_progress: OnProgress | None = None,
    **known: Any,
) -> tuple[Any, TrainingRecord, list[int]]:
    """Train, and return the model, the record and the updates that were made."""
    model, masks = model_and_masks(dropout, noisy)
    watcher = CutBefore(cut_before)
    record = train(
        setup(model, config, metrics=("accuracy",), after_update=[masks]),
        dataset(),
        epochs=EPOCHS,
        monitor="loss",
        on_progress=on_progress,
        recovery=Recovery(
            folder,
            watcher=watcher,
            **known,
            cadence=cadence or Cadence(interval_s=0.0, share=math.inf),
        ),
    )
    return model, record, watcher.steps


@pytest.fixture(scope="module")
def undisturbed() -> tuple[Any, TrainingRecord]:
    model, record, steps = run(None)
    assert steps == list(range(EPOCHS * STEPS))
    return model, record


def check_equal(
    model: Any, record: TrainingRecord, undisturbed: tuple[Any, TrainingRecord]
) -> None:
    wanted, wanted_record = undisturbed
    for one, other in zip(model.get_weights(), wanted.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert record.history == wanted_record.history
    assert record.updates == wanted_record.updates


@pytest.mark.parametrize("step", [1, 4])
def test_train_ends_bitwise_the_same_when_cut_short(
    undisturbed: tuple[Any, TrainingRecord], tmp_path: Path, step: int
) -> None:
    with pytest.raises(Cut):
        run(tmp_path, cut_before=step)
    shown: list[Progress] = []
    model, record, steps = run(tmp_path, on_progress=shown.append)
    assert [one.continued for one in shown].count(True) == shown[0].continued == 1
    assert (shown[0].epoch - 1) * STEPS + shown[0].step == step
    # An epoch's last step is saved at its end, so that nothing but that is ever repeated.
    assert steps == list(range(step, EPOCHS * STEPS))
    check_equal(model, record, undisturbed)
    plural = "" if step == 1 else "s"
    assert record.notes == (
        f"training was continued from a checkpoint after {step} update{plural}",
    )


def test_train_keeps_no_epoch_of_a_rising_mask_when_cut_short(tmp_path: Path) -> None:
    # The ramp ends in update 7 of 9, so that the last of three epochs alone is as sparse as asked.
    spoiling = OptimizerConfig(name="sgd", learning_rate=5.0, global_clipnorm=1.0)
    config = CONFIG.model_copy(update={"optimizer": spoiling, "patience": 1})
    whole, record, _ = run(None, config=config)
    assert record.history["val_loss"].index(min(record.history["val_loss"])) < 2
    with pytest.raises(Cut):
        run(tmp_path, cut_before=7, config=config)
    resumed, again, _ = run(tmp_path, config=config)
    for model in (whole, resumed):
        kernel = model.layers[2].kernel.numpy()
        assert int(np.sum(kernel == 0)) == round(0.6 * kernel.size)
    check_equal(resumed, again, (whole, record))


@pytest.mark.parametrize("kind", [Noise, OwnDropout])
def test_train_claims_no_exactness_where_draws_were_not_continued(
    kind: Any, tmp_path: Path
) -> None:
    config = CONFIG.model_copy(update={"micro_batch_size": "auto"})
    whole, whole_record, _ = run(None, config=config, noisy=kind(name="own"))
    assert whole_record.exact
    with pytest.raises(Cut):
        run(tmp_path, cut_before=4, config=config, noisy=kind(name="own"))
    model, record, _ = run(tmp_path, config=config, noisy=kind(name="own"))
    pairs = zip(model.get_weights(), whole.get_weights(), strict=True)
    continued = all(np.array_equal(one, other) for one, other in pairs)
    assert record.exact == continued == (kind is OwnDropout)
    if not continued:
        why = "it draws random numbers itself, and drew others when training was resumed"
        assert record.inexact_because == (f"own: {why}",)


def test_train_draws_the_same_dropout_when_cut_short(
    undisturbed: tuple[Any, TrainingRecord], tmp_path: Path
) -> None:
    whole = run(None, dropout=0.5)
    with pytest.raises(Cut):
        run(tmp_path, cut_before=4, dropout=0.5)
    model, record, _ = run(tmp_path, dropout=0.5)
    check_equal(model, record, whole[:2])
    without, _ = undisturbed
    assert np.abs(model.get_weights()[0] - without.get_weights()[0]).max() > 1e-3


def test_train_leaves_one_checkpoint_and_makes_no_step_when_it_had_finished(
    undisturbed: tuple[Any, TrainingRecord], tmp_path: Path
) -> None:
    run(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    entry = json.loads((tmp_path / "checkpoint.json").read_text(encoding="utf-8"))
    assert names == sorted(["checkpoint.json", f"{entry['sha256']}.zip"])
    assert entry["content"]["update"] == EPOCHS * STEPS
    model, record, steps = run(tmp_path)
    assert steps == []
    check_equal(model, record, undisturbed)


def test_train_starts_anew_when_its_checkpoint_is_damaged(
    undisturbed: tuple[Any, TrainingRecord], tmp_path: Path
) -> None:
    with pytest.raises(Cut):
        run(tmp_path, cut_before=4)
    (arrays,) = tmp_path.glob("*.zip")
    content = bytearray(arrays.read_bytes())
    content[len(content) // 2] ^= 1
    arrays.write_bytes(content)
    model, record, steps = run(tmp_path)
    assert steps[0] == 0
    check_equal(model, record, undisturbed)
    assert record.notes[0].startswith("a damaged checkpoint was ignored")


def test_train_starts_anew_when_a_checkpoint_is_of_another_model(tmp_path: Path) -> None:
    CheckpointFolder(tmp_path).write([("model/0", np.zeros(3))], {})
    _, record, steps = run(tmp_path)
    assert steps[0] == 0
    assert record.notes[0].startswith("a checkpoint that does not fit was ignored")


def test_train_keeps_the_smaller_micro_batch_and_every_event(tmp_path: Path) -> None:
    first = OutOfMemoryEvent(2, 10, "killed")
    with pytest.raises(Cut):
        run(tmp_path, cut_before=4, micro_batch_size=5, events=(first,))
    second = OutOfMemoryEvent(4, 5, "killed again")
    _, record, _ = run(tmp_path, micro_batch_size=2, events=(first, second))
    assert record.micro_batch_size == 2
    assert record.oom_events == (first, second)
    assert record.global_batch_size == 24
    _, record, _ = run(tmp_path)
    assert record.micro_batch_size == 2
    assert record.oom_events == (first, second)


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def test_cadence_waits_for_its_interval_within_an_epoch() -> None:
    clock = Clock()
    cadence = Cadence(interval_s=30.0, share=0.02, clock=clock)
    assert not cadence.due(epoch_ends=False)
    clock.advance(1)
    assert not cadence.due(epoch_ends=True)
    clock.advance(28)
    assert not cadence.due(epoch_ends=False)
    assert cadence.due(epoch_ends=True)
    clock.advance(1)
    assert cadence.due(epoch_ends=False)


def test_cadence_never_spends_more_than_its_share() -> None:
    clock = Clock()
    cadence = Cadence(interval_s=30.0, share=0.02, clock=clock)
    cadence.due(epoch_ends=False)
    cadence.saving(lambda: clock.advance(2.0))
    for epoch_ends in (True, False):
        clock.advance(49)
        assert not cadence.due(epoch_ends=epoch_ends)
        clock.advance(-49)
        clock.advance(100)
        assert cadence.due(epoch_ends=epoch_ends)
        clock.advance(-100)
