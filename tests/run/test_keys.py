"""A step's key changes with what decides its outcome, and with nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from shrink.base import packages as versions_module
from shrink.base.packages import COMPUTING_PACKAGES, versions
from shrink.recipe.load import recipe_from_mapping
from shrink.recipe.plan import Plan, build_plan
from shrink.run.keys import settings_of, step_keys
from shrink.run.lineage import data_identity

Change = dict[str, Any]

_NOT_TRAINING: dict[str, Change] = {
    "quantize": {"scheme": "static_wi8_ai8"},
    "prune-magnitude": {"method": "magnitude", "epochs": 0},
    "prune-channels": {"method": "channels", "ratio": 0.5, "epochs": 0},
    "cluster": {"epochs": 0},
}
_TRAINING: dict[str, Change] = {
    "train": {"epochs": 1},
    "distill": {"student": {"width": 0.5}, "epochs": 1},
    "quantize-aware": {"aware": True, "epochs": 1},
    "prune-magnitude": {"method": "magnitude", "epochs": 1},
    "prune-peak": {"method": "channels", "training_peak_bytes": "1GB", "epochs": 0},
    "cluster": {"epochs": 1},
}
_OF_TRAINING: list[Change] = [
    {"global_batch_size": 8},
    {"replicas": 2},
    {"micro_batch_size": 4},
    {"memory_limit": "1GB"},
    {"host_memory_limit": "4GB"},
    {"precision": "mixed_bfloat16"},
    {"optimizer": {"learning_rate": 0.5}},
    {"optimizer": {"name": "sgd", "schedule": "cosine"}},
    {"batch_norm": "frozen"},
    {"recompute": "auto"},
    {"class_weights": "balanced"},
    {"restore_best": True},
    {"patience": 3},
]
_OF_DATA: list[Change] = [{"augment": {"flip": "horizontal"}}, {"cache": "memory"}]
_OF_RESULTS: list[Change] = [
    {"data": {"normalize": {"scale": 0.5}}},
    {"data": {"test_split": 0.3}},
    {"data": {"validation_split": 0.2}},
    {"data": {"target": "input"}},
    {"training": {"seed": 3}},
    {"task": {"metrics": ["accuracy"]}},
]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.h5"
    path.write_bytes(b"weights")
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _plan(model: Path | str, stage: tuple[str, Change] | None = None, **sections: Any) -> Plan:
    data = {"source": "digits", **sections.pop("data", {})}
    stages = [] if stage is None else [{stage[0].partition("-")[0]: stage[1]}]
    recipe = {"name": "r", "model": str(model), "data": data, "stages": stages, **sections}
    return build_plan(recipe_from_mapping(recipe, "test"))


def _keys(plan: Plan) -> dict[str, str]:
    return step_keys(plan, "the data")


def test_keys_read_each_file_once(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def reading(path: Path) -> str:
        read.append(path)
        return "hash"

    monkeypatch.setattr("shrink.base.files.sha256", reading)
    monkeypatch.setattr("shrink.run.keys.code_digest", reading)
    (tmp_path / "own.py").touch()
    stages = [{"prune": {"sparsity": 0.5, "epochs": 0}}, {"quantize": {}}]
    recipe = {"name": "r", "model": str(model), "data": {"source": "digits"}, "stages": stages}
    recipe["custom_objects"] = str(tmp_path / "own.py")
    assert len(_keys(build_plan(recipe_from_mapping(recipe, "test")))) == 3
    assert sorted(read) == [model, tmp_path / "own.py"]


def _ids(changes: list[Change]) -> list[str]:
    return [str(change) for change in changes]


@pytest.mark.parametrize("change", _OF_TRAINING, ids=_ids(_OF_TRAINING))
def test_keys_of_what_trains_nothing_do_not_depend_on_training(model: Path, change: Change) -> None:
    for stage in _NOT_TRAINING.items():
        assert _keys(_plan(model, stage, training=change)) == _keys(_plan(model, stage))


@pytest.mark.parametrize("change", _OF_DATA, ids=_ids(_OF_DATA))
def test_keys_of_what_trains_nothing_do_not_depend_on_how_training_is_fed(
    model: Path, change: Change
) -> None:
    for stage in _NOT_TRAINING.items():
        assert _keys(_plan(model, stage, data=change)) == _keys(_plan(model, stage))


@pytest.mark.parametrize("change", _OF_TRAINING, ids=_ids(_OF_TRAINING))
def test_keys_of_what_trains_depend_on_training_and_the_baseline_does_not(
    model: Path, change: Change
) -> None:
    for stage in _TRAINING.items():
        plain, changed = _keys(_plan(model, stage)), _keys(_plan(model, stage, training=change))
        assert plain.pop("baseline") == changed.pop("baseline")
        assert not set(plain.values()) & set(changed.values())


def test_keys_of_pruning_depend_on_its_teacher(model: Path) -> None:
    channels: Change = {"method": "channels", "parameters": 0.5}
    plans = [_plan(model, ("prune", channels | {"teacher": t})) for t in (None, "auto", "self")]
    assert len({_keys(plan)["prune"] for plan in plans}) == 3


@pytest.mark.parametrize("change", _OF_RESULTS, ids=_ids(_OF_RESULTS))
def test_keys_depend_on_what_decides_figures(model: Path, change: Change) -> None:
    for stage in (_NOT_TRAINING | _TRAINING).items():
        plain, changed = _keys(_plan(model, stage)), _keys(_plan(model, stage, **change))
        assert not set(plain.values()) & set(changed.values())


def test_settings_are_what_the_key_holds_so_a_worker_cannot_read_more(model: Path) -> None:
    change = {"optimizer": {"learning_rate": 0.5}, "patience": 3, "seed": 4}
    plan = _plan(model, ("quantize", {}), training=change, data={"augment": {"flip": "horizontal"}})
    baseline, quantize = (settings_of(plan, step) for step in plan.steps)
    assert (baseline.training.seed, quantize.training.seed) == (0, 4)
    for settings in (baseline, quantize):
        assert settings.training.optimizer.learning_rate == 1e-3
        assert settings.training.patience is None
        assert settings.data["augment"] is None


def test_keys_do_not_depend_on_places_and_names(tmp_path: Path, model: Path) -> None:
    moved = tmp_path / "elsewhere" / "other.h5"
    moved.parent.mkdir()
    moved.write_bytes(model.read_bytes())
    named = {"name": "other", **_NOT_TRAINING["cluster"]}
    plain = _keys(_plan(model, ("cluster", _NOT_TRAINING["cluster"])))
    assert list(_keys(_plan(moved, ("cluster", named))).values()) == list(plain.values())
    moved.write_bytes(b"other weights")
    assert not set(_keys(_plan(moved, ("cluster", named))).values()) & set(plain.values())


@pytest.mark.parametrize("package", COMPUTING_PACKAGES)
def test_keys_depend_on_the_version_of_every_package_that_computes(
    model: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = _plan(model)
    before = _keys(plan)
    changed = {**versions(), package: "another"}
    monkeypatch.setattr("shrink.run.keys.versions", lambda: changed)
    assert _keys(plan) != before


def test_versions_name_every_dependency_that_computes() -> None:
    """Of what pyproject.toml wants, only these never touch a figure."""
    import tomllib

    source = Path(versions_module.__file__).parents[2] / "pyproject.toml"
    project = tomllib.loads(source.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["lmdb"], *extras["tiles"]]
    names = {text.split(">")[0].split("<")[0] for text in [*wanted, *extras["tfds"]]}
    others = {"jinja2", "markupsafe", "packaging", "pydantic", "pydantic-core", "pyyaml"}
    assert names - set(COMPUTING_PACKAGES) == {*others, "rich", "typer"}
    assert {"ai-edge-quantizer", "pillow", "tflite-micro", "scipy"} <= set(versions())


def _builder(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(text)
    return folder / "model.py"


def _train_key(entry: Path) -> str:
    return _keys(_plan(f"{entry}:build", ("train", {"epochs": 1})))["train"]


@pytest.mark.parametrize(
    ("statement", "helper"),
    [
        ("import helper", "helper.py"),
        ("from helper import WIDTH", "helper.py"),
        ("def build():\n    import helper", "helper.py"),
        ("import parts.helper as h", "parts/helper.py"),
        ("from parts import helper", "parts/helper.py"),
        ("import parts.helper", "parts/__init__.py"),
        ("import one", "helper.py"),
    ],
)
def test_keys_change_with_a_module_that_the_builder_imports(
    tmp_path: Path, statement: str, helper: str
) -> None:
    entry = _builder(tmp_path / "a", statement)
    (tmp_path / "a" / "one.py").write_text("def f():\n    from helper import WIDTH\n")
    (tmp_path / "a" / "parts").mkdir()
    for name in ("helper.py", "parts/helper.py", "parts/__init__.py"):
        (tmp_path / "a" / name).write_text("WIDTH = 8")
    (tmp_path / "a" / "unrelated.py").write_text("WIDTH = 8")
    before = _train_key(entry)
    (tmp_path / "a" / "unrelated.py").write_text("WIDTH = 64")
    assert _train_key(entry) == before
    (tmp_path / "a" / helper).write_text("WIDTH = 64")
    assert _train_key(entry) != before


def test_keys_of_a_builder_do_not_depend_on_its_place(tmp_path: Path) -> None:
    for name in ("a", "b"):
        entry = _builder(tmp_path / name, "import helper")
        (tmp_path / name / "helper.py").write_text("WIDTH = 8")
    assert _train_key(tmp_path / "a" / "model.py") == _train_key(entry)


@pytest.fixture
def clean_modules(monkeypatch: pytest.MonkeyPatch) -> Any:
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", "") is None or "helper" in name:
            del sys.modules[name]


_HIDDEN = """
import importlib, sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent / "hidden"))
helper_a = importlib.import_module("hel" + "per_a")
def build():
    return importlib.import_module("hel" + "per_b").WIDTH
