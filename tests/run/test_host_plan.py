"""What a step is refused, or left to train in, by limits that are written down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tf_keras as keras

from shrink.base import host
from shrink.base.errors import ResourceError
from shrink.base.host import HostMemory
from shrink.contract.job import StepJob
from shrink.contract.model_source import ModelSource
from shrink.engine.config import OptimizerConfig, TrainingConfig
from shrink.recipe.load import recipe_from_mapping
from shrink.recipe.plan import Plan, build_plan
from shrink.run.host_plan import check_host, weights_bytes, within_host

MB = 1_000_000


def job(folder: Path, megabytes: int, *, epochs: int = 1, **training: Any) -> StepJob:
    path = folder / "model.h5"
    with path.open("wb") as stream:
        stream.truncate(megabytes * MB)
    return StepJob(
        name="train",
        kind="train",
        epochs=epochs,
        training=TrainingConfig(**training).model_dump(mode="json"),
        inputs={"model": ModelSource(kind="keras", path=path)},
        data={},
        task={},
        split_seed=0,
    )


def test_a_step_is_left_alone_without_any_limit(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("shrink.run.host_plan.group_left_bytes", lambda: None)
    step = job(tmp_path, 100)
    assert within_host(step) is step


def test_a_step_that_cannot_fit_is_refused_before_it_starts(tmp_path: Path) -> None:
    step = job(tmp_path, 100, epochs=0, host_memory_limit=2500 * MB)
    with pytest.raises(
        ResourceError, match=r"needs about 2\.55 GB .* leaves it 2\.50 GB"
    ) as caught:
        within_host(step)
    assert caught.value.exit_code == 5
    assert caught.value.subject == "train"
    assert within_host(replace(step, training={**step.training, "host_memory_limit": 2551 * MB}))


def test_a_control_group_refuses_with_a_margin(tmp_path: Path) -> None:
    step = job(tmp_path, 100, epochs=0)
    with pytest.raises(ResourceError, match=r"the control group leaves it 2\.47 GB"):
        within_host(step, group_bytes=2300 * MB)
    assert within_host(step, group_bytes=2400 * MB).training["host_memory_limit"] == 2560 * MB


def test_a_container_of_2_gb_runs_small_models(tmp_path: Path) -> None:
    """What is left there once the light half and the preloaded process are in it."""
    for epochs in (0, 1):
        assert within_host(job(tmp_path, 1, epochs=epochs), group_bytes=1300 * MB)


def test_the_tighter_of_two_limits_counts(tmp_path: Path) -> None:
    step = job(tmp_path, 1, host_memory_limit=3000 * MB)
    assert within_host(step, group_bytes=2000 * MB).training["host_memory_limit"] == 2200 * MB


def test_training_gets_what_the_process_leaves(tmp_path: Path) -> None:
    step = job(tmp_path, 10, host_memory_limit=2000 * MB)
    # All but 1.5 GB of the process and 2.5 copies of the weights.
    assert within_host(step).training["memory_limit"] == 475 * MB
    smaller = replace(step, training={**step.training, "memory_limit": 64 * MB})
    assert within_host(smaller).training["memory_limit"] == 64 * MB
    teacher = {**step.inputs, "teacher": step.inputs["model"]}
    assert within_host(replace(step, inputs=teacher)).training["memory_limit"] == 425 * MB


@pytest.mark.parametrize(
    ("optimizer", "needed"),
    [
        (OptimizerConfig(name="sgd"), 2650),
        (OptimizerConfig(name="sgd", momentum=0.9), 2850),
        (OptimizerConfig(name="adam"), 2850),
    ],
)
def test_the_slots_of_an_optimizer_count(
    optimizer: OptimizerConfig, needed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HostMemory, "limit_bytes", lambda self: 16_000 * MB)
    step = job(tmp_path, 100, host_memory_limit=(needed + 1) * MB, optimizer=optimizer)
    # An update of Adam takes up to 11 copies, of SGD up to 6: docs/decisions.md.
    least = 6 if needed == 2650 else 11
    assert (within_host(step).training["memory_limit"] or 0) >= least * 100 * MB
    short = replace(step, training={**step.training, "host_memory_limit": needed * MB})
    with pytest.raises(ResourceError) as caught:
        within_host(short)
    assert (caught.value.hint or "").startswith(f"set training.host_memory_limit: {needed + 1}MB")
    assert ("optimizer.name: sgd" in (caught.value.hint or "")) == (needed == 2850)


def test_a_roomy_group_changes_nothing_for_a_small_model(tmp_path: Path) -> None:
    training = within_host(job(tmp_path, 1), group_bytes=16_000 * MB).training
    assert training["memory_limit"] is None
    assert training["host_memory_limit"] == 14_800 * MB


def group(folder: Path, **files: int | str) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")
    return folder


def test_group_left_bytes_reads_both_versions_and_takes_the_tightest(tmp_path: Path) -> None:
    v2 = group(
        tmp_path / "v2",
        memory__max=1000,
        memory__current=700,
        memory__stat="anon 100\ninactive_file 300",
    )
    v1 = group(
        tmp_path / "v1",
        memory__limit_in_bytes=2000,
        memory__usage_in_bytes=1500,
        memory__stat="inactive_file 7\ntotal_inactive_file 100",
    )
    none = group(tmp_path / "none", memory__max="max", memory__current=5)
    unlimited = group(
        tmp_path / "huge", memory__limit_in_bytes=9223372036854771712, memory__usage_in_bytes=1
    )
    assert host.group_left_bytes([v2]) == 600
    assert host.group_left_bytes([v1]) == 600 - 0
    assert host.group_left_bytes([none, unlimited]) is None
    assert host.group_left_bytes([none, v1, v2]) == 600
    assert host.group_left_bytes([]) is None


def test_available_memory_is_what_the_steps_limit_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(host.HOST_LIMIT, str(host.host_resident_bytes() + 50 * MB))
    assert (host.available_memory_bytes() or 0) <= 50 * MB
    monkeypatch.setenv(host.HOST_LIMIT, "1")
    assert host.available_memory_bytes() == 0


def two_stages(folder: Path, megabytes: int, second: dict[str, Any]) -> Plan:
    """Return a plan: a model file of this size is trained, then the second stage goes on."""
    folder.mkdir(exist_ok=True)
    with (folder / "model.h5").open("wb") as stream:
        stream.truncate(megabytes * MB)
    recipe = {
        "name": "r",
        "model": str(folder / "model.h5"),
        "data": {"source": "digits"},
        "stages": [{"train": {"epochs": 1, "training": {"optimizer": {"name": "sgd"}}}}, second],
    }
    return build_plan(recipe_from_mapping(recipe, str(folder)))


def refused(plan: Plan, limit_mb: int, names: set[str] | None = None) -> str | None:
    """Return the step that is refused where its process may hold so much."""
    steps = [step for step in plan.steps if names is None or step.name in names]
    try:
        check_host(plan, steps, group_bytes=round((limit_mb - 400) / 0.9) * MB)
    except ResourceError as error:
        return error.subject
    return None


def test_all_steps_are_checked_before_the_first_one_starts(tmp_path: Path) -> None:
    masks = {"method": "magnitude", "sparsity": 0.5, "training": {"optimizer": {"name": "adam"}}}
    plan = two_stages(tmp_path, 100, {"prune": masks})
    assert refused(plan, 2600) == "train"  # 1.5 GB and 11.5 copies
    assert refused(plan, 2800) == "prune"  # with two slots 13.5
    assert refused(plan, 2800, {"train"}) is None
    assert refused(plan, 2900) is None


def test_the_hint_names_a_group_that_is_large_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HostMemory, "limit_bytes", lambda self: 2500 * MB)
    step = job(tmp_path, 100, epochs=0)
    with pytest.raises(ResourceError) as caught:  # 2.55 GB and the margin; 2.3 GB are left of 2.5
        within_host(step, group_bytes=2300 * MB)
    assert caught.value.hint == "give it 2.59 GB"
    assert within_host(step, group_bytes=2300 * MB + 90 * MB)


def test_what_earlier_steps_make_smaller_is_checked_in_its_turn(tmp_path: Path) -> None:
    plan = two_stages(tmp_path, 100, {"prune": {"method": "channels", "ratio": 0.5}})
    assert refused(plan, 2500, {"prune"}) == "prune"
    plan = two_stages(tmp_path, 100, {"distill": {"student": {"width": 0.5}}})
    assert refused(plan, 1900, {"distill"}) == "distill"  # 1.5 GB and 5 copies of its teacher
    assert refused(plan, 2100, {"distill"}) is None


def test_a_tflite_file_counts_for_fewer_copies(tmp_path: Path) -> None:
    step = job(tmp_path, 100, epochs=0)
    (tmp_path / "model.h5").rename(tmp_path / "model.tflite")
    given = {"model": ModelSource(kind="tflite", path=tmp_path / "model.tflite")}
    with pytest.raises(ResourceError, match=r"needs about 2\.25 GB"):  # 1.4 GB and 8.5 copies
        within_host(replace(step, inputs=given), group_bytes=2000 * MB)
    assert within_host(replace(step, inputs=given), group_bytes=2100 * MB)


def test_runs_at_the_same_time_share_what_the_group_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shrink.run.host_plan.group_left_bytes", lambda: 7000 * MB)
    monkeypatch.setattr(HostMemory, "limit_bytes", lambda self: 8000 * MB)
    step = job(tmp_path, 1)
    limits = {}
    for runs in ("", "1", "2", "4"):
        monkeypatch.setenv(host.HOST_SHARED_BY, runs)
        limits[runs] = within_host(step).training["host_memory_limit"]
    assert limits == {"": 6700 * MB, "1": 6700 * MB, "2": 4000 * MB, "4": 2200 * MB}


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5")
@pytest.mark.parametrize("ending", ["keras", "h5"])
def test_weights_bytes_leaves_out_the_optimizer(ending: str, tmp_path: Path) -> None:
    layers = [keras.layers.Dense(1024), keras.layers.Dense(1024)]
    model = keras.Sequential([keras.layers.Input((256,)), *layers])
    model.compile("adam", "mse")
    model.fit(np.zeros((4, 256), np.float32), np.zeros((4, 1024), np.float32), verbose=0)
    path = tmp_path / f"m.{ending}"
    model.save(path)
    kernels = 4 * model.count_params()
    assert path.stat().st_size > 3 * kernels
    assert kernels <= weights_bytes(path) <= 1.02 * kernels


def test_weights_bytes_of_what_cannot_be_read_is_its_size(tmp_path: Path) -> None:
    (tmp_path / "m.keras").write_bytes(b"no archive" * 500_000)
    assert weights_bytes(tmp_path / "m.keras") == 5_000_000
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "a").write_bytes(b"123")
    assert weights_bytes(tmp_path / "saved") == 3
    assert weights_bytes(tmp_path / "none.h5") == 0
