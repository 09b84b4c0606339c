"""Every pair of a stage's settings does what it says, or is refused by name before it starts."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from shrink.base.errors import RecipeError
from shrink.recipe.load import recipe_from_mapping
from tests.oracle import keras_models
from tests.oracle.audit import audit
from tests.oracle.drive import Done, Fork
from tests.stages import _checks, _networks, _settings
from tests.stages._settings import Row

SLICES = 12
SAMPLE: list[tuple[str, dict[str, str]]] = [
    ("magnitude", {"pattern": "2:4", "epochs": "0", "after": "int8"}),
    (
        "channels",
        {"importance": "taylor", "steps": "2", "epochs": "2", "precision": "float16"}
        | {"split": "replicas"},
    ),
]
REFUSED = {
    "magnitude": {},
    "channels": {
        "no batch norm with a scale follows": {"importance": "bn_scale"},
        "a teacher needs outputs of one kind": {"network": "two"},
        "arena_bytes: ": {"target": "arena"},
        "is out of reach: with as few channels": {"target": "int8 arena"},
        "no channel would be removed": {"round_to": "4"},
    },
    "distill": {
        "mixup cannot be: the layer first looks": {"network": "sequence", "augment": "mixup"},
        "mixup cannot be: the class numbers of": {"network": "two", "augment": "mixup"},
    },
    "quantize": {
        "more than the budget of": {"scheme": "mixed file"},
        "accuracy_drop needs classes": {"network": "labels", "scheme": "mixed drop"},
        "accuracy_drop needs classes, and": {"network": "labels", "scheme": "mixed drop float"},
        "has no version with 16-bit activations": {"scheme": "static_wi8_ai16"},
        "would change the whole numbers": {"network": "pooled", "types": "uint8"},
        "uint8 inputs and outputs cannot be made from": {"model": "tflite", "types": "uint8"},
    },
}
"""What may be refused once model and data are known: words of the message, and the row's levels."""


class Bench:
    """What runs rows, and the networks that they are about.

    Args:
        fork: runs the commands.
        folder: for networks and runs.
    """

    def __init__(self, fork: Fork, folder: Path) -> None:
        self._fork, self._folder = fork, folder
        self._networks: dict[str, _networks.Network] = {}
        self._runs = itertools.count()

    def network(self, row: Row) -> _networks.Network:
        """Return the network of a row."""
        name = row["network"]
        if name not in self._networks:
            self._networks[name] = _networks.write(name, self._folder / name)
        return self._networks[name]

    def run(self, tried: str, row: Row, **changed: Any) -> tuple[Done, Path]:
        """Run a row's recipe, with other keys for the stage; return its end and its folder."""
        folder = self._folder / f"run-{next(self._runs)}"
        folder.mkdir()
        recipe = _settings.recipe(tried, row, self.network(row), changed)
        text = yaml.safe_dump(recipe, sort_keys=False)
        (folder / "recipe.yaml").write_text(text, encoding="utf-8")
        return self._fork.run(["run", "recipe.yaml", "--output", "out"], folder), folder / "out"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(Fork(tmp_path_factory.mktemp("store")), tmp_path_factory.mktemp("bench"))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SLICES))
@pytest.mark.parametrize("tried", _settings.STAGES)
def test_every_pair_of_settings_does_what_it_says(tried: str, first: int, bench: Bench) -> None:
    found = {str(row): _wrong(tried, row, bench) for row in _settings.rows(tried)[first::SLICES]}
    assert not {row: wrong for row, wrong in found.items() if wrong}


@pytest.mark.parametrize(("tried", "levels"), SAMPLE, ids=[tried for tried, _ in SAMPLE])
def test_a_sample_of_settings_does_what_it_says(
    tried: str, levels: dict[str, str], bench: Bench
) -> None:
    assert not _wrong(tried, _settings.row(tried, network="labels", **levels), bench)


@pytest.mark.parametrize("tried", _settings.STAGES)
def test_what_a_recipe_refuses_is_refused_by_name(tried: str, tmp_path: Path) -> None:
    network = _networks.Network(tmp_path, {"source": "digits"}, _networks.NOTHING)
    factors = _settings.STAGES[tried][2]
    wrong, refused = [], 0
    for one, other in itertools.combinations(factors, 2):
        for levels in itertools.product(factors[one], factors[other]):
            row = _settings.row(tried, **dict(zip((one, other), levels, strict=True)))
            try:
                recipe_from_mapping(_settings.recipe(tried, row, network), "pairs")
            except RecipeError as error:
                refused += 1
                keys = {key for name in (one, other) for key in factors[name][row[name]]}
                named = any(key in error.message for key in keys)
                if _settings.legal(tried, row) or not named:
                    wrong.append((row, error.message))
    assert not wrong
    assert refused


def _wrong(tried: str, row: Row, bench: Bench) -> list[str]:
    """Run a row and return what is wrong with it."""
    done, folder = bench.run(tried, row)
    if done.code:
        return _wrongly_refused(tried, row, done)
    said = _settings.stage(tried, row)
    found = _checks.wrong(said.pop("kind"), said, _checks.read_run(folder))
    found += [str(r) for r in audit(folder, bench.network(row).truth) if not r.agrees]
    if row.get("cache") == "on" and row["stored"] in ("float32", "all"):
        found += _differs_live(tried, row, bench, folder)
    return found


def _wrongly_refused(tried: str, row: Row, done: Done) -> list[str]:
    expected = [
        words
        for words, levels in REFUSED[tried].items()
        if all(row[name] == level for name, level in levels.items())
    ]
    began = re.search(r"epoch 1", done.printed)
    if done.code in (2, 3, 4) and not began and any(w in done.printed for w in expected):
        return []
    return [f"exit {done.code}: {done.printed[-1500:]}"]


def _differs_live(tried: str, row: Row, bench: Bench, folder: Path) -> list[str]:
    """Compare a student of cached answers with that of a teacher who is asked on every batch."""
    done, other = bench.run(tried, row, teacher_cache="off", cache_dtype="float32")
    if done.code:
        return [f"live: exit {done.code}: {done.printed[-1500:]}"]
    (one,), (live,) = (list(each.glob("artifacts/*-distill.keras")) for each in (folder, other))
    pairs = zip(*(keras_models.load(path).get_weights() for path in (one, live)), strict=True)
    apart = max(float(np.abs(a - b).max()) for a, b in pairs)
    exact = row["precision"] == "float32"
    return [f"cached and live students are {apart} apart"] if exact and apart > 1e-5 else []
