"""A stage that an installed package adds: named in recipes, run by the worker, part of keys."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.base.packages import find_extension
from shrink.contract.trained_range import ModelMetadata
from shrink.run import execute
from tests.cli.shell import read_report, shrink, stage
from tests.cli.toy import write_toy

CONFIG = '''
from typing import ClassVar

from shrink.base.fields import Fraction
from shrink.stages.base import StageConfig


class DecayConfig(StageConfig):
    """Multiply all weights."""

    kind: ClassVar[str] = "decay"

    factor: Fraction = 0.5
    """By what."""

    @property
    def needs_examples(self):
        return None
'''
RUN = """
from shrink.stages.context import StageContext, StageResult


def run(config, context: StageContext) -> StageResult:
    model = context.load()
    model.set_weights([config.factor * weights for weights in model.get_weights()])
    return StageResult(model=model, notes=[f"multiplied by {config.factor}"])
"""
RECIPE = """
name: decaying
model: toy.keras
data: {{source: npz, path: toy.npz}}
stages:
  - decay: {{factor: {factor}}}
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a folder with an installed package of two modules and one entry point."""
    package, about = tmp_path / "site" / "decaying", tmp_path / "site" / "decaying-1.2.dist-info"
    package.mkdir(parents=True)
    about.mkdir()
    (package / "__init__.py").touch()
    (package / "config.py").write_text(CONFIG)
    (package / "run.py").write_text(RUN)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: decaying\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(
        "[shrink.stages]\ndecay = decaying.config:DecayConfig\nbroken = decaying.gone:Config\n"
    )
    return tmp_path / "site"


def test_a_package_adds_a_stage(tmp_path: Path, site: Path) -> None:
    write_toy(tmp_path)
    model = keras.Sequential([keras.layers.Dense(3, input_shape=(4,))])
    model.save(tmp_path / "toy.keras")
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(factor=0.25))

    def run(*more: str) -> str:
        words = ("run", "recipe.yaml", "--output", "out", *more)
        path = {"PYTHONPATH": str(site)}
        return shrink(*words, cwd=tmp_path, store=tmp_path / "store", env=path).stdout

    run()
    report = read_report(tmp_path / "out")
    artifact = tmp_path / "out" / stage(report, "decay")["artifact"]
    made = keras.models.load_model(artifact, compile=False)
    for old, new in zip(model.get_weights(), made.get_weights(), strict=True):
        np.testing.assert_array_equal(new, np.float32(0.25) * old)
    assert "multiplied by 0.25" in stage(report, "decay")["notes"]
    again = run("--dry-run")
    assert again.count("in the cache") == 2
    (site / "decaying" / "run.py").write_text(RUN.replace("multiplied", "scaled"))
    changed = run("--dry-run")
    assert changed.count("in the cache") == 1
    assert "sources changed" in changed


def test_its_settings_are_checked_as_those_of_other_stages(tmp_path: Path, site: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(factor="2.5, facto: 1"))
    path = {"PYTHONPATH": str(site)}
    done = shrink("validate", "recipe.yaml", cwd=tmp_path, store=tmp_path, env=path, expect=2)
    assert "recipe.yaml:6:" in done.stderr
    assert "factor" in done.stderr
    assert "did you mean factor?" in done.stderr


def test_a_package_that_fails_is_named(tmp_path: Path, site: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(factor=1).replace("decay", "broken"))
    path = {"PYTHONPATH": str(site)}
    done = shrink("validate", "recipe.yaml", cwd=tmp_path, store=tmp_path, env=path, expect=2)
    assert "decaying 1.2 adds the stage broken, and fails: ModuleNotFoundError" in done.stderr


def test_what_its_code_raises_is_told_with_its_name(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(site)
    (site / "decaying" / "run.py").write_text("def run(config, context):\n    return {}['gone']\n")
    find_extension.cache_clear()
    job = SimpleNamespace(kind="decay", config={"factor": 0.5})
    with pytest.raises(StageError) as caught:
        execute.run_stage(
            cast(Any, job), cast(Any, SimpleNamespace(name="mine", imported=ModelMetadata()))
        )
    assert str(caught.value) == (
        "mine: decaying 1.2 adds the stage decay, and it raised KeyError: 'gone'"
    )
    find_extension.cache_clear()
