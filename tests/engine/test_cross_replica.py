"""The loop outside of the replicas, synchronised batch normalisation, and masked losses."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.engine._cross_replica import COUNT, EPOCHS
from tests.forks import call

EXACT = 1e-12


@cache
def run(*scenarios: str) -> dict[str, Any]:
    return dict(
        call("tests.engine._cross_replica", "run_all", replicas=2, scenarios=list(scenarios))
    )


def test_sum_over_replicas_splits_what_is_large() -> None:
    # Two replicas, with an operation each.
    assert run("packs")["packs"] == {"one": 2, "two": 4}


def results() -> dict[str, Any]:
    return run("loop", "local_statistics", "synchronized", "masked")


def slow_results() -> dict[str, Any]:
    return run("in_micro_batches", "quantized", "two_losses", "recomputing")


def test_cross_replica_update_equals_one_big_batch() -> None:
    result = results()["loop"]
    assert result["difference"] <= EXACT
    assert result["moved"] > 1e-3
    assert (result["updates"], result["accumulation_steps"]) == (6, 3)
    assert result["exact"]


def test_synchronized_statistics_equal_those_of_one_big_batch() -> None:
    result = results()["synchronized"]
    assert result["difference"] <= EXACT
    assert result["exact"]
    assert result["layer_left_alone"]


def test_train_leaves_one_value_of_statistics_that_each_replica_has_of_its_own() -> None:
    result = results()["local_statistics"]
    assert result["difference"] <= 1e-6
    assert result["moved"] > 1e-3
    # Micro-batches may be filled up with examples of weight 0: at least all are seen, once each.
    assert result["seen"][1] == 2 * result["seen"][0] >= 2 * COUNT * EPOCHS


def test_train_counts_masked_losses_by_valid_elements() -> None:
    result = results()["masked"]
    assert result["difference"] <= EXACT
    assert result["moved"] > 1e-3


@pytest.mark.slow
def test_synchronized_statistics_are_named_as_inexact_in_micro_batches() -> None:
    result = slow_results()["in_micro_batches"]
    assert result["finite"]
    assert result["moved"] > 0
    assert not result["exact"]
    assert "per micro-batch of all replicas" in result["reasons"][0]


@pytest.mark.slow
def test_train_goes_through_micro_batches_when_layers_track_quantization_ranges() -> None:
    result = slow_results()["quantized"]
    assert result["updates"] == 6
    assert result["finite"]
    assert result["moved"] > 1e-3
    assert any("quantization ranges" in reason for reason in result["reasons"])


@pytest.mark.slow
def test_train_step_equals_one_big_batch_when_each_output_has_its_own_loss() -> None:
    result = slow_results()["two_losses"]
    assert result["difference"] <= EXACT
    assert result["moved"] > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["per_micro_batch", "synchronized"])
def test_recomputed_gives_the_same_weights_on_two_replicas(mode: str) -> None:
    result = slow_results()["recomputing"]
    assert result[mode] <= EXACT
    assert result[f"{mode} notes"] == []
    assert result["moved"] > 1e-3
