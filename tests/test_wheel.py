"""What the wheel carries: recipes and models travel inside it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from shrink.recipe.bundle import bundled_recipes
from tests.cli.shell import shrink

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and install it, alone, into an empty folder."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    offline = ["--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "wheel", *offline, "-w", folder, ROOT], check=True)
    (wheel,) = folder.glob("shrink_keras-*.whl")
    target = folder / "site"
    subprocess.run([*pip, "install", "--no-deps", "--target", target, wheel], check=True)
    return target


def test_wheel_lists_its_own_recipes(installed: Path, tmp_path: Path) -> None:
    done = shrink(
        "recipes", "--json",
        cwd=tmp_path, store=tmp_path, env={"PYTHONPATH": str(installed)}, fresh=True,
    )  # fmt: skip
    listed = json.loads(done.stdout)
    assert [r["name"] for r in listed] == [r.name for r in bundled_recipes()]
    assert all(Path(r["path"]).is_relative_to(installed) for r in listed)
    assert all(r["summary"] for r in listed)


def test_wheel_plans_a_recipe_by_its_name(installed: Path, tmp_path: Path) -> None:
    """.ci/package runs it."""
    words = ("run", "digits", "--dry-run", "--json")
    env = {"PYTHONPATH": str(installed)}
    done = shrink(*words, cwd=tmp_path, store=tmp_path / "store", env=env, fresh=True)
    assert [row["name"] for row in json.loads(done.stdout)][:1] == ["train"]


def test_wheel_carries_no_tests_and_is_typed(installed: Path) -> None:
    for name in ("py.typed", "model/allowed.toml"):
        assert (installed / "shrink" / name).is_file()
    assert not (installed / "tests").exists()
    bundled = sorted(p.name for p in (installed / "shrink" / "bundled").iterdir())
    assert bundled == ["models", "recipes"]
    recipes = installed / "shrink" / "bundled" / "recipes"
    for recipe in recipes.glob("*.yaml"):
        data = yaml.safe_load(recipe.read_text(encoding="utf-8")).get("data", {})
        if str(data.get("path")).startswith("data/"):
            assert (recipes / data["path"].partition(":")[0]).is_file()
