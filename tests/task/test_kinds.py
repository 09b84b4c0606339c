"""What kind of task it is, by the data and by what a model gives."""

from __future__ import annotations

from typing import Any

import pytest

from shrink.base.losses import DETECTION, kind_of_loss
from shrink.base.metrics import METRICS
from shrink.data.config import DataConfig
from shrink.data.opening import open_dataset
from shrink.recipe.bundle import bundled_root
from shrink.task.kinds import PROPOSED, kind_of_task, proposed_metrics
from shrink.task.task import OutputTask

ENTROPY, BINARY = "sparse_categorical_crossentropy", "binary_crossentropy"


def output(loss: str, *shape: int) -> OutputTask:
    return OutputTask("y", loss, "data", "", None, None, None, shape)


@pytest.mark.parametrize(
    ("data", "outputs", "kind"),
    [
        ({"source": "digits"}, [output(ENTROPY, 10)], "classes"),
        ({"source": "audio", "path": "clips"}, [output(ENTROPY, 5)], "clips"),
        ({"source": "digits"}, [output(ENTROPY, 7, 10)], "sequences"),
        ({"source": "masks", "path": "scenes"}, [output(ENTROPY, 48, 48, 11)], "masks"),
        ({"source": "digits"}, [output(BINARY, 48, 48, 1)], "masks"),
        ({"source": "digits"}, [output(BINARY, 4)], "labels"),
        ({"source": "digits"}, [output("mean_squared_error", 4)], "values"),
        ({"source": "text", "path": "t.csv"}, [output(ENTROPY, 5)], "texts"),
        ({"source": "series", "path": "s.csv"}, [output("mean_absolute_error", 12)], "forecast"),
        ({"source": "digits", "target": "input"}, [output(ENTROPY, 8, 8, 1)], "reconstruction"),
        ({"source": "digits"}, [output(ENTROPY, 3), output(BINARY, 1)], "several"),
    ],
)
def test_kind_of_task(data: dict[str, Any], outputs: list[OutputTask], kind: str) -> None:
    assert kind_of_task(DataConfig.model_validate(data), outputs) == kind


@pytest.mark.parametrize(
    ("slices", "metrics"),
    [
        (["condition"], ("anomaly_roc_auc_normal", "mean_squared_error")),
        (["fault"], ("anomaly_roc_auc_normal", "mean_squared_error")),
        (None, ()),
    ],
)
def test_anomalies_are_ranked_where_a_slice_is_all_that_is_trained_on(
    slices: list[str] | None, metrics: tuple[str, ...]
) -> None:
    audio = {"sample_rate": 2_000, "seconds": 0.1, "bands": 4}
    path = f"{bundled_root()}/recipes/data/machine.py:examples"
    section = {
        "source": "python", "path": path, "target": "input", "audio": audio, "slices": slices,
    }  # fmt: skip
    data = DataConfig.model_validate(section)
    assert proposed_metrics("reconstruction", data, open_dataset(data, seed=0)) == metrics


def test_proposed_metrics_go_with_the_losses_of_their_kind() -> None:
    losses = {
        "masks": ENTROPY,
        "clips": ENTROPY,
        "texts": ENTROPY,
        "forecast": "mean_squared_error",
        "boxes": DETECTION,
    }
    assert PROPOSED.keys() == losses.keys()
    for kind, metrics in PROPOSED.items():
        assert all(kind_of_loss(losses[kind]) in METRICS[name].kinds for name in metrics)
