"""What counts as running out of memory, and what remains of it."""

from __future__ import annotations

import pytest
import tensorflow as tf

from shrink.engine.recovery import evidence_of, is_out_of_memory, needs_fresh_process
from tests.engine._run import run_in_fresh_process
from tests.forks import call


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor"), True),
        (tf.errors.InternalError(None, None, "Dst tensor is not initialized."), True),
        (tf.errors.InternalError(None, None, "CUDA_ERROR_OUT_OF_MEMORY: out of memory"), True),
        (tf.errors.InternalError(None, None, "no algorithm worked"), False),
        (tf.errors.InvalidArgumentError(None, None, "shapes differ"), False),
    ],
)
def test_is_out_of_memory_knows_the_allocators_words(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


@pytest.mark.parametrize("first", ["Collective ops is aborted by: ", "CUDA_ERROR_ASSERT after "])
def test_is_out_of_memory_denies_what_only_another_process_can_continue(first: str) -> None:
    message = first + "OOM when allocating tensor with shape[256,64,112,112]"
    error = tf.errors.ResourceExhaustedError(None, None, message)
    assert not is_out_of_memory(error)
    assert needs_fresh_process(error)


@pytest.mark.parametrize("late", [0.0, 1.0])
def test_train_recovers_when_one_of_two_replicas_runs_out_of_memory(late: float) -> None:
    result = call("tests.engine._scenarios", "one_replica_fails", late=late)
    assert result["failed"] == [1]
    assert result["micro_batch_sizes"] == [12]
    assert (result["updates"], result["final"]) == (6, 6)


def test_evidence_of_is_the_line_about_memory() -> None:
    error = tf.errors.ResourceExhaustedError(
        None,
        None,
        'Graph error:\n File "memory.py"\n OOM when allocating tensor with shape[9]\nmore',
    )
    assert evidence_of(error) == "OOM when allocating tensor with shape[9]"
    assert evidence_of(MemoryError()) == "MemoryError"


@pytest.mark.slow
def test_train_halves_the_micro_batch_when_the_allocator_refuses() -> None:
    result = run_in_fresh_process(
        "tests.engine._scenarios",
        "refused_by_the_allocator",
        environment={
            "TF_CPU_ALLOCATOR_USE_BFC": "true",
            "TF_CPU_BFC_MEM_LIMIT_IN_MB": "85",
            "TF_ENABLE_ONEDNN_OPTS": "0",
        },
    )
    assert result["micro_batch_size"] == 128
    assert result["updates"] == 2
    assert "OOM" in result["evidence"][0]
    assert result["accumulation_steps"] * result["micro_batch_size"] == 256
