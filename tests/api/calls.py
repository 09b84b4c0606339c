"""Calls of the Python interface, made in a process of their own; see `tests.forks.call`."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

shrink: Any = importlib.import_module("shrink")
"""Its mistakes are made on purpose."""


def _splits(folder: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    os.chdir(folder)
    random = np.random.default_rng(0)
    x = random.normal(size=(90, 4)).astype(np.float32)
    y = np.arange(90) % 3
    return {"train": (x[:60], y[:60]), "test": (x[60:], y[60:])}


class Model:
    """Stands for a model of Keras, which saves itself.

    TensorFlow's threads would not survive the fork of a worker; tests/api/test_keras_models.py
    saves real ones.
    """

    __module__ = "tf_keras.src.engine.training"
    name = "toy"

    def __init__(self, saved: str = "toy.keras") -> None:
        self._saved = saved

    def save(self, path: str) -> None:
        """Write what a real model had saved."""
        shutil.copyfile(self._saved, path)


def _built(factory: Any) -> Any:
    factory.utils.set_random_seed(0)
    layers = factory.layers
    model = factory.Sequential(
        [layers.Input((4,)), layers.Dense(8, activation="relu"), layers.Dense(3)], name="toy"
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def _told(run: Any) -> dict[str, Any]:
    return {
        "artifact": str(run.artifact),
        "statuses": [stage.status for stage in run.stages],
        "metrics": dict(run.stages[-1].metrics),
        "figures": dict(run.figures),
        "recipe": run.report.recipe.sha256,
        "folder": str(run.folder),
    }


def quantize_file(folder: str, **keys: Any) -> dict[str, Any]:
    """Quantize `toy.keras` on `toy.npz`, as a user would in a script."""
    os.chdir(folder)
    keys = {"model": "toy.keras", "data": "toy.npz", "quiet": True, **keys}
    return _told(shrink.quantize(**keys))


def save_toy(folder: str) -> None:
    """Save a model and its data where a command line finds them."""
    import tf_keras

    splits = _splits(folder)
    _built(tf_keras).save("toy.keras")
    arrays = {f"{n}_{s}": a for s, pair in splits.items() for n, a in zip("xy", pair, strict=True)}
    np.savez("toy.npz", **arrays)  # type: ignore[arg-type]


def chain(folder: str) -> list[dict[str, Any]]:
    """Prune a model in memory, quantize the run, and do the first again; print what is shown."""
    splits, model = _splits(folder), Model()
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        pruned = shrink.prune(model, splits, sparsity=0.5, epochs=1, seed=3)
        quantized = shrink.quantize(pruned, scheme="float16", output=Path("q"))
        again = shrink.prune(model, splits, sparsity=0.5, epochs=1, seed=3, output="again")
    shown = {
        "stdout": out.getvalue(),
        "stderr": err.getvalue(),
        "text": str(quantized),
        "repr": repr(quantized),
        "html": quantized._repr_html_(),
        "cache": os.environ["SHRINK_CACHE_DIR"],
    }
    return [_told(pruned), _told(quantized), _told(again), shown]


def real(folder: str) -> list[dict[str, Any]]:
    """Distill a model of Keras 3 into a narrower one, on a data set of batches.

    Workers have interpreters of their own.
    """
    import subprocess

    import keras
    import tensorflow as tf

    child: Any = importlib.import_module("shrink.base.child")
    child.subprocess = subprocess  # in place of forks
    splits, model = _splits(folder), _built(keras)
    data = {name: tf.data.Dataset.from_tensor_slices(p).batch(7) for name, p in splits.items()}
    run = shrink.distill(model, {"width": 0.5}, data, epochs=1, quiet=True)
    other = shrink.quantize(model, splits, scheme="float16", quiet=True)
    return [_told(run), _told(other)]


def compared(folder: str) -> dict[str, Any]:
    """Put two runs side by side."""
    splits = _splits(folder)
    first = shrink.evaluate(Model(), splits, quiet=True)
    second = shrink.quantize(Model(), splits, scheme="float16", quiet=True)
    side = shrink.compare(first, second, output="page")
    return {
        "rows": [row.stage for row in side.rows],
        "runs": [str(run.folder) for run in side.runs],
        "text": str(side),
        "repr": repr(side),
        "html": side._repr_html_(),
        "loaded": shrink.load_run(first.folder).name,
    }


def recipes(folder: str) -> list[Any]:
    """Run a recipe in memory and sweep it; a gate is missed."""
    splits, model = _splits(folder), Model()
    recipe = {
        "name": "memory",
        "model": model,
        "data": splits,
        "stages": [{"prune": {"sparsity": 0.5}}],
        "gates": {"file_bytes": 10},
    }
    run = shrink.run(recipe, set={"prune.sparsity": 0.7}, quiet=True)
    swept = shrink.sweep(recipe, set={"prune.sparsity": [0.7, 0.8]}, quiet=True)
    return [
        {**_told(run), "passed": run.passed, "exit_code": run.exit_code},
        [dict(row.settings) for row in swept.rows],
        [str(one.folder) for one in swept.runs],
        swept.exit_code,
    ]


def failures(folder: str) -> list[list[Any]]:
    """Make mistakes, and return what is told of each."""
    splits, model = _splits(folder), Model()
    x, y = splits["train"]
    mistakes = [
        lambda: shrink.prune(model, splits, sparsty=0.5),
        lambda: shrink.prune(model, splits, sparsity=2.0),
        lambda: shrink.evaluate(model, splits, epochs=3),
        lambda: shrink.quantize(model),
        lambda: shrink.quantize("nowhere.keras", "digits"),
        lambda: shrink.quantize(_splits, "digits"),
        lambda: shrink.quantize(3, "digits"),
        lambda: shrink.quantize(model, (x, y[:50])),
        lambda: shrink.quantize(model, {"trian": (x, y)}),
        lambda: shrink.run("digitz"),
        lambda: shrink.sweep("digits"),
        lambda: shrink.load_run("nowhere"),
        lambda: shrink.quantize(model, splits, output=3),
        lambda: shrink.prune(model, splits, sparsity=0.5, epochs=2, optimizer_lr=1.0),
        lambda: shrink.prune(model, splits, sparsity=1e-6),
    ]
    told = []
    for mistake in mistakes:
        try:
            mistake()  # type: ignore[no-untyped-call]
        except shrink.ShrinkError as error:
            folder_of = None if error.folder is None else str(error.folder)
            told.append([type(error).__name__, error.exit_code, str(error), folder_of])
    return told


def interrupted(folder: str) -> list[str]:
    """Press Ctrl-C as a stage trains."""
    import signal

    from shrink.base.console import Console

    splits, model = _splits(folder), Model()
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def press(self: Console, activity: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    Console.show = press  # type: ignore[method-assign]
    try:
        shrink.train(model, splits, epochs=100_000, quiet=True)
    except KeyboardInterrupt as error:
        back = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        return [str(error), type(error.__cause__).__name__, str(back)]
    finally:
        signal.signal(signal.SIGINT, before)
    return []


def searched(folder: str) -> Any:
    """Search the recipe that is there."""
    from shrink.contract.codec import to_plain

    os.chdir(folder)
    return to_plain(shrink.search("found.yaml", output="api", quiet=True).document)