"""


def test_keys_change_with_modules_that_only_running_shows(
    tmp_path: Path, clean_modules: None
) -> None:
    from shrink.model.user_modules import function_of

    entry = _builder(tmp_path / "a", _HIDDEN)
    (tmp_path / "a" / "hidden").mkdir()
    for name in ("helper_a", "helper_b"):
        (tmp_path / "a" / "hidden" / f"{name}.py").write_text("WIDTH = 8")
    assert function_of(entry, "build")() == 8
    before = _train_key(entry)
    for name in ("helper_a", "helper_b"):
        (tmp_path / "a" / "hidden" / f"{name}.py").write_text("WIDTH = 64")
        changed = _train_key(entry)
        assert changed != before
        before = changed


def test_keys_change_with_a_module_that_another_file_imported_first(
    tmp_path: Path, clean_modules: None
) -> None:
    from shrink.model.user_modules import imported

    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "helper_c.py").write_text("WIDTH = 8")
    start = f"import sys\nsys.path.insert(0, {str(hidden)!r})\n"
    first = _builder(tmp_path / "a", f"{start}import helper_c")
    second = _builder(tmp_path / "b", f"{start}from helper_c import WIDTH\nimport helper_c as h")
    imported(first)
    imported(second)
    before = _train_key(second)
    (hidden / "helper_c.py").write_text("WIDTH = 64")
    assert _train_key(second) != before


@pytest.mark.parametrize("missing", ["helper", "record"])
def test_keys_can_be_had_when_what_was_imported_is_gone(
    tmp_path: Path, clean_modules: None, cache: Path, missing: str
) -> None:
    from shrink.model.user_modules import imported

    entry = _builder(tmp_path / "a", _HIDDEN)
    (tmp_path / "a" / "hidden").mkdir()
    helper = tmp_path / "a" / "hidden" / "helper_a.py"
    helper.write_text("WIDTH = 8")
    imported(entry)
    before = _train_key(entry)
    if missing == "helper":
        helper.unlink()
    else:
        for record in (cache / "imports").iterdir():
            record.write_text("[")
    assert _train_key(entry) != before


def test_keys_change_with_a_module_that_custom_objects_import(tmp_path: Path, model: Path) -> None:
    def key() -> str:
        return _keys(_plan(model, custom_objects=str(tmp_path / "layers.py")))["baseline"]

    (tmp_path / "layers.py").write_text("from factor import FACTOR\n")
    (tmp_path / "factor.py").write_text("FACTOR = 1.0")
    before = key()
    (tmp_path / "factor.py").write_text("FACTOR = 0.05")
    assert key() != before


def _sliced(model: Path, code: Path, name: str = "ink") -> Plan:
    stage = ("train", {"epochs": 1})
    slices = [{"name": "by ink", "function": f"{code}:{name}"}]
    return _plan(model, stage, data={"slices": slices})


def test_step_keys_change_with_what_slices_are_and_not_with_where_their_code_is(
    model: Path, tmp_path: Path
) -> None:
    code, moved = tmp_path / "by.py", tmp_path / "elsewhere" / "by.py"
    moved.parent.mkdir()
    for file in (code, moved):
        file.write_text("def ink(x, y): return y\n\n\ndef other(x, y): return y\n")
    plain = step_keys(_plan(model, ("train", {"epochs": 1})), "data")
    before = step_keys(_sliced(model, code), "data")
    assert before["train"] != plain["train"]
    assert step_keys(_sliced(model, code, "other"), "data")["train"] != before["train"]
    assert step_keys(_sliced(model, moved), "data") == before
    code.write_text("def ink(x, y): return -y\n")
    assert step_keys(_sliced(model, code), "data")["train"] != before["train"]


def test_slices_move_no_example_to_another_split(model: Path, tmp_path: Path) -> None:
    code = tmp_path / "by.py"
    code.write_text("def ink(x, y): return y\n")
    sliced, plain = _sliced(model, code), _plan(model, ("train", {"epochs": 1}))
    assert data_identity(sliced.data_config, "f") == data_identity(plain.data_config, "f")
