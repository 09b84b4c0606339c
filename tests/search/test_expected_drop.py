"""What training leaves to be learnt again, by what recipes say, beside the formula by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from shrink.base.foreign import Json
from shrink.contract.report import DataSet
from shrink.search.asking import Asking
from shrink.search.candidates import Candidates
from shrink.search.expected_drop import Taught, guess_of, taught_by
from shrink.search.space import Chain, Space
from tests.search.fake import FakeAttempt, search

CLASSES = tuple("abcdefghij")


@pytest.mark.parametrize(
    ("metric", "guess"),
    [
        ("accuracy", 0.1),
        ("balanced_accuracy", 0.1),
        ("roc_auc", 0.5),
        ("f1", 0.0),
        ("mean_iou", 0.0),
        ("rmse", None),  # less is better, and nothing says how much a guess has
        ("r2", None),
        ("own_score", None),
    ],
)
def test_guess_of_a_metric(metric: str, guess: float | None) -> None:
    assert guess_of(metric, CLASSES) == guess


def test_nothing_is_expected_where_classes_or_examples_are_not_known() -> None:
    assert guess_of("accuracy", ()) is None
    assert taught_by(None, "accuracy") == taught_by(DataSet(), "accuracy") == Taught()
    data = DataSet(examples={"train": 320, "test": 40}, classes=CLASSES)
    assert taught_by(data, "accuracy") == Taught(320, 0.1)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # 10 updates an epoch, the last of which has fewer examples.
        ({"prune.parameters": 0.5, "prune.epochs": 0}, 0.5**2),
        ({"prune.parameters": 0.5, "prune.epochs": 3}, 0.5**2 * math.exp(-0.15)),
        ({"prune.parameters": 0.2, "prune.epochs": 10}, 0.8**2 * math.exp(-0.5)),
    ],
)
def test_what_pruning_leaves_to_be_learnt(
    settings: dict[str, Json], expected: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    plan = search(tmp_path, Asking(trials=1), FakeAttempt()).candidates.plan(settings)
    examples = 10 * plan.steps[-1].training.global_batch_size - 3
    assert Taught(examples, 0.1).unlearnt(plan) == pytest.approx(expected, rel=1e-9)
    assert Taught(examples, None).unlearnt(plan) == Taught(0, 0.1).unlearnt(plan) == 0.0


@pytest.mark.parametrize(
    ("student", "expected"),
    [({"width": 0.5}, 1.0), ({"width": 0.5, "inherit": True}, 1 - 0.25**2)],
)
def test_what_a_student_has_to_learn(
    student: dict[str, Json], expected: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of random weights everything; cut from its teacher what the channels knew that went."""
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    candidates = search(tmp_path, Asking(trials=1), FakeAttempt()).candidates
    stages: list[Json] = [
        {"train": {"epochs": 1}},
        {"distill": {"student": student, "epochs": 2}},
        {"prune": {"method": "magnitude", "sparsity": 0.5, "epochs": 1}},
    ]
    chain = Chain("c", tuple(stages), {}, ({},))
    candidates = Candidates(candidates.raw, candidates.source, Space((chain,)))
    plan = candidates.plan({"chain": "c"})
    examples = 5 * plan.steps[-1].training.global_batch_size
    behind = expected * math.exp(-0.05)
    behind = (1 - (1 - behind) * (1 - 0.25)) * math.exp(-0.025)
    assert Taught(examples, 0.1).unlearnt(plan) == pytest.approx(behind, rel=1e-9)
