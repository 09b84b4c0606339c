"""`shrink bench`: figures of one artifact on this machine."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.shell import shrink
from tests.tflite.toys import small_cnn, to_float32


def test_bench_measures_latency_and_refuses_a_keras_model(tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_bytes(to_float32(small_cnn()))
    store = tmp_path / "store"
    done = shrink("bench", "model.tflite", "--threads", "2", "--json", cwd=tmp_path, store=store)
    found = json.loads(done.stdout)
    assert 0 < found["p50_ms"] <= found["p90_ms"]
    assert found["inferences_per_s"] == 1000 / found["p50_ms"]
    assert found["threads"] == 2
    assert found["file_bytes"] == (tmp_path / "model.tflite").stat().st_size
    small_cnn().save(tmp_path / "model.keras")
    refused = shrink("bench", "model.keras", cwd=tmp_path, store=store, expect=3)
    assert "shrink quantize" in refused.stderr


def test_bench_names_a_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "broken.tflite").write_bytes(b"nothing of the kind")
    done = shrink("bench", "broken.tflite", cwd=tmp_path, store=tmp_path / "store", expect=3)
    assert "broken.tflite" in done.stderr
