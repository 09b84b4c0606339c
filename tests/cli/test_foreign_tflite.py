"""Published .tflite files, as others made them, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import tf_keras as keras

from shrink.tflite.convert import convert
from shrink.tflite.model import packed, read, unpacked
from tests.cli.shell import read_report, shrink
from tests.compact.toys import with_old_codes


def two_outputs() -> bytes:
    x = keras.Input((8, 8, 3))
    y = keras.layers.Conv2D(4, 3, activation="relu")(x)
    return convert(keras.Model(x, [keras.layers.Conv2D(2, 1)(y), y]), "float16").content


def test_calibration_needs_no_targets(tmp_path: Path) -> None:
    """A float16 file of 2020 with two outputs, and inputs alone to calibrate on."""
    (tmp_path / "m.tflite").write_bytes(with_old_codes(two_outputs()))
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).random((40, 8, 8, 3), np.float32))
    words = ("quantize", "m.tflite", "--data", "x.npz", "--output", "run", "--json")
    report = json.loads(shrink(*words, cwd=tmp_path, store=tmp_path / "store").stdout)
    stage = report["stages"][-1]
    assert not stage["metrics"]
    assert any("no targets" in str(note) for note in stage["notes"])
    assert not any("trained on" in one["message"] for one in report["warnings"])
    (graph,) = read((tmp_path / "run" / stage["artifact"]).read_bytes())
    assert {graph.tensors[i].dtype for o in graph.operators for i in o.outputs} == {"INT8"}


def test_what_needs_targets_refuses_data_without_them(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(two_outputs())
    np.savez(tmp_path / "x.npz", x=np.zeros((40, 8, 8, 3), np.float32))
    words = ("quantize", "m.tflite", "--data", "x.npz", "--data-target", "none")
    mixed = ("--scheme", "mixed", "--metric-drop", "0.1")
    done = shrink(*words, *mixed, cwd=tmp_path, store=tmp_path / "store", expect=2)
    assert "needs targets: it has a budget of a metric" in done.stderr


def test_a_file_with_a_custom_operator_is_listed_and_not_run(tmp_path: Path) -> None:
    model = unpacked(two_outputs())
    code = model.operatorCodes[-1]
    code.builtinCode = code.deprecatedBuiltinCode = 32  # CUSTOM
    code.customCode = b"BodyDecoder"
    (tmp_path / "m.tflite").write_bytes(packed(model))
    shown = shrink("inspect", "m.tflite", "--json", cwd=tmp_path, store=tmp_path / "store")
    found = json.loads(shown.stdout)
    assert found["audit"]["custom_operators"] == ["BodyDecoder"]
    assert "BodyDecoder" in {operator["name"] for operator in found["operators"]}
    assert "BodyDecoder" in found["audit"]["litert_fails"]
    done = shrink("bench", "m.tflite", cwd=tmp_path, store=tmp_path / "store", expect=3)
    assert "LiteRT has no kernel for the custom operator BodyDecoder" in done.stderr


def test_evaluating_a_file_does_not_make_the_data_its_record(tmp_path: Path) -> None:
    model = keras.Sequential([keras.layers.Dense(3, input_shape=(4,))])
    (tmp_path / "m.tflite").write_bytes(convert(model, "float32").content)
    random = np.random.default_rng(0)
    for name, classes in (("a", ["ant", "bee", "cat"]), ("b", ["red", "green", "blue"])):
        y = np.array(classes)[np.arange(60) % 3]
        np.savez(tmp_path / f"{name}.npz", x=random.normal(size=(60, 4)).astype("f4"), y=y)
    for name in ("a", "b"):
        shrink(
            "evaluate", "m.tflite", "--data", f"{name}.npz", "--output", name,
            cwd=tmp_path, store=tmp_path / "store",
        )  # fmt: skip
    assert read_report(tmp_path / "b")["data"]["classes"] == ["blue", "green", "red"]
