"""Plans: baselines, names, branches, orders that make no sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shrink.base.errors import ModelError, RecipeError
from shrink.recipe.load import load_recipe, recipe_from_mapping
from shrink.recipe.plan import Plan, build_plan
from shrink.recipe.resolution import recipe_sha256, resolved_recipe


@pytest.fixture(autouse=True)
def _models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("model.keras", "other.h5", "done.tflite", "build.py"):
        (tmp_path / name).write_bytes(b"x")
    monkeypatch.chdir(tmp_path)


def plan(*stages: dict[str, Any], model: str = "build.py:build", **more: Any) -> Plan:
    value = {"name": "r", "model": model, "data": {"source": "digits"}, "stages": list(stages)}
    return build_plan(recipe_from_mapping({**value, **more}, "test"))


def names(built: Plan) -> list[str]:
    return [step.name for step in built.steps]


TRAIN: dict[str, Any] = {"train": {"epochs": 1}}
QUANTIZE: dict[str, Any] = {"quantize": {}}
PRUNE: dict[str, Any] = {"prune": {}}


def test_build_plan_makes_the_first_training_the_baseline() -> None:
    built = plan(TRAIN, QUANTIZE)
    assert names(built) == ["train", "quantize"]
    assert built.baseline.name == "train"
    assert built.finals == ("quantize",)
    assert [(step.index, step.form) for step in built.steps] == [(0, "keras"), (1, "tflite")]


def test_a_file_without_stages_only_evaluates(tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("name: r\nmodel: done.tflite\ndata: {source: digits}\nstages: []\n")
    assert names(build_plan(load_recipe(recipe))) == ["baseline"]
    recipe.write_text("name: r\nmodel: done.tflite\ndata: {source: digits}\n")
    with pytest.raises(RecipeError, match="stages is a list") as error:
        load_recipe(recipe)
    assert "stages: []" in str(error.value.hint)


@pytest.mark.parametrize("model", ["model.keras", "other.h5"])
def test_build_plan_evaluates_a_model_that_comes_trained(model: str) -> None:
    built = plan(PRUNE, QUANTIZE, model=model)
    assert names(built) == ["baseline", "prune", "quantize"]
    assert built.steps[1].previous == "baseline"


def test_build_plan_refuses_an_untrained_builder() -> None:
    with pytest.raises(RecipeError, match="must train it"):
        plan(QUANTIZE)


def test_build_plan_refuses_a_stage_after_quantize() -> None:
    with pytest.raises(RecipeError, match="cannot follow") as caught:
        plan(TRAIN, QUANTIZE, PRUNE)
    assert "from:" in str(caught.value)


def test_build_plan_refuses_pruning_what_is_clustered() -> None:
    with pytest.raises(RecipeError, match="prune cannot keep the clusters") as caught:
        plan(TRAIN, {"cluster": {}}, {"distill": {"student": "cluster", "teacher": "train"}}, PRUNE)
    assert "let prune come first" in str(caught.value)
    built = plan(TRAIN, PRUNE, {"cluster": {}}, QUANTIZE)
    assert built.step("quantize").preserves == ("sparsity", "clusters")


def test_build_plan_branches_with_from() -> None:
    built = plan(TRAIN, QUANTIZE, {"prune": {"from": "train"}}, QUANTIZE)
    assert names(built) == ["train", "quantize", "prune", "quantize-2"]
    assert built.step("prune").previous == "train"
    assert built.finals == ("quantize", "quantize-2")


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ({"prune": {"from": "trian"}}, "no earlier stage"),
        ({"prune": {"name": "train"}}, "two stages"),
        ({"prune": {"name": "training"}}, "cannot be called"),
        ({"distill": {}}, "no student"),
        ({"distill": {"student": "trian"}}, "neither an earlier stage nor a model"),
    ],
)
def test_build_plan_refuses_wrong_names(stage: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        plan(TRAIN, stage)


def test_build_plan_gives_distill_its_models() -> None:
    built = plan(TRAIN, {"distill": {"student": {"width": 0.5}}}, PRUNE, {"distill": {}})
    scaled, recovered = built.step("distill").inputs, built.step("distill-2").inputs
    assert scaled["teacher"].step == "train"
    assert dict(scaled["model"].arguments) == {"width": 0.5}
    assert recovered["teacher"].step == "train"
    assert recovered["model"].step == "prune"


def test_build_plan_cuts_the_student_from_a_model_file() -> None:
    built = plan({"distill": {"student": {"width": 0.5}}}, model="model.keras")
    student = built.step("distill").inputs["model"]
    assert student.step == "baseline"
    assert dict(student.arguments) == {"width": 0.5, "inherit": 0.0}


def test_build_plan_cuts_the_student_from_the_teacher_when_it_inherits() -> None:
    scale = {"depth": 0.5, "inherit": True}
    built = plan(TRAIN, PRUNE, {"distill": {"teacher": "prune", "student": scale}})
    student = built.step("distill").inputs["model"]
    assert student.step == "prune"
    assert dict(student.arguments) == {"depth": 0.5, "inherit": 1.0}
    assert built.step("distill").preserves == ()


def test_resolved_recipe_names_the_files_of_an_ensemble(tmp_path: Path) -> None:
    stage = {"distill": {"teacher": ["train", "other.h5"], "student": {"width": 0.5}}}
    built = plan(TRAIN, stage)
    settings = resolved_recipe(built)["stages"][1]["distill"]
    assert settings["teacher"] == ["train", str(tmp_path / "other.h5")]
    there = plan(TRAIN, {"distill": {**stage["distill"], "teacher": settings["teacher"]}})
    assert recipe_sha256(there) == recipe_sha256(built)


def test_build_plan_hands_claims_down_the_line() -> None:
    built = plan(TRAIN, PRUNE, {"distill": {}}, {"train": {"from": "train", "name": "again"}})
    assert built.step("distill").preserves == ("sparsity",)
    assert built.step("again").preserves == ()


def test_build_plan_merges_a_stages_own_training() -> None:
    stage = {"prune": {"training": {"optimizer": {"learning_rate": 0.5}}}}
    built = plan(TRAIN, stage, training={"optimizer": {"name": "sgd"}})
    assert built.step("prune").training.optimizer.learning_rate == 0.5
    assert [step.training.optimizer.name for step in built.steps] == ["sgd", "sgd"]
    assert built.step("train").training.optimizer.learning_rate != 0.5
    with pytest.raises(RecipeError, match="unknown key"):
        plan(TRAIN, {"prune": {"training": {"optimiser": {}}}})


def test_build_plan_refuses_training_a_tflite_file() -> None:
    with pytest.raises(ModelError, match="cannot start from"):
        plan(PRUNE, model="done.tflite")


def test_build_plan_quantizes_a_tflite_file_but_no_stages_artifact() -> None:
    built = plan(QUANTIZE, model="done.tflite")
    assert [(step.name, step.form) for step in built.steps] == [
        ("baseline", "tflite"),
        ("quantize", "tflite"),
    ]
    with pytest.raises(RecipeError, match="cannot follow quantize"):
        plan(QUANTIZE, {"quantize": {"scheme": "float16"}}, model="done.tflite")


def test_build_plan_compacts_what_was_quantized() -> None:
    compact: dict[str, Any] = {"compact": {}}
    built = plan(TRAIN, QUANTIZE, compact)
    assert [(step.name, step.previous, step.form) for step in built.steps[1:]] == [
        ("quantize", "train", "tflite"),
        ("compact", "quantize", "tflite"),
    ]
    assert built.finals == ("compact",)
    assert names(plan(compact, model="done.tflite")) == ["baseline", "compact"]
    with pytest.raises(RecipeError, match="compact cannot follow train") as caught:
        plan(TRAIN, compact)
    assert "quantize before it" in str(caught.value)
    with pytest.raises(ModelError, match="compact starts from a") as refused:
        plan(compact, model="model.keras")
    assert "quantize before it" in str(refused.value)
    with pytest.raises(RecipeError, match="cannot follow compact"):
        plan(TRAIN, QUANTIZE, compact, {"quantize": {"name": "again"}})


def test_build_plan_refuses_a_gate_on_an_unknown_stage() -> None:
    with pytest.raises(RecipeError, match="no stage is called"):
        plan(TRAIN, gates={"tflite_bytes": {"limit": "1KB", "stage": "prune"}})


WITHOUT_DATA: dict[str, Any] = {"model": "model.keras", "data": {"source": "none"}}
FLOAT16: dict[str, Any] = {"quantize": {"scheme": "float16"}}


def test_build_plan_takes_stages_without_data_that_need_no_examples() -> None:
    stages = (
        {"prune": {"epochs": 0}},
        {"cluster": {"epochs": 0}},
        FLOAT16,
        *({"quantize": {"from": "cluster", "name": s, "scheme": s}} for s in ("float32",)),
        {"quantize": {"from": "cluster", "name": "d", "scheme": "dynamic_wi8_afp32"}},
        {"quantize": {"from": "cluster", "name": "w", "scheme": "weight_only_wi8_afp32"}},
    )
    assert plan(*stages, gates={"tflite_bytes": "1MB"}, **WITHOUT_DATA).data_path is None


@pytest.mark.parametrize(
    ("stage", "why"),
    [
        ({"train": {}}, "train needs examples: it trains"),
        ({"distill": {"student": {"width": 0.5}}}, "distill needs examples: it trains"),
        ({"prune": {}}, "prune needs examples: it trains"),
        ({"prune": {"method": "channels", "ratio": 0.5, "epochs": 0}}, "prune needs examples"),
        ({"cluster": {}}, "cluster needs examples: it trains"),
        ({"quantize": {}}, "it calibrates static_wi8_ai8"),
        ({"quantize": {"scheme": "weight_only_wi4_afp32"}}, "it calibrates weight_only_wi4_afp32"),
        ({"quantize": {"scheme": "mixed", "file_bytes": 9}}, "it calibrates mixed"),
    ],
    ids=str,
)
def test_build_plan_refuses_what_needs_examples_without_data(
    stage: dict[str, Any], why: str
) -> None:
    with pytest.raises(RecipeError, match=f"no data was named, and .*{why}") as caught:
        plan(stage, **WITHOUT_DATA)
    schemes = "schemes that need none: float32, float16, dynamic_wi8_afp32, weight_only_wi8_afp32"
    assert (schemes in str(caught.value.hint)) == ("quantize" in stage)


@pytest.mark.parametrize("gate", ["accuracy", "accuracy_drop", "loss_rise"])
def test_build_plan_refuses_a_gate_on_a_metric_without_data(gate: str) -> None:
    with pytest.raises(RecipeError, match=f"gate {gate}: metrics are not measured"):
        plan(FLOAT16, gates={gate: 0.1}, **WITHOUT_DATA)


def test_build_plan_refuses_to_evaluate_without_data() -> None:
    value = {"name": "r", **WITHOUT_DATA}
    with pytest.raises(RecipeError, match="nothing to evaluate on: no data was named"):
        build_plan(recipe_from_mapping(value, "test"))
    sizes = {"tflite_bytes": "1MB", "arena_bytes": "64KiB"}
    assert build_plan(recipe_from_mapping({**value, "gates": sizes}, "test")).data_path is None
    with pytest.raises(RecipeError, match="gate accuracy: metrics are not measured"):
        build_plan(recipe_from_mapping({**value, "gates": sizes | {"accuracy": 0.9}}, "test"))


def test_build_plan_refuses_stages_where_every_example_is_tested() -> None:
    data = {"source": "digits", "test_split": 1}
    assert plan({"compact": {}}, model="done.tflite", data=data).recipe.data.test_split == 1
    stages: tuple[dict[str, Any], ...] = ({"quantize": {}}, FLOAT16, {"prune": {}})
    for stage in stages:
        with pytest.raises(RecipeError, match="test_split: 1 leaves the stages no examples"):
            plan(stage, model="model.keras", data=data)


def test_source_none_takes_no_keys_about_examples() -> None:
    about = {"source": "none", "test_split": 0.3, "classes": ["a"]}
    with pytest.raises(RecipeError, match="no examples, and classes, test_split is about some"):
        plan(FLOAT16, model="model.keras", data=about)


@pytest.mark.parametrize(
    ("metrics", "gate", "told", "hint"),
    [
        (None, "balancd_accuracy_drop", "there is no metric", "did you mean balanced_accuracy?"),
        (None, "mean_squard_error", "there is no metric", "did you mean mean_squared_error?"),
        (["dice"], "my_own_score", "no metric 'my_own_score'", "choose one of dice"),
        (["recall_cat"], "recall_cta", "task.metrics has no recall_cta", "did you mean recall_cat"),
        (["recall_cat"], "recall_cta_drop", "task.metrics has no", "did you mean recall_cat"),
        (["f1_macro"], "roc_auc", "task.metrics has no roc_auc", "add roc_auc to task.metrics"),
        (["f1_macro"], "accuracy_drop", "task.metrics has no accuracy", "add accuracy to"),
        (["rmse"], "mae_rise", "task.metrics has no mae", "add mae to task.metrics"),
        ([], "accuracy", "task.metrics has no accuracy", "add accuracy"),
        (None, "false_accepts_per_hour", "needs arguments", "false_accepts_per_hour_0.05_1"),
        (None, "anomaly_roc_auc", "needs arguments", "such as anomaly_roc_auc_good"),
        (None, "anomaly_partial_roc_auc", "needs arguments", "anomaly_partial_roc_auc_0.1_good"),
    ],
)
def test_build_plan_refuses_a_gate_on_what_no_stage_measures(
    metrics: list[str] | None, gate: str, told: str, hint: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        plan(TRAIN, gates={gate: 0.5}, task={"metrics": metrics})
    assert f"gate {gate}: " in str(caught.value)
    assert told in str(caught.value)
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize("gate", ["recall_cat", "recall_cat_drop", "loss", "loss_rise", "macs"])
def test_build_plan_takes_gates_on_stated_metrics_and_on_the_loss(gate: str) -> None:
    made = plan(TRAIN, QUANTIZE, gates={gate: 1}, task={"metrics": ["recall_cat"]})
    assert made.finals == ("quantize",)


def test_build_plan_leaves_gates_to_metrics_that_follow_from_the_data() -> None:
    made = plan(TRAIN, QUANTIZE, gates={"rmse_drop": 1, "accuracy": 0.5})
    assert made.finals == ("quantize",)


@pytest.mark.parametrize(
    "gates",
    [
        {"accuracy_drop": 0.1}, {"loss_rise": 1}, {"worst_slice_drop": 0.1},
        {"tflite_bytes": {"ratio": 0.5}},
    ],
)  # fmt: skip
def test_build_plan_refuses_a_gate_that_compares_the_baseline_with_itself(
    gates: dict[str, Any],
) -> None:
    (name,) = gates
    settings = gates[name] if isinstance(gates[name], dict) else {"limit": gates[name]}
    stages: tuple[dict[str, Any], ...]
    for stages, at in (((TRAIN,), {}), ((TRAIN, QUANTIZE), {"stage": "train"})):
        with pytest.raises(RecipeError, match=f"gate {name}: .* stage train, with itself"):
            plan(*stages, gates={name: {**settings, **at}})
    with pytest.raises(RecipeError, match="stage baseline, with itself"):
        plan(model="done.tflite", gates=gates)
    assert plan(TRAIN, QUANTIZE, gates=gates).finals == ("quantize",)


SLICED = """\
name: r
model: build.py:build
data: {source: csv, path: a.csv, slices: [location, {column: area, name: size}]}
stages: [{train: {epochs: 1}}, quantize]
gates:
  worst_slice_drop:
    limit: 0.1
    by: BY
