"""What training leaves to be learnt again, by what recipes say, beside the formula by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from shrink.base.foreign import Json
from shrink.contract.report import DataSet
from shrink.search.asking import Asking
from shrink.search.candidates import Candidates
from shrink.search.relearning import Relearning, guess_of, relearning_on
from shrink.search.space import Chain, Space
from tests.search.fake import FakeAttempt, search

CLASSES = tuple("abcdefghij")


@pytest.mark.parametrize(
    ("metric", "guess"),
    [
        ("accuracy", 0.1),
        ("balanced_accuracy", 0.1),
        ("roc_auc", 0.5),
        ("map", 0.0),
        ("f1", None),  # of a guess by the shares of classes, which nobody knows here
        ("top5_accuracy", None),
        ("rmse", None),
        ("own_score", None),
    ],
)
def test_guess_of_a_metric(metric: str, guess: float | None) -> None:
    assert guess_of(metric, CLASSES) == guess


def test_nothing_is_expected_where_classes_or_examples_are_not_known() -> None:
    assert guess_of("accuracy", ()) is None
    assert relearning_on(None, "accuracy") == relearning_on(DataSet(), "accuracy") == Relearning()
    data = DataSet(examples={"train": 320, "test": 40}, classes=CLASSES)
    assert relearning_on(data, "accuracy") == Relearning(320, 0.1)


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
    assert Relearning(examples, 0.1).behind(plan) == pytest.approx(expected, rel=1e-9)
    assert Relearning(examples, None).behind(plan) == Relearning(0, 0.1).behind(plan) == 0.0


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
    assert Relearning(examples, 0.1).behind(plan) == pytest.approx(behind, rel=1e-9)


def test_branches_are_followed_to_the_last_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two stages from the baseline the last alone counts."""
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    candidates = search(tmp_path, Asking(trials=1), FakeAttempt()).candidates
    base = {"train": {"epochs": 1}}
    cuts: list[Json] = [
        {"prune": {"name": str(n), "from": "train", "method": "channels", "parameters": left}}
        for n, left in (("half", 0.5), ("most", 0.8))
    ]
    chain = Chain("c", (base, *cuts), {}, ({},))
    candidates = Candidates(candidates.raw, candidates.source, Space((chain,)))
    plan = candidates.plan({"chain": "c"})
    epochs = plan.steps[-1].epochs
    examples = plan.steps[-1].training.global_batch_size
    expected = 0.2**2 * math.exp(-epochs / 200)
    assert Relearning(examples, 0.1).behind(plan) == pytest.approx(expected, rel=1e-9)
