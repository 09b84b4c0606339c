"""Verbs that follow a run: the same test examples, and the figures of the model it began with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.cli.shell import read_report, shrink, stage

MODEL = """
import tf_keras as keras
def build():
    inputs = keras.layers.Input((16,))
    hidden = keras.layers.Dense(256, activation="relu")(inputs)
    return keras.Model(inputs, keras.layers.Dense(4)(hidden))
"""


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train on labels that mean nothing: any accuracy far from a quarter is a leak."""
    root = tmp_path_factory.mktemp("chain")
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 16)).astype(np.float32)
    np.savez(root / "noise.npz", x=x, y=random.integers(0, 4, 400))
    (root / "model.py").write_text(MODEL)
    flags = ("--epochs", "30", "--optimizer-learning-rate", "0.01", "--seed", "7", "--output", "a")
    shrink("train", "model.py:build", "--data", "noise.npz", *flags, cwd=root, store=root / "store")
    return root


def test_evaluate_reports_what_the_run_reported_when_data_is_named_again(chain: Path) -> None:
    done = shrink("evaluate", "a", "--json", cwd=chain, store=chain / "store")
    words = ("evaluate", "a", "--data", "noise.npz", "--no-cache", "--output", "b")
    shrink(*words, cwd=chain, store=chain / "store")
    first, second = read_report(chain / "a"), read_report(chain / "b")
    assert stage(second, "baseline")["metrics"] == stage(first, "train")["metrics"]
    assert stage(first, "train")["metrics"]["accuracy"] < 0.45  # of 80: 4 standard errors
    told = {warning["code"] for warning in second["warnings"]}
    assert told <= {"few-test-examples", "baseline-at-chance"}  # nothing of examples seen before
    kept, measured = json.loads(done.stdout)["stages"][0], stage(second, "baseline")
    # Whether the run brings its data or the command names it, figures and notes are the same, but
    # for the memory of the process.
    for one in (kept, measured):
        assert one["memory"]["stage_host_peak_bytes"] > 100e6
        del one["memory"]["stage_host_peak_bytes"], one["delta"]["stage_host_peak_bytes"]
        for name in ("status", "measured", "duration_s", "latency", "artifact", "sha256"):
            del one[name]
        for output in one["details"]["task"]["outputs"]:
            output.pop("loss_by")
        one["details"]["task"].pop("metrics_by")
        one["notes"] = [note for note in one["notes"] if not note.startswith("task:")]
        one["size"].pop("gzip_bytes")  # a Keras archive holds the time when it was written
    assert kept == measured


def test_evaluate_elsewhere_tests_what_the_record_says(chain: Path, tmp_path: Path) -> None:
    """The artifact, its record and the data travel; the run folder and the cache do not."""
    trained = read_report(chain / "a")
    for file in ("00-train.keras", "metadata.json"):
        shutil.copyfile(chain / "a" / "artifacts" / file, tmp_path / file)
    x, y = (np.load(chain / "noise.npz")[name] for name in "xy")
    np.savez(tmp_path / "same.npz", x=x, y=y)
    np.savez(tmp_path / "new.npz", x=x[:50] + 1, y=y[:50])
    examples = dict[str, int]()
    for data in ("same", "new"):
        words = ("evaluate", "00-train.keras", "--data", f"{data}.npz", "--output", data)
        shrink(*words, cwd=tmp_path, store=tmp_path / "store")
        found = stage(read_report(tmp_path / data), "baseline")
        examples[data] = found["examples"]
        if data == "same":
            assert found["metrics"] == stage(trained, "train")["metrics"]
    assert examples == {"same": 80, "new": 50}
    # Where what the run trained on is known, it is left out of other data.
    shutil.copytree(chain / "a" / "splits", tmp_path / "splits")
    (tmp_path / "artifacts").mkdir()
    for file in ("00-train.keras", "metadata.json"):
        (tmp_path / file).rename(tmp_path / "artifacts" / file)
    np.savez(tmp_path / "mixed.npz", x=np.concatenate([x, x[:7] + 1]), y=np.append(y, y[:7]))
    model = "artifacts/00-train.keras"
    words = ("evaluate", model, "--data", "mixed.npz", "--output", "mixed")
    shrink(*words, cwd=tmp_path, store=tmp_path / "store")
    mixed = read_report(tmp_path / "mixed")
    assert stage(mixed, "baseline")["examples"] == 80 + 7
    assert "trained-examples-left-out" in {one["code"] for one in mixed["warnings"]}


def test_the_same_test_examples_in_another_file_compare(chain: Path, tmp_path: Path) -> None:
    def command(*words: str) -> str:
        return shrink(*words, cwd=tmp_path, store=tmp_path / "store").stdout

    random = np.random.default_rng(1)
    x, y = random.normal(size=(120, 16)).astype(np.float32), random.integers(0, 4, 120)
    split = {"x_train": x[:80], "y_train": y[:80], "x_test": x[80:], "y_test": y[80:]}
    np.savez(tmp_path / "all.npz", **split)  # type: ignore[arg-type]
    np.savez(tmp_path / "again.npz", x_test=x[:79:-1], y_test=y[:79:-1])
    np.savez(tmp_path / "others.npz", x_test=x[80:], y_test=1 - y[80:] % 2)
    shutil.copyfile(chain / "model.py", tmp_path / "model.py")
    command("train", "model.py:build", "--data", "all.npz", "--epochs", "1", "--output", "first")
    command("quantize", "first", "--scheme", "float16", "--output", "half")
    for data, same in (("again", True), ("others", False)):
        command("evaluate", "half", "--data", f"{data}.npz", "--output", data)
        found = read_report(tmp_path / data)
        assert found["stages"][0]["examples"] == 40
        assert found["chain"]["same_examples"] is same
        assert found["stages"][0]["delta_origin"]["accuracy"]["low"] is None  # another order
        assert ("was measured on other data" in command("diff", "half", data)) is not same
