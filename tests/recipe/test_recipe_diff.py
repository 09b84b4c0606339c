from __future__ import annotations

from typing import Any

from tests.report.plain import change_lines, diff_reports, recipe_changes, render_diff_markdown
from tests.report.toys import report

A = """
model: /a/net.h5
training: {seed: 0, optimizer: {name: adam}}
stages:
- prune: {ratio: 0.3, exclude: [first]}
- quantize: {scheme: float16}
- quantize: {name: small, scheme: mixed}
"""


def built(recipe: str | None) -> dict[str, Any]:
    return report() | {"resolved_recipe": recipe}


def test_recipe_changes_names_keys_and_matches_stages_by_name() -> None:
    other = A.replace("ratio: 0.3", "ratio: 0.5").replace("seed: 0, ", "")
    other = other.replace("stages:\n", "stages:\n- train: {epochs: 3}\n").replace("/a/", "/b/")
    other = other.replace("scheme: mixed", "scheme: mixed, file_bytes: 9")
    assert recipe_changes(built(A), built(other)) == [
        {"key": "training.seed", "a": "0", "b": "-"},
        {"key": "stages.prune.ratio", "a": "0.3", "b": "0.5"},
        {"key": "stages.train.epochs", "a": "-", "b": "3"},
        {"key": "stages.small.file_bytes", "a": "-", "b": "9"},
    ]


def test_diff_shows_what_the_recipes_say_differently() -> None:
    before, after = built(A), built(A.replace("float16", "float32"))
    diff = diff_reports(before, after, recipe_changes(before, after))
    text = render_diff_markdown(diff)
    assert "## recipe\n\n- stages.quantize.scheme: float16 in A, float32 in B" in text


def test_recipe_changes_leave_out_what_the_defaults_say_anyway() -> None:
    stages = "- prune: {name: s50, method: channels, macs: 0.5, rebuild: true, sparsity: 0.5}"
    changes = recipe_changes(built(A), built(f"{A}{stages}\n"))
    assert {change["key"]: change["b"] for change in changes} == {
        "stages.s50.kind": "prune",
        "stages.s50.method": "channels",
        "stages.s50.macs": "0.5",
    }
    assert change_lines(changes) == ["stages.s50, only in B: kind prune, method channels, macs 0.5"]


def test_changes_do_not_name_the_limit_that_a_gate_with_a_ratio_does_not_use() -> None:
    gates = "gates:\n  macs: {limit: 0, ratio: 0.98}\n  loss: {limit: 0, against: a.json}\n"
    assert change_lines(recipe_changes(built(A), built(A + gates))) == [
        "gates.macs, only in B: ratio 0.98",
        "gates.loss, only in B: limit 0, against a.json",
    ]
