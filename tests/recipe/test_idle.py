"""A key that another key makes idle is refused where the recipe is read, at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from shrink.base.errors import RecipeError
from shrink.recipe.load import load_recipe
from shrink.recipe.plan import build_plan

_TEXT = """\
name: r
model: m.h5
data: {{source: digits}}
training: {{seed: 1}}
stages:
  - {stage}
"""
CASES = [
    ("prune: {schedule: constant, ramp: 0.5}", "ramp", "schedule: polynomial"),
    ("prune: {schedule: constant, frequency: 2}", "frequency", "schedule: polynomial"),
    ("prune: {epochs: 0, ramp: 0.5}", "ramp", "epochs"),
    ("prune: {epochs: 0, initial_sparsity: 0.2}", "initial_sparsity", "epochs"),
    ("prune: {epochs: 0, frequency: 2}", "frequency", "epochs"),
    ("prune: {ramp: 0.0, frequency: 2}", "frequency", "ramp above 0"),
    ("distill: {student: s.h5, beta: 2}", "beta", "loss: decoupled"),
    ("distill: {student: s.h5, loss: kl, beta: 2}", "beta", "loss: decoupled"),
    ("distill: {student: s.h5, loss: logit_mse, temperature: 2}", "temperature", "loss: kl"),
    ("distill: {student: s.h5, loss: output_mse, temperature: 2}", "temperature", "loss: kl"),
    ("distill: {student: s.h5, teacher_cache: 'off', cache_dtype: float16}", "cache_dtype",
     "teacher_cache"),
    ("distill: {student: s.h5, feature_weight: 2}", "feature_weight", "feature_layers"),
    ("distill: {student: s.h5, feature_loss: attention}", "feature_loss", "feature_layers"),
    ("train: {training: {optimizer: {momentum: 0.9}}}", "momentum", "name: sgd or rmsprop"),
    ("train: {training: {optimizer: {name: sgd, beta_1: 0.9}}}", "beta_1", "name: adam"),
    ("train: {training: {optimizer: {name: sgd, nesterov: true}}}", "nesterov", "momentum"),
    ("prune: {epochs: 0, training: {restore_best: true}}", "restore_best", "epochs"),
    ("quantize: {training: {precision: mixed_bfloat16}}", "precision", "epochs"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _models(tmp_path: Path) -> None:
    for name in ("m.h5", "s.h5"):
        (tmp_path / name).touch()


def read(tmp_path: Path, stage: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(_TEXT.format(stage=stage), encoding="utf-8")
    build_plan(load_recipe(path))


@pytest.mark.parametrize(("stage", "key", "needs"), CASES, ids=[stage for stage, _, _ in CASES])
def test_an_idle_key_is_refused_at_its_place(
    tmp_path: Path, stage: str, key: str, needs: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        read(tmp_path, stage)
    assert f"{key} does nothing" in caught.value.message
    assert needs in str(caught.value.hint)
    assert caught.value.position is not None
    wanted = _TEXT.format(stage=stage).splitlines()[5].index(f"{key}:") + 1
    assert (caught.value.position.line, caught.value.position.column) == (6, wanted)


@pytest.mark.parametrize(
    "stage",
    [
        "prune: {schedule: constant, ramp: 0.6, frequency: 10}",
        "prune: {epochs: 0, schedule: constant}",
        "prune: {epochs: 0, training: {seed: 3, memory_limit: 1GB}}",
        "distill: {student: s.h5, beta: 8, feature_weight: 1}",
        "distill: {student: s.h5, loss: logit_mse, temperature: 4}",
        "quantize: {scheme: float16, calibration_samples: 9}",
        "prune: {method: channels, ratio: 0.5, samples: 9}",
        "train: {training: {optimizer: {name: rmsprop, momentum: 0.9}}}",
    ],
)
def test_a_written_default_is_harmless_and_what_is_read_is_taken(
    tmp_path: Path, stage: str
) -> None:
    read(tmp_path, stage)