"""


@pytest.mark.parametrize(
    ("by", "hint"), [("locaton", "did you mean location?"), ("area", "choose one of class, ")]
)
def test_build_plan_refuses_a_gate_on_an_unknown_slicing(by: str, hint: str) -> None:
    Path("r.yaml").write_text(SLICED.replace("BY", by))
    with pytest.raises(RecipeError, match=f"no slicing is called '{by}'") as caught:
        build_plan(load_recipe(Path("r.yaml")))
    assert (caught.value.exit_code, "r.yaml:8:" in str(caught.value)) == (2, True)
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize("by", ["location", "size", "class"])
def test_build_plan_takes_a_gate_on_classes_and_on_slicings_of_the_data(by: str) -> None:
    Path("r.yaml").write_text(SLICED.replace("BY", by))
    assert build_plan(load_recipe(Path("r.yaml"))).recipe.gates["worst_slice_drop"].by == by


FITTED: dict[str, Any] = {
    "method": "channels",
    "arena_bytes": "9KB",
    "file_precision": "int8",
    "arena": "compacted",
}


@pytest.mark.parametrize(
    ("prune", "compacts", "counted"),
    [
        ({}, [], None),
        ({}, [{}], 0.05),
        ({}, [{"max_extra_macs": 0.25}], 0.25),
        ({"max_extra_macs": 0.1}, [{"max_extra_macs": 0.25}], 0.1),
        ({}, [{"max_extra_macs": 0.5}, {"max_extra_macs": 0.25}], 0.25),
        ({}, [{"arena_bytes": "9KB"}], None),
        ({}, [{"target": "xnnpack"}], None),
    ],
)
def test_build_plan_prunes_by_the_work_that_compaction_may_add(
    prune: dict[str, Any], compacts: list[dict[str, Any]], counted: float | None
) -> None:
    branches = [{"compact": {"from": "quantize", **one}} for one in compacts]
    built = plan(TRAIN, {"prune": {**FITTED, **prune}}, QUANTIZE, *branches)
    config = built.step("prune").config
    assert config is not None
    assert config.model_dump().get("max_extra_macs") == counted
    again = build_plan(recipe_from_mapping(resolved_recipe(built), "test"))
    assert again.step("prune").config == config


def test_build_plan_tells_no_other_stage_of_compaction() -> None:
    compact = {"compact": {"max_extra_macs": 0.25}}
    other = {"prune": {"method": "channels", "arena_bytes": "9KB"}}
    for prune in (PRUNE, other):
        config = plan(TRAIN, prune, QUANTIZE, compact).step("prune").config
        assert config is not None
        assert "max_extra_macs" not in config.model_dump()
    apart = {"prune": {**FITTED, "name": "apart", "from": "train"}}
    built = plan(TRAIN, apart, {"quantize": {"from": "train"}}, compact)
    found = built.step("apart").config
    assert found is not None
    assert "max_extra_macs" not in found.model_dump()


DETECTOR: dict[str, Any] = {"decode": {"name": "grid", "strides": [8]}}


def test_build_plan_refuses_what_a_detector_cannot_have() -> None:
    stage = {"distill": {"epochs": 1, "student": "build.py:build", "loss": "kl"}}
    plan(TRAIN, stage)
    with pytest.raises(RecipeError, match="loss kl is") as caught:
        plan(TRAIN, stage, task=DETECTOR)
    assert caught.value.exit_code == 2


def test_build_plan_refuses_a_cache_of_augmented_examples() -> None:
    stage = {"distill": {"epochs": 1, "student": "build.py:build", "teacher_cache": "on"}}
    plan(TRAIN, stage)
    data = {"source": "digits", "augment": {"flip": "horizontal"}}
    with pytest.raises(RecipeError, match="teacher_cache is on") as caught:
        plan(TRAIN, stage, data=data)
    assert caught.value.position is not None
