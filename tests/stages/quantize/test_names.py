"""int8 and every other scheme of models with several inputs and outputs, whatever their names.

What is expected comes from numpy and from LiteRT's signature runner, which feeds by name.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tf_keras as keras
from ai_edge_litert.interpreter import Interpreter

from shrink.stages.context import StageContext, StageResult
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.run import run
from shrink.task.artifact import evaluate_artifact
from shrink.tflite import convert
from tests.jobs import context_of

L = keras.layers

COUNT = 160
WIDTHS = {"same": (6, 6, 6), "different": (6, 4, 3)}
SPREADS = (1.0, 100.0, 10.0)


def _inputs(names: tuple[str, ...], widths: tuple[int, ...]) -> list[np.ndarray]:
    """Arrays of very different spreads, in the order of the model's inputs."""
    rng = np.random.default_rng(0)
    sizes = zip(names, widths, SPREADS, strict=False)
    return [(s * rng.normal(size=(COUNT, w))).astype(np.float32) for _, w, s in sizes]


def _model(names: tuple[str, ...], widths: tuple[int, ...], form: str = "list") -> keras.Model:
    """Sums of the inputs at one scale, of three classes; `two` has another output before it."""
    keras.utils.set_random_seed(0)
    inputs = [L.Input((w,), name=n) for n, w in zip(names, widths, strict=False)]
    scaled = [L.Rescaling(1 / s)(x) for x, s in zip(inputs, SPREADS, strict=False)]
    joined = L.Concatenate()(scaled)
    if form == "nested":
        inner = L.Input(joined.shape[1:])
        hidden = keras.Model(inner, L.Dense(16, activation="relu")(inner), name="inner")(joined)
    else:
        hidden = L.Dense(16, activation="relu")(joined)
    classes = L.Dense(3, name="classes")(hidden)
    given: Any = dict(zip(names, inputs, strict=True)) if form == "dict" else inputs
    if form == "two":
        first, second = L.Dense(2, name="zebra")(hidden), L.Dense(3, name="ape")(hidden)
        return keras.Model(given, [first, second])
    return keras.Model(given, classes)


def _context(folder: Path, names: tuple[str, ...], model: keras.Model, **keys: Any) -> StageContext:
    """The model with labels that it gives itself, so that it is right on every example."""
    widths = tuple(tensor.shape[-1] for tensor in model.inputs)
    own = dict(zip(names, _inputs(names, widths), strict=True))
    outputs = model([own[name] for name in model.input_names])
    outputs = outputs if isinstance(outputs, list) else [outputs]
    labels = {n: np.argmax(o, 1) for n, o in zip(model.output_names, outputs, strict=True)}
    np.savez(folder / "data.npz", **{**own, **labels})
    model.save(folder / "model.keras")
    data = {"source": "npz", "path": str(folder / "data.npz"), "inputs": names}
    data = {**data, "targets": tuple(labels), **keys}
    inputs = {"model": folder / "model.keras"}
    training = {"global_batch_size": 32, "micro_batch_size": 32}
    return context_of(folder, kind="quantize", inputs=inputs, data=data, training=training)


def _signature(content: bytes) -> Any:
    return Interpreter(model_content=content).get_signature_runner()


def _agreement(content: bytes, model: keras.Model, arrays: Mapping[str, np.ndarray]) -> float:
    """The share of examples whose class LiteRT, fed by name, and Keras agree on."""
    runner = _signature(content)
    details, results = runner.get_input_details(), runner.get_output_details()
    found: list[int] = []
    for row in range(40):
        feed = {}
        for name, detail in details.items():
            value = arrays[name][row : row + 1]
            scale, zero = detail["quantization"]
            if scale:
                limits = np.iinfo(detail["dtype"])
                value = np.clip(np.rint(value / scale) + zero, limits.min, limits.max)
            feed[name] = value.astype(detail["dtype"])
        outputs = runner(**feed)
        last = model.output_names[-1]
        found.append(int(np.argmax(outputs[last if last in results else "output_0"])))
    expected = model([arrays[name][:40] for name in model.input_names])
    expected = expected[-1] if isinstance(expected, list) else expected
    return float(np.mean(np.argmax(expected, 1) == found))


