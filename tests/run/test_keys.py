"""A step's key changes with what decides its outcome, and with nothing else."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from shrink.base import packages as versions_module
from shrink.base.errors import RecipeError
from shrink.base.files import sha256
from shrink.base.packages import COMPUTING_PACKAGES, versions
from shrink.recipe.load import recipe_from_mapping
from shrink.recipe.plan import Plan, build_plan
from shrink.run.keys import step_keys, step_settings
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
    plan = build_plan(recipe_from_mapping(recipe, "test"))
    read.clear()
    assert len(_keys(plan)) == 3
    assert sorted(read) == [model, tmp_path / "own.py"]


def _ids(changes: list[Change]) -> list[str]:
    return [str(change) for change in changes]


_OF_FEEDING = [*({"training": one} for one in _OF_TRAINING), *({"data": one} for one in _OF_DATA)]


@pytest.mark.parametrize("change", _OF_FEEDING, ids=_ids(_OF_FEEDING))
def test_keys_of_what_trains_nothing_do_not_depend_on_how_training_is_done(
    model: Path, change: Change
) -> None:
    for stage in _NOT_TRAINING.items():
        assert _keys(_plan(model, stage, **change)) == _keys(_plan(model, stage))


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
    baseline, quantize = (step_settings(plan, step) for step in plan.steps)
    assert (baseline.training.seed, quantize.training.seed) == (0, 4)
    for settings in (baseline, quantize):
        assert settings.training.optimizer.learning_rate == 1e-3
        assert settings.training.patience is None
        assert settings.data.augment is None


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


@pytest.fixture
def clean_modules() -> Iterator[None]:
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", "") is None or "helper" in name:
            del sys.modules[name]


def _run(entry: Path, function: str = "build") -> object:
    """Run a user's function as a worker does, for the first time in its process."""
    from shrink.model.user_modules import function_of, imported

    imported.cache_clear()
    return function_of(entry, function)()


_IMPORTS = """
import importlib, sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent / "hidden"))
import helper_a
from helper_parts import helper_d
def build():
    import helper_c
    return importlib.import_module("hel" + "per_b").WIDTH
"""


@pytest.mark.parametrize(
    "helper", ["helper_a", "helper_b", "helper_c", "helper_parts/helper_d", "helper_parts/__init__"]
)
def test_keys_change_with_modules_that_the_builder_imported(
    tmp_path: Path, clean_modules: None, helper: str
) -> None:
    entry = _builder(tmp_path / "a", _IMPORTS)
    hidden = tmp_path / "a" / "hidden"
    (hidden / "helper_parts").mkdir(parents=True)
    names = ("helper_a", "helper_b", "helper_c", "helper_parts/helper_d", "helper_parts/__init__")
    for name in (*names, "unrelated"):
        (hidden / f"{name}.py").write_text("WIDTH = 8")
    assert _run(entry) == 8
    before = _train_key(entry)
    (hidden / "unrelated.py").write_text("WIDTH = 64")
    assert _train_key(entry) == before
    (hidden / f"{helper}.py").write_text("WIDTH = 64")
    assert _train_key(entry) != before


_READS = """
import json, os, sqlite3
from pathlib import Path
import h5py
import numpy as np
HERE = Path(__file__).parent
AT_IMPORT = os.environ["SHRINK_TEST_A"]
def build():
    np.load(HERE / "a.npy")
    h5py.File(HERE / "b.h5", "r").close()
    sqlite3.connect(HERE / "c.db").close()
    json.loads((HERE / "d.json").read_text())
    open("e.txt").close()
    for name in os.listdir(HERE / "rows"):
        (HERE / "rows" / name).read_text()
    try:
        open(HERE / "missing.txt")
    except FileNotFoundError:
        pass
    (HERE / "out.txt").write_text("written")
    (HERE / "gone.txt").write_text("temporary")
    (HERE / "gone.txt").read_text()
    (HERE / "gone.txt").unlink()
    os.environ.copy()
    os.path.expandvars("$SHRINK_TEST_C")
    return os.getenv("SHRINK_TEST_B"), "SHRINK_TEST_D" in os.environ
"""


