"""Files whose configuration was changed within a sound frame, and what loading them takes."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import h5py
import keras as keras3
import pytest
import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.model.scan import check_model_file

_VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 2, 3, 255, 4096, 60_000, 10**6, 10**9, 10**18, 0.5, -1.5, 1e30, None, True, False),
    *("", "relu", "same", "channels_first", "float16", "x" * 300, [], [1, 2], {}, [3, [4]]),
)
_MOST_S, _MOST_BYTES = 10.0, 2 * 10**9


def network(library: Any) -> Any:
    """Return a small network with layers of many kinds, of either Keras."""
    layers = library.layers
    inputs = layers.Input((8, 8, 3))
    x = layers.Conv2D(4, 3, padding="same", activation="relu")(inputs)
    x = layers.BatchNormalization()(layers.DepthwiseConv2D(3)(x))
    y = layers.GlobalAveragePooling2D()(layers.UpSampling2D()(x))
    z = layers.LSTM(3)(layers.Reshape((-1, 4))(layers.ZeroPadding2D()(x)))
    joined = layers.Concatenate()([y, layers.RepeatVector(2)(z)[:, 0]])
    return library.Model(inputs, layers.Dense(3, activation="softmax")(joined))


def saved_networks(folder: Path) -> list[Path]:
    """Write it by tf-keras as archive and HDF5, and by Keras 3."""
    paths = [folder / name for name in ("two.keras", "two.h5", "three.keras")]
    network(keras).save(paths[0])
    network(keras).save(paths[1])
    network(keras3).save(paths[2])
    return paths


def reconfigured(source: Path, target: Path, chance: random.Random) -> None:
    """Write a copy with one to three values of the configuration changed."""
    if source.suffix == ".h5":
        target.write_bytes(source.read_bytes())
        with h5py.File(target, "r+") as file:
            config = json.loads(file.attrs["model_config"])
            file.attrs["model_config"] = json.dumps(changed(config, chance))
        return
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "config.json":
                content = json.dumps(changed(json.loads(content), chance)).encode()
            new.writestr(name, content)


def changed(config: Any, chance: random.Random) -> Any:
    """Return a configuration with one to three values replaced, or keys removed."""
    config = copy.deepcopy(config)
    for _ in range(chance.randint(1, 3)):
        places = list(_places(config))
        holder, key = chance.choice(places)
        if isinstance(holder, dict) and chance.random() < 0.1:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(chance.choice(_VALUES))
    return config


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield value, key
        if isinstance(item, dict | list):
            yield from _places(item)


def survivors(folder: Path, count: int, seed: int) -> list[Path]:
    """Return so many changed copies that pass the scan; anything but a ModelError raises."""
    sources, chance = saved_networks(folder), random.Random(seed)
    found: list[Path] = []
    for index in range(20 * count):
        source = sources[index % len(sources)]
        path = folder / f"{len(found):03d}{source.suffix}"
        reconfigured(source, path, chance)
        try:
            check_model_file(path)
        except ModelError:
            continue
        found.append(path)
        if len(found) == count:
            return found
    raise AssertionError(f"only {len(found)} passed the scan")


def loaded(paths: list[Path]) -> list[dict[str, Any]]:
    """Load files in one child after the other; a file at which one dies is followed by the next."""
    results: list[dict[str, Any]] = []
    while len(results) < len(paths):
        waiting = [str(path) for path in paths[len(results) :]]
        command = [sys.executable, "-m", "tests.attacks.load_child", *waiting]
        root = Path(__file__).parents[2]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        results += [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]
        if done.returncode:
            died = {"name": paths[len(results)].name, "outcome": f"died: {done.returncode}"}
            results.append({**died, "said": done.stderr[-1500:]})
    return results


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
def test_check_model_file_raises_only_model_errors_for_changed_configurations(
    tmp_path: Path,
) -> None:
    assert len(survivors(tmp_path, 15, seed=1)) == 15


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
def test_load_model_takes_bounded_time_and_memory_for_survivors_of_the_scan(
    tmp_path: Path,
) -> None:
    results = loaded(survivors(tmp_path, 200, seed=2))
    assert [r for r in results if r["outcome"] not in ("loaded", "refused")] == []
    assert [r for r in results if r["peak_bytes"] > _MOST_BYTES] == []
    assert [r for r in results if r["seconds"] > _MOST_S] == []
    assert {r["outcome"] for r in results} == {"loaded", "refused"}