def _check(result: StageResult, names: tuple[str, ...], model: keras.Model) -> None:
    content = result.tflite
    assert content is not None
    widths = tuple(tensor.shape[-1] for tensor in model.inputs)
    arrays = dict(zip(names, _inputs(names, widths), strict=True))
    assert _agreement(content, model, arrays) >= 0.9
    for name, detail in _signature(content).get_input_details().items():
        scale, _ = detail["quantization"]
        if scale and detail["dtype"] == np.int8:
            assert scale == pytest.approx(np.ptp(arrays[name]) / 255, rel=0.2)


NAMES = [("a", "b"), ("b", "a"), ("z_image", "meta"), ("image", "meta"), ("q", "c", "k")]
FORMS = [("list", "same"), ("list", "different"), ("two", "same")]
QUICK = {(NAMES[3], FORMS[1]), (NAMES[4], FORMS[2])}
CASES = [
    pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
    for case in itertools.product(NAMES, FORMS)
]


@pytest.mark.parametrize(("names", "form"), CASES)
def test_int8_gives_each_input_the_scale_of_its_own_data(
    tmp_path: Path, names: tuple[str, ...], form: tuple[str, str]
) -> None:
    model = _model(names, WIDTHS[form[1]], form[0])
    context = _context(tmp_path, names, model)
    result = run(QuantizeConfig(), context)
    _check(result, names, model)
    assert any(note.startswith("agreement of outputs") for note in result.notes)
    (tmp_path / "q.tflite").write_bytes(result.tflite or b"")
    task = context.task(model)
    found = evaluate_artifact(tmp_path / "q.tflite", context.dataset.test, task)
    assert found.defined("accuracy") >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dict", "nested"])
def test_int8_of_dict_and_nested_models(tmp_path: Path, form: str) -> None:
    names = ("b", "a")
    model = _model(names, WIDTHS["same"], form)
    _check(run(QuantizeConfig(), _context(tmp_path, names, model)), names, model)


@pytest.mark.parametrize(
    "config",
    [
        {"scheme": "weight_only_wi4_afp32"},
        {"scheme": "static_wi8_ai8", "target": "tflm"},
        pytest.param({"scheme": "static_wi8_ai16"}, marks=pytest.mark.slow),
        pytest.param({"scheme": "dynamic_wi8_afp32"}, marks=pytest.mark.slow),
        pytest.param({"scheme": "mixed", "accuracy_drop": 0.5}, marks=pytest.mark.slow),
        pytest.param({"aware": True, "epochs": 1}, marks=pytest.mark.slow),
    ],
)
def test_every_scheme_feeds_by_name(tmp_path: Path, config: dict[str, Any]) -> None:
    names = ("a", "b")
    labelled = config.get("scheme") == "mixed"  # its budget is of labels of one output
    model = _model(names, WIDTHS["same"], "list" if labelled else "two")
    context = _context(tmp_path, names, model)
    _check(run(QuantizeConfig.model_validate(config), context), names, model)


def test_arrays_of_the_models_names_may_stand_in_any_order(tmp_path: Path) -> None:
    names = ("z", "a")
    model = _model(names, WIDTHS["same"], "two")
    found = []
    for order in (slice(None), slice(None, None, -1)):
        context = _context(
            tmp_path, names, model, inputs=names[order], targets=("zebra", "ape")[order]
        )
        result = run(QuantizeConfig(), context)
        _check(result, names, model)
        (tmp_path / "q.tflite").write_bytes(result.tflite or b"")
        task = context.task(model)
        found.append(evaluate_artifact(tmp_path / "q.tflite", context.dataset.test, task))
        assert not [note for note in context.dataset.notes if "by position" in note]
    assert found[0].metrics == found[1].metrics
    assert found[0].defined("accuracy") >= 0.9


def test_int8_feeds_by_name_where_the_file_has_another_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files keep the model's order here; those of others come as their converter left them."""
    monkeypatch.setattr(convert, "with_ordered_borders", lambda content, inputs, outputs: content)
    names = ("a", "b")
    model = _model(names, WIDTHS["same"])
    _check(run(QuantizeConfig(), _context(tmp_path, names, model)), names, model)
