"""What a dry run prints, and how long the last stage of a kind took."""

from __future__ import annotations

from pathlib import Path

import pytest

from shrink.engine.config import TrainingConfig
from shrink.recipe.plan import Step
from shrink.run.preview import (
    PreviewRow,
    keep_duration,
    last_duration_s,
    preview_lines,
    total_line,
)
from shrink.run.store import Store
from shrink.stages.prune.config import PruneConfig


def prune(method: str) -> Step:
    how_much = {"sparsity": 0.5} if method == "magnitude" else {"ratio": 0.5}
    config = PruneConfig.model_validate({"method": method, **how_much})
    return Step(1, "prune", "prune", config, TrainingConfig(), {}, "baseline", "keras")


def test_the_last_duration_is_of_the_same_kind_and_method(tmp_path: Path) -> None:
    store = Store(tmp_path, warn=lambda text: pytest.fail(text))
    assert last_duration_s(prune("magnitude"), store) is None
    for seconds in (5.0, 7.5):
        keep_duration(prune("magnitude"), seconds, store)
    keep_duration(prune("channels"), 40.0, store)
    assert last_duration_s(prune("magnitude"), store) == 7.5
    assert last_duration_s(prune("channels"), store) == 40.0
    for path in (tmp_path / "timings").iterdir():
        path.write_text("no JSON")
    assert last_duration_s(prune("channels"), store) is None


def test_a_preview_sums_the_last_durations_of_what_is_computed() -> None:
    rows = [
        PreviewRow(name="train", status="cached", why="in the cache", last_s=99.0),
        PreviewRow(name="prune", status="compute", why="new", last_s=10.0),
        PreviewRow(name="q", status="compute", why="new"),
    ]
    assert list(preview_lines(rows)) == [
        "train  cached   in the cache",
        "prune  compute  new (the last of its kind took 10.0 s)",
        "q      compute  new",
    ]
    assert total_line(rows[:2]) == (
        "to compute: 1 stage; the last of their kinds took 10.0 s together"
    )
    assert total_line(rows) == (
        "to compute: 2 stages; the last of their kinds took 10.0 s together,"
        " without 1 of a new kind"
    )
    assert total_line(rows[2:]) == (
        "to compute: 1 stage; none of this kind was computed on this machine before"
    )
    assert total_line(rows[:1]) == "nothing to compute"