@pytest.fixture
def reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A builder that has read files and variables in many ways."""
    import h5py
    import numpy as np

    entry = _builder(tmp_path / "a", _READS)
    (tmp_path / "a" / "rows").mkdir()
    np.save(tmp_path / "a" / "a.npy", np.zeros(3))
    h5py.File(tmp_path / "a" / "b.h5", "w").close()
    for name, text in (("d.json", "1"), ("e.txt", "1"), ("rows/1", "1"), ("other.txt", "1")):
        (tmp_path / "a" / name).write_text(text)
    monkeypatch.chdir(tmp_path / "a")
    monkeypatch.setenv("SHRINK_TEST_A", "1")
    monkeypatch.setenv("SHRINK_TEST_C", "1")
    _run(entry)
    return entry


@pytest.mark.parametrize(
    "name", ["a.npy", "b.h5", "c.db", "d.json", "e.txt", "rows/1", "rows/2", "missing.txt"]
)
def test_keys_change_with_what_a_builder_has_read(reading: Path, name: str) -> None:
    before = _train_key(reading)
    (reading.parent / name).write_bytes(b"other")
    assert _train_key(reading) != before


@pytest.mark.parametrize("name", ["A", "B", "C", "D"])
def test_keys_change_with_environment_variables_that_a_builder_has_read(
    reading: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _train_key(reading)
    monkeypatch.setenv("SHRINK_TEST_E", "2")
    assert _train_key(reading) == before
    monkeypatch.setenv(f"SHRINK_TEST_{name}", "2")
    assert _train_key(reading) != before


@pytest.mark.parametrize("name", ["out.txt", "gone.txt", "other.txt"])
def test_keys_stay_with_what_a_builder_wrote_or_never_read(reading: Path, name: str) -> None:
    before = _train_key(reading)
    (reading.parent / name).write_text("other")
    assert _train_key(reading) == before


def test_keys_of_a_builder_do_not_depend_on_its_place(reading: Path, tmp_path: Path) -> None:
    shutil.copytree(reading.parent, tmp_path / "b")
    before = _train_key(reading)
    os.chdir(tmp_path / "b")
    assert _train_key(tmp_path / "b" / "model.py") == before
    (tmp_path / "b" / "d.json").write_text("2")
    assert _train_key(tmp_path / "b" / "model.py") != before


@pytest.mark.parametrize("user", ["custom_objects", "loss", "metric", "slices", "student"])
def test_keys_change_with_what_any_code_of_the_users_has_read(
    user: str, model: Path, tmp_path: Path
) -> None:
    text = "from pathlib import Path\ndef f():\n    (Path(__file__).parent / 'x.txt').read_text()\n"
    code, stage = _builder(tmp_path / "a", text), ("train", {"epochs": 1})
    plans = {
        "custom_objects": lambda: _plan(model, stage, custom_objects=str(code)),
        "loss": lambda: _plan(model, stage, task={"loss": f"{code}:f"}),
        "metric": lambda: _plan(model, stage, task={"metrics": [f"{code}:f"]}),
        "slices": lambda: _sliced(model, code, "f"),
        "student": lambda: _plan(model, ("distill", {"student": f"{code}:f", "epochs": 1})),
    }
    (tmp_path / "a" / "x.txt").write_text("1")
    _run(code, "f")
    before = list(_keys(plans[user]()).values())[-1]
    (tmp_path / "a" / "x.txt").write_text("2")
    assert list(_keys(plans[user]()).values())[-1] != before


def test_keys_change_with_what_depends_names(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "x.bin").write_text("1")

    def key() -> str:
        return _keys(_plan(model, depends=[str(tmp_path / "w"), "$SHRINK_TEST_A"]))["baseline"]

    found = {_keys(_plan(model))["baseline"], key()}
    (tmp_path / "w" / "x.bin").write_text("2")
    found.add(key())
    monkeypatch.setenv("SHRINK_TEST_A", "1")
    found.add(key())
    assert len(found) == 4
    with pytest.raises(RecipeError, match="no such file or folder"):
        _plan(model, depends=["nothing.bin"])


def test_keys_change_with_a_module_that_another_file_imported_first(
    tmp_path: Path, clean_modules: None
) -> None:
    from shrink.model.user_modules import imported

    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "helper_e.py").write_text(
        "from pathlib import Path\nWIDTH = (Path(__file__).parent / 'width.txt').read_text()"
    )
    (hidden / "width.txt").write_text("8")
    start = f"import sys\nsys.path.insert(0, {str(hidden)!r})\n"
    first = _builder(tmp_path / "a", f"{start}import helper_e")
    second = _builder(tmp_path / "b", f"{start}from helper_e import WIDTH\nimport helper_e as h")
    imported(first)
    imported(second)
    before = _train_key(second)
    (hidden / "width.txt").write_text("64")
    changed = _train_key(second)
    (hidden / "helper_e.py").write_text("WIDTH = 64")
    assert len({before, changed, _train_key(second)}) == 3


def test_files_that_several_threads_read_are_all_recorded(
    tmp_path: Path, clean_modules: None, cache: Path
) -> None:
    from shrink.model.user_modules import function_of, imported

    for number in range(200):
        (tmp_path / f"{number}.txt").write_text("8")
    text = "from pathlib import Path\ndef read(path):\n    return Path(path).read_text()\n"
    entry = _builder(tmp_path / "a", text)
    imported.cache_clear()
    read, interval = function_of(entry, "read"), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            texts = list(threads.map(read, [tmp_path / f"{number}.txt" for number in range(200)]))
    finally:
        sys.setswitchinterval(interval)
    assert texts == ["8"] * 200
    record = next((cache / "user-code").glob(f"**/{sha256(entry)}*"))
    assert len({line for line in record.read_text().splitlines() if ".txt" in line}) == 200


@pytest.mark.parametrize("missing", ["helper", "record"])
def test_keys_can_be_had_when_what_was_imported_is_gone(
    tmp_path: Path, clean_modules: None, cache: Path, missing: str
) -> None:
    entry = _builder(tmp_path / "a", _IMPORTS)
    (tmp_path / "a" / "hidden" / "helper_parts").mkdir(parents=True)
    for name in ("helper_a", "helper_b", "helper_c", "helper_parts/helper_d"):
        (tmp_path / "a" / "hidden" / f"{name}.py").write_text("WIDTH = 8")
    _run(entry)
    before = _train_key(entry)
    if missing == "helper":
        (tmp_path / "a" / "hidden" / "helper_a.py").unlink()
    else:
        for record in (cache / "user-code").iterdir():
            record.write_bytes(b"[\xff")
    assert _train_key(entry) != before


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
    assert data_identity(sliced.recipe.data, "f") == data_identity(plain.recipe.data, "f")
