"""What counts as running out of memory, and what remains of it."""

from __future__ import annotations

import pytest
import tensorflow as tf

from shrink.engine.recovery import evidence_of, is_out_of_memory
from tests.engine._run import run_in_fresh_process


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor"), True),
        (tf.errors.InternalError(None, None, "Dst tensor is not initialized."), True),
        (tf.errors.InternalError(None, None, "no algorithm worked"), False),
        (tf.errors.InvalidArgumentError(None, None, "shapes differ"), False),
    ],
)
def test_is_out_of_memory_knows_the_allocators_words(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


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
