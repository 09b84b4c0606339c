"""What a step is refused, or left to train in, by limits that are written down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shrink.base import host
from shrink.base.errors import ResourceError
from shrink.base.host import HostMemory
from shrink.contract.job import StepJob
from shrink.contract.model_source import ModelSource
from shrink.contract.training import Optimizer, Training
from shrink.recipe.load import recipe_from_mapping
from shrink.recipe.plan import Plan, build_plan
from shrink.run.host_needs import needs_of_job, needs_of_plan
from shrink.run.host_plan import (
    LIBRARY_BYTES,
    MODEL_COPIES,
    PROCESS_BYTES,
    TFLITE_COPIES,
    TRAINED_COPIES,
    TRAINING_BYTES,
    check_host,
    host_plan,
    within_host,
)

MB = 1_000_000


def job(folder: Path, megabytes: int, *, epochs: int = 1, **training: Any) -> StepJob:
    path = folder / "model.h5"
    with path.open("wb") as stream:
        stream.truncate(megabytes * MB)
    return StepJob(
        name="train",
        kind="train",
        epochs=epochs,
        training=Training(**training),
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
    needed = PROCESS_BYTES + MODEL_COPIES * 100 * MB
    assert needed == 2550 * MB
    with pytest.raises(
        ResourceError, match=r"needs about 2\.55 GB .* leaves it 2\.50 GB"
    ) as caught:
        within_host(step)
    assert caught.value.exit_code == 5
    assert caught.value.subject == "train"
    assert within_host(replace(step, training=Training(host_memory_limit=2551 * MB)))


def test_a_control_group_refuses_with_a_margin(tmp_path: Path) -> None:
    step = job(tmp_path, 100, epochs=0)
    with pytest.raises(ResourceError, match=r"the control group leaves it 2\.47 GB"):
        within_host(step, group_bytes=2300 * MB)
    assert within_host(step, group_bytes=2400 * MB).training.host_memory_limit == 2560 * MB


def test_a_container_of_2_gb_runs_small_models(tmp_path: Path) -> None:
    """What is left there once the light half and the preloaded process are in it."""
    for epochs in (0, 1):
        assert within_host(job(tmp_path, 1, epochs=epochs), group_bytes=1300 * MB)


def test_the_tighter_of_two_limits_counts(tmp_path: Path) -> None:
    step = job(tmp_path, 1, host_memory_limit=3000 * MB)
    plan = host_plan(needs_of_job(step), group_bytes=2000 * MB)
    assert plan is not None
    assert plan.limit_bytes == 2200 * MB


@pytest.mark.parametrize(("name", "slots"), [("sgd", 0), ("adagrad", 1), ("adam", 2)])
def test_training_gets_what_the_process_leaves(tmp_path: Path, name: Any, slots: int) -> None:
    step = job(tmp_path, 10, host_memory_limit=2000 * MB, optimizer=Optimizer(name=name))
    # All but the process and the copies of a conversion; weights and slots count to the limit.
    left = 2000 * MB - PROCESS_BYTES - TRAINING_BYTES - MODEL_COPIES * 10 * MB + 10 * MB
    assert within_host(step).training.memory_limit == left, slots
    smaller = replace(step, training=replace(step.training, memory_limit=64 * MB))
    assert within_host(smaller).training.memory_limit == 64 * MB


def test_a_roomy_group_changes_nothing_for_a_small_model(tmp_path: Path) -> None:
    training = within_host(job(tmp_path, 1), group_bytes=16_000 * MB).training
    assert training.memory_limit is None
    assert training.host_memory_limit == 14_800 * MB


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


def test_all_steps_are_looked_at_before_the_first_one_starts(tmp_path: Path) -> None:
    plan = two_stages(tmp_path, 100, {"prune": {"method": "magnitude", "sparsity": 0.5}})
    train, prune = needs_of_plan(plan, plan.steps)[-2:]
    assert (train.weights_bytes, prune.weights_bytes) == (100 * MB, 100 * MB)
    enough = PROCESS_BYTES + TRAINING_BYTES + MODEL_COPIES * 100 * MB
    left = round((enough - LIBRARY_BYTES) / 0.9)
    check_host([train], group_bytes=left + MB)
    # With Adam and masks, 13 copies and what is beside them.
    enough += (TRAINED_COPIES + 13 - MODEL_COPIES) * 100 * MB
    more = round((enough - LIBRARY_BYTES) / 0.9)
    with pytest.raises(ResourceError) as caught:
        check_host([train, prune], group_bytes=more - MB)
    assert caught.value.subject == "prune"
    check_host([train, prune], group_bytes=more + MB)


def test_training_gets_what_an_update_takes_where_it_is_given_back_before_conversions(
    tmp_path: Path,
) -> None:
    needed = PROCESS_BYTES + TRAINING_BYTES + (TRAINED_COPIES + 11) * 100 * MB
    step = job(tmp_path, 100, host_memory_limit=round(needed) + MB)
    assert within_host(step).training.memory_limit == 1100 * MB  # 11 copies, with Adam
    with pytest.raises(ResourceError, match="the step needs about"):
        within_host(replace(step, training=Training(host_memory_limit=round(needed) - MB)))


def test_the_hint_names_a_group_that_is_large_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HostMemory, "limit_bytes", lambda self: 2500 * MB)
    step = job(tmp_path, 100, epochs=0)
    with pytest.raises(ResourceError) as caught:  # 2.55 GB and the margin; 2.3 GB are left of 2.5
        within_host(step, group_bytes=2300 * MB)
    assert caught.value.hint == "give it 2.59 GB"
    assert within_host(step, group_bytes=2300 * MB + 90 * MB)


def test_what_earlier_steps_make_smaller_is_looked_at_in_its_turn(tmp_path: Path) -> None:
    plan = two_stages(tmp_path, 100, {"prune": {"method": "channels", "ratio": 0.5}})
    assert [one.weights_bytes for one in needs_of_plan(plan, plan.steps)[-2:]] == [100 * MB] * 2
    plan = two_stages(tmp_path, 100, {"distill": {"student": {"width": 0.5}}})
    needs = needs_of_plan(plan, plan.steps)[-1]
    assert (needs.weights_bytes, needs.teachers_bytes) == (0, 100 * MB)
    assert [one.name for one in needs_of_plan(plan, plan.steps[-1:])] == ["distill"]


def test_a_tflite_file_counts_for_fewer_copies(tmp_path: Path) -> None:
    step = job(tmp_path, 100, epochs=0)
    (tmp_path / "model.h5").rename(tmp_path / "model.tflite")
    given = {"model": ModelSource(kind="tflite", path=tmp_path / "model.tflite")}
    needs = needs_of_job(replace(step, inputs=given))
    assert (needs.weights_bytes, needs.tflite_bytes) == (0, 100 * MB)
    plan = host_plan(needs, group_bytes=8000 * MB)
    assert plan is not None
    assert plan.fixed_bytes == PROCESS_BYTES + TFLITE_COPIES * 100 * MB


def test_runs_at_the_same_time_share_what_the_group_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shrink.run.host_plan.group_left_bytes", lambda: 7000 * MB)
    monkeypatch.setattr(HostMemory, "limit_bytes", lambda self: 8000 * MB)
    needs = needs_of_job(job(tmp_path, 1))
    limits = {}
    for runs in ("", "1", "2", "4"):
        monkeypatch.setenv(host.HOST_SHARED_BY, runs)
        plan = host_plan(needs)
        assert plan is not None
        limits[runs] = plan.limit_bytes
    assert limits == {"": 6700 * MB, "1": 6700 * MB, "2": 4000 * MB, "4": 2200 * MB}
