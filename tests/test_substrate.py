"""What shrink stands on: the pins that keep installs whole, and the page that counts tf-keras."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from docs import substrate

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "substrate.md"


def pins(name: str) -> list[Requirement]:
    """Return every requirement of a package, in extras too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    return [found for line in lines if (found := Requirement(line)).name == name]


def test_no_pin_takes_a_tensorflow_without_a_tf_keras() -> None:
    (of_keras,) = pins("tf-keras")
    found = pins("tensorflow")
    assert len(found) == 2
    for one in [*found, of_keras]:
        assert one.specifier == of_keras.specifier
        assert one.specifier.contains(Version("2.21.1"))
        for version in ("2.22.0rc0", "2.22.0", "3.0"):
            assert not one.specifier.contains(version, prereleases=True)


def test_keras_3_is_held_below_the_next() -> None:
    (keras,) = pins("keras")
    assert not keras.specifier.contains("4.0.0rc0", prereleases=True)


def test_the_page_shows_about_what_the_sources_use() -> None:
    page = PAGE.read_text("utf-8")
    for reason, (uses, files, _) in substrate.by_reason(substrate.measure()).items():
        row = re.search(rf"^\| {re.escape(reason)} \| (\d+) \| (\d+) \|", page, re.MULTILINE)
        assert row, f"{reason}: write what `python -m docs.substrate` prints into the page"
        # Files come and go every day; the page is written anew where it misleads.
        assert [int(row[1]), int(row[2])] == pytest.approx([files, uses], rel=0.3, abs=3)


def test_the_installed_tf_keras_has_every_name() -> None:
    assert substrate.missing(substrate.measure()) == []


def test_missing_names_what_tf_keras_does_not_have() -> None:
    use = substrate.Use()
    use.names[Path("a.py")] = Counter({"layers.Dense": 1, "layers.Fence": 1})
    assert substrate.missing(use) == ["layers.Fence"]


def test_prereleases_run_by_the_clock_and_nothing_waits_for_them() -> None:
    workflow = ROOT / ".github" / "workflows" / "prereleases.yml"
    events = yaml.safe_load(workflow.read_text("utf-8"))[True]  # YAML 1.1 takes `on` for true
    assert set(events) == {"schedule", "workflow_dispatch"}
    subprocess.run(["bash", "-n", ROOT / ".ci" / "prereleases"], check=True)
