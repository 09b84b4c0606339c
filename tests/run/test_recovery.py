"""Runs whose worker is killed while it trains: completed, or given up, as the contract says."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from tests.run.dying import DyingRun, hash_of_weights

UPDATES = 60
STAGES = ("train", "distill", "prune")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> DyingRun:
    run = DyingRun(tmp_path_factory.mktemp("undisturbed"))
    run.write([])
    assert run.run().returncode == 0
    assert run.training["oom_events"] == []
    return run


def check_same_curve(run: DyingRun, undisturbed: DyingRun) -> None:
    """Everything but the micro-batch is as it would have been, up to rounding."""
    given, wanted = run.training, undisturbed.training
    for key in ("global_batch_size", "updates", "epochs"):
        assert given[key] == wanted[key]
    assert given["history"].keys() == wanted["history"].keys()
    # A prediction at the edge may tip over with rounding: the curve of the loss is compared.
    for name in ("loss", "val_loss"):
        assert given["history"][name] == pytest.approx(wanted["history"][name], rel=1e-3)


def test_run_completes_when_its_worker_is_killed(undisturbed: DyingRun, tmp_path: Path) -> None:
    run = DyingRun(tmp_path)
    run.write([30])
    done = run.run()
    assert done.returncode == 0, done.stderr
    assert "trying again with a micro-batch of 32" in done.stderr
    events = run.training["oom_events"]
    assert events == [
        {"step": 29, "micro_batch_size": 64, "evidence": "suspected: killed by SIGKILL"}
    ]
    assert run.training["oom_retries"] == 1
    assert (run.training["micro_batch_size"], run.training["accumulation_steps"]) == (32, 2)
    check_same_curve(run, undisturbed)
    assert list((tmp_path / "store" / "checkpoints").iterdir()) == []


def test_run_gives_up_when_its_worker_always_dies(tmp_path: Path) -> None:
    run = DyingRun(tmp_path)
    run.write(["always"], "SIGABRT", batch=2)
    done = run.run()
    assert done.returncode == 4, done.stderr
    assert done.stderr.count("trying again") == 1
    assert "at a micro-batch of 1" in done.stderr


@pytest.mark.slow
def test_run_ends_bitwise_the_same_when_killed_in_every_stage(tmp_path: Path) -> None:
    folders = [tmp_path / "undisturbed", tmp_path / "killed"]
    for folder in folders:
        folder.mkdir()
        DyingRun(folder).write_chain()
    undisturbed, run = map(DyingRun, folders)
    assert undisturbed.run().returncode == 0
    seen: set[str] = set()
    for _ in STAGES:
        assert run.run_until_a_new_checkpoint(seen) == -signal.SIGKILL
    done = run.run()
    assert done.returncode == 0, done.stderr
    for number, name in enumerate(STAGES):
        given, wanted = (f / "out" / "artifacts" / f"0{number}-{name}.keras" for f in folders)
        assert hash_of_weights(given) == hash_of_weights(wanted), name
        assert any("continued from a checkpoint" in note for note in run.notes(name)), name


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_run_completes_when_killed_at_random_steps(
    undisturbed: DyingRun, tmp_path: Path, seed: int
) -> None:
    choose = random.Random(seed)
    place, by = choose.randint(1, UPDATES), choose.choice(["SIGKILL", "SIGSEGV", "SIGABRT"])
    run = DyingRun(tmp_path)
    run.write([place], by)
    done = run.run()
    assert done.returncode == 0, done.stderr
    (event,) = run.training["oom_events"]
    assert (event["step"], event["micro_batch_size"]) == (place - 1, 64)
    check_same_curve(run, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("onednn", ["0", "1"])
def test_run_completes_when_the_allocator_refuses(tmp_path: Path, onednn: str) -> None:
    run = DyingRun(tmp_path)
    run.write_convolutional()
    done = run.run_with(
        {
            "TF_CPU_ALLOCATOR_USE_BFC": "true",
            "TF_CPU_BFC_MEM_LIMIT_IN_MB": "300",
            "TF_ENABLE_ONEDNN_OPTS": onednn,
        }
    )
    assert done.returncode == 0, done.stderr
    training = run.training
    assert training["oom_retries"] == len(training["oom_events"]) >= 1
    assert training["global_batch_size"] == 512
    sizes = [event["micro_batch_size"] for event in training["oom_events"]]
    assert sizes == [512 >> k for k in range(len(sizes))]
    assert training["micro_batch_size"] == 512 >> len(sizes)
