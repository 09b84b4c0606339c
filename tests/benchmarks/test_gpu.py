"""The checks of a GPU: on one with `-m gpu`, and what of them needs no card everywhere.

Run on a machine with a GPU: python -m pytest -m gpu -p no:xdist -o addopts=""
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

from shrink.data.pipeline import training_batches
from tests.benchmarks import gpu
from tests.benchmarks.architectures import build, specs
from tests.benchmarks.gpu import Bench, Row
from tests.benchmarks.gpu_scenarios import RandomExamples

NO_CARD = {"tensorflow": "2.21.0", "cuda": "12.5.1", "cudnn": "9", "gpus": []}


@pytest.fixture(scope="module")
def bench() -> Bench:
    found = Bench(seconds=1800)
    if not found.call("devices")["gpus"]:
        pytest.skip("TensorFlow sees no GPU")
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("check", gpu.CHECKS, ids=lambda check: check.__name__)
def test_checks_are_met_on_a_gpu(check: Callable[[Bench], list[Row]], bench: Bench) -> None:
    rows = check(bench)
    assert rows
    assert [row for row in rows if row.is_met is False] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "check",
    [
        *(gpu.exactness, gpu.logical_gpus, gpu.two_gpus, gpu.out_of_memory, gpu.fragmentation),
        gpu.overhead,
    ],
    ids=lambda check: check.__name__,
)
def test_checks_are_rehearsed_on_a_cpu(check: Callable[[Bench], list[Row]]) -> None:
    rows = check(Bench(seconds=1800, cpu=True))
    assert [row for row in rows if row.is_met is False] == []


@pytest.mark.parametrize("name", ["conv", "two_tower", "autoencoder"])
def test_the_checks_read_their_examples(name: str) -> None:
    model = build(name)
    examples = RandomExamples(*specs(name, model), 4)
    batches = training_batches(examples, global_batch_size=4, seed=0, first_step=0, last_step=1)
    ((x, _),) = batches
    assert [output.shape[0] for output in tf.nest.flatten(model(x))] == [4] * len(model.outputs)


def test_without_a_card_there_are_no_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Bench, "call", lambda self, function, **more: NO_CARD)
    assert gpu.main(["--output", str(tmp_path / "gpu.md")]) == 5
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "sees no GPU" in shown.err
    assert "[gpu]" in shown.err
    assert not (tmp_path / "gpu.md").exists()
