"""What recipes leave of a file, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shrink.base.yaml import loads
from shrink.recipe.load import RawRecipe, validated
from shrink.recipe.plan import Plan, build_plan
from shrink.search.expected_size import expected_share, fixed_part


def plan_of(root: Path, *stages: str) -> Plan:
    (root / "model.py").write_text("def build():\n    return 1\n", encoding="utf-8")
    text = "".join(f"  - {one}\n" for one in ("train: {epochs: 1}", *stages))
    value: Any = loads(f"name: r\nmodel: m\ndata: {{source: digits}}\nstages:\n{text}", "r").value
    value["model"] = str(root / "model.py:build")
    return build_plan(validated(RawRecipe(value, {}, {}), Path("r")))


@pytest.mark.parametrize(
    ("stages", "share"),
    [
        (["quantize: {scheme: float32}"], 1.0),
        (["quantize: {scheme: float16}"], 1 / 2),
        (["quantize: {scheme: int8}"], 1 / 4),
        (["quantize: {scheme: dynamic_wi4_afp32}"], 1 / 8),
        (["distill: {student: {width: 0.5}, epochs: 1}", "quantize: {scheme: int8}"], 1 / 16),
        (["prune: {method: channels, parameters: 0.3}", "quantize: {scheme: float16}"], 0.15),
        (["prune: {method: channels, macs: 0.3}", "quantize: {scheme: float16}"], 0.15),
        (["prune: {method: channels, ratio: 0.5}"], 1 / 4),
        (["prune: {sparsity: 0.8, epochs: 1}", "quantize: {scheme: int8}"], 1 / 4),
        (["prune: {sparsity: 0.8, epochs: 1}", "quantize: {scheme: int8, sparse: true}"], 0.05),
        (
            [
                "prune: {method: channels, parameters: 0.25, epochs: 0}",
                "distill: {epochs: 1}",
                "quantize: {scheme: int8}",
            ],
            1 / 16,
        ),
    ],
)
def test_expected_share_follows_what_the_keys_mean(
    tmp_path: Path, stages: list[str], share: float
) -> None:
    assert expected_share(plan_of(tmp_path, *stages)) == pytest.approx(share)


@pytest.mark.parametrize("fixed", [0.0, 0.03, 0.15, 1.0])
def test_fixed_part_is_found_where_files_have_one(fixed: float) -> None:
    shares = [1.0, 0.25, 0.125, 0.04]
    assert fixed_part([300_000 * (share + fixed) for share in shares], shares) == fixed


def test_a_figure_that_no_share_changes_is_all_fixed() -> None:
    assert fixed_part([5_000.0, 5_001.0, 4_999.0], [1.0, 0.25, 0.125]) == 10.0
