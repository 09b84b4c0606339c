"""Quantization of a model to a TFLite artifact."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from shrink.base.errors import ModelError, StageError
from shrink.contract.choices import Choice
from shrink.contract.codec import to_plain
from shrink.contract.details import Details, MixedPrecision
from shrink.quantization.audit import audit, with_errors
from shrink.quantization.aware_model import aware_model
from shrink.quantization.calibration import CalibrationExamples, lint_calibration
from shrink.quantization.float_front import CoarseInput, coarse_inputs, undefined_tensors
from shrink.quantization.float_islands import coarse_islands, islands
from shrink.quantization.heads import mixed_ranges, split_outputs
from shrink.quantization.source import FloatModel, read_float_tflite
from shrink.quantization.trained_ranges import ranges_of_file
from shrink.stages.context import StageContext, StageResult
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.dense_scales import with_best_scales
from shrink.stages.quantize.mixed import mixed_artifact
from shrink.stages.quantize.noise import noise
from shrink.stages.quantize.schemes import SCHEMES, static_int8
from shrink.stages.quantize.scores import bound_scores
from shrink.tflite.arena import predict_in_micro, refused_operator
from shrink.tflite.convert import Conversion
from shrink.tflite.edit import with_metadata, with_ordered_borders
from shrink.tflite.interpreter import dequantize, load, random_values
from shrink.tflite.model import Subgraph, read
from shrink.tflite.names import Named
from shrink.tflite.serving import for_conversion
from shrink.tflite.sparse import with_sparse_constants
from shrink.tflite.weights import quantized_operators, weights

_INTEGERS = frozenset({"INT8", "UINT8", "INT16", "INT32", "INT64"})
_SAME_VALUES = frozenset(
    {"RESHAPE", "EXPAND_DIMS", "SQUEEZE", "TRANSPOSE", "SLICE", "STRIDED_SLICE", "SPLIT", "UNPACK"}
) | {"CAST"}


def with_exact_inputs(
    config: QuantizeConfig, source: FloatModel
) -> tuple[QuantizeConfig, tuple[str, ...]]:
    """Return the settings with float inputs where integers would change lookups.

    A layer such as Embedding truncates its input to a whole number. An input that is stored as
    scale * (q - zero point) comes back as 6.92 where 7 was given, and the sixth row is taken; above
    256 rows most of them cannot be represented.

    Args:
        config: of the stage.
        source: the float model; it is converted to float32 where the scheme has integer inputs.

    Returns:
        The settings, and a note where they are others.

    Raises:
        StageError: the settings name a type of the inputs that changes the numbers.
    """
    if config.artifact_input_type == "float32":
        return config, ()
    names = _looked_up(source)
    if not names:
        return config, ()
    which = ", ".join(names)
    if config.input_type is not None:
        raise StageError(
            f"inputs of type {config.input_type} would change the whole numbers that the model "
            f"looks up: {which}",
            hint="leave input_type out, or set it to float32; or build the model with an input of "
            "dtype int32",
        )
    note = (
        f"inputs stay float32: {which} holds whole numbers that the model looks up, and "
        f"{config.artifact_input_type} would round them"
    )
    return config.model_copy(update={"input_type": "float32"}), (note,)


def with_float_front(
    config: QuantizeConfig,
    source: FloatModel,
    context: StageContext,
    calibration: CalibrationExamples,
) -> tuple[QuantizeConfig, list[str]]:
    """Keep inputs float whose columns differ too much for one integer scale.

    Warns of each input that is too coarse and cannot stay float.

    Args:
        config: of the stage.
        source: gets the names of these operators' tensors as `floats`.
        context: of the stage.
        calibration: examples that say what rounding an input costs.

    Returns:
        The settings, with float inputs if operators stay float, and a note for each such input.
    """
    notes, floats = list[str](), set[str]()
    for coarse in _coarse(config, source, calibration):
        named = ", ".join(coarse.names)
        if not _may_be_float(config):
            hint = f"leave out input_type {config.input_type}: it can stay float32"
            context.warn("mixed-ranges", str(coarse), hint)
        elif coarse.front:
            floats.update(coarse.front)
            notes.append(f"{named} stays float32, and so does {', '.join(coarse.front)}: {coarse}")
        else:
            hint = _COARSE_INPUT_HINT if coarse.is_narrow else _FINER_HINT
            context.warn("mixed-ranges", str(coarse), hint)
    if floats:
        config = config.model_copy(update={"input_type": "float32"})
    undefined: Sequence[str] = ()
    if len(config.legal_types) > 1:  # else activations are float
        undefined = undefined_tensors(source.float32.content, calibration.batches())
    if undefined:
        notes.append(
            f"{', '.join(undefined)} stays float32: on examples values are not finite, or divisors "
            "are 0 in int8"
        )
    source.floats = frozenset({*floats, *undefined})
    return config, notes


def _coarse(
    config: QuantizeConfig, source: FloatModel, calibration: CalibrationExamples
) -> list[CoarseInput]:
    if len(config.legal_types) == 1:  # activations are float
        return []
    bits = 16 if config.scheme == "static_wi8_ai16" else 8
    found = coarse_inputs(source.float32.content, calibration.batches(_ROUNDED_ON), bits)
    exact = set(_looked_up(source))  # stay float32 anyway
    return [coarse for coarse in found if not exact.issuperset(coarse.names)]


def _looked_up(source: FloatModel) -> list[str]:
    """Return the inputs of whole numbers, without what the converter puts around their names."""
    truncated = truncated_inputs(read(source.float32.content)[0])
    return [name.removeprefix("serving_default_").partition(":")[0] for name in truncated]


def _may_be_float(config: QuantizeConfig) -> bool:
    return config.input_type in (None, "float32")


def truncated_inputs(graph: Subgraph) -> list[str]:
    """Return the names of the float inputs that an operator turns into integers."""
    names = []
    for index in graph.inputs:
        same, truncated = {index}, False
        for operator in graph.operators:
            if same.isdisjoint(operator.inputs):
                continue
            if operator.name == "CAST":
                truncated |= graph.tensors[operator.outputs[0]].dtype in _INTEGERS
            if operator.name in _SAME_VALUES:
                same.update(operator.outputs)
        if truncated and graph.tensors[index].dtype == "FLOAT32":
            names.append(graph.tensors[index].name)
    return names


_TRIED_ON = 4
_PROBABILITIES = frozenset({"SOFTMAX", "LOGISTIC"})
_ROUNDED_ON = 200
_FINE_NOISE = 10**-2.5
"""Noise of the outputs, as a part of their variance, that no operator is blamed for: 25 dB."""
_LEAST_GAIN = 0.5
"""Noise with floats, as a part of that without, that is worth them: 3 dB less."""
_FLOAT_OUTPUTS = "outputs become float32"
_FINER_HINT = "try scheme static_wi8_ai16 or dynamic_wi8_afp32, or rewrite the layer"
_COARSE_INPUT_HINT = (
    "let the model begin with a Normalization layer, adapted to the training examples, and train "
    "the layers behind it: it stays float; or give the model columns of one size "
    "(data.normalize scales all columns alike)"
)


def train_aware(
    config: QuantizeConfig, context: StageContext, calibration: CalibrationExamples
) -> tuple[FloatModel, StageResult]:
    """Train the stage's model under rounding; zeros and clusters of earlier stages stay.

    Returns:
        The float model with the trained weights, and what the report says of the training.

    Raises:
        ModelError: there is no Keras model with layers to train.
        StageError: a type would change indices, or TFLite Micro could not run the artifact.
    """
    path = context.input_path()
    if path.suffix == ".tflite" or context.input_graph_only():
        raise ModelError(
            "quantization-aware training needs the Keras model",
            subject=path,
            hint="start from the .keras or .h5 file, or leave out quantize.aware",
        )
    original = context.load()
    task = context.task(original)
    if not context.planning:
        # What would fail after the training, whatever the weights are then.
        source, on_micro = FloatModel(original), config.target == "tflm"
        early = config
        if config.input_type is not None or on_micro:
            early, _ = with_exact_inputs(config, source)
        if on_micro:
            context.phase("trying TFLite Micro")
            few = CalibrationExamples(
                context.dataset.train, _TRIED_ON, context.training.seed, context.dataset.input_names
            )
            artifact = static_int8(source, few, early)
            predict_in_micro(artifact.content, next(iter(few.batches())))
    context.phase("calibrating")
    with context.devices.scope():
        # A mean is trained as the mean that the artifact will have.
        rewritten, notes = for_conversion(original)
        coarse = _coarse(config, FloatModel(rewritten), calibration)
        float_inputs = bool(coarse) and _may_be_float(config)
        model = aware_model(rewritten, calibration.batches(), float_inputs=float_inputs)
    record = context.train(model.aware, task.objective(), config.epochs, task=task)
    source = model.source(calibration.batches())
    return source, StageResult(training=record, skipped=model.skipped, notes=notes)


_MIXED_HINT = (
    "give each part an output and a scale of its own: quantize: {split_outputs: true} for a "
    "detector, or a model with an output for each"
)
METADATA_ENTRY = "shrink"
"""Name of the metadata entry with labels, normalisation, and what inputs and outputs are."""


def run(config: QuantizeConfig, context: StageContext) -> StageResult:
    """Convert the model under the scheme and check that the scheme took hold."""
    path = context.input_path()
    is_keras = path.suffix != ".tflite" and not context.input_graph_only()
    if config.split_outputs and (not is_keras or config.aware):
        raise StageError(
            "split_outputs needs the Keras model, and no training for the scheme",
            subject=context.name,
            hint="start from the .keras or .h5 file, and leave aware out",
        )
    if config.split_outputs and context.task_config.decode is None:
        raise StageError(
            "split_outputs is for outputs that are decoded together",
            subject=context.name,
            hint="set task.decode, or build the model with an output for each part",
        )
    calibration = CalibrationExamples(
        context.dataset.train,
        config.calibration_samples,
        context.training.seed,
        context.dataset.input_names,
    )
    result = StageResult()
    if config.aware:
        source, result = train_aware(config, context, calibration)
    elif path.suffix == ".tflite":
        source = read_float_tflite(path)
    else:
        model = context.load()
        if context.has_targets:
            context.task(model)  # raises where model and data do not belong together
        source = FloatModel(split_outputs(model) if config.split_outputs else model)
    source.untrained = context.untrained
    notes: list[str] = []
    if not config.aware:
        config, notes = _with_ranges(source, config, context, calibration)
        notes += bound_scores(source, config, context, calibration)
    if config.aware or not source.ranges:
        config, front = with_float_front(config, source, context, calibration)
        notes += front
    context.phase("converting")
    conversion, details = _converted(source, calibration, config, context)
    content = conversion.content
    notes += [*conversion.notes, *(choice.sentence for choice in details.choices)]
    if config.traits.calibrates:
        notes += lint_calibration(calibration, context.dataset.class_names)
    examples = next(iter(calibration.batches())) if context.has_data else _random_inputs(content)
    if config.sparse:
        content, sentence = _stored_sparsely(content, examples)
        notes.append(sentence)
    content = _with_interface(content, config, context)
    context.phase("auditing")
    candidate = context.work / "audited.tflite"
    compared_on = "training examples" if context.has_data else "random inputs"
    audited, remarks = audit(content, source, examples, config.target, candidate, compared_on)
    notes += remarks
    if source.model is None and audited.float_islands:
        context.warn(
            "float-operators",
            f"these operators stay float: {', '.join(sorted(set(audited.float_islands)))}",
            "start from the Keras model, which the TFLite converter quantizes; each float operator "
            "between integer ones costs two conversions",
        )
    details = replace(details, audit=audited)
    _warn_of_mixed_ranges(content, source, examples, context)

    def later() -> Details:
        return Details(audit=with_errors(audited, content, source, examples))

    notes = [*result.notes, *notes]
    return replace(result, tflite=content, notes=notes, details=details, later=later)


_RANDOM_INPUTS = 16


def _random_inputs(content: bytes) -> Named:
    rng = np.random.default_rng(0)
    return {
        one.name: dequantize(
            random_values(rng, (_RANDOM_INPUTS, *one.shape[1:]), one.dtype), one
        ).astype(np.float32)
        for one in load(content).input_details
    }


def _converted(
    source: FloatModel,
    calibration: CalibrationExamples,
    config: QuantizeConfig,
    context: StageContext,
) -> tuple[Conversion, Details]:
    """Return the conversion and what the report says about it."""
    mixed: MixedPrecision | None = None
    choices: tuple[Choice, ...] = ()
    config, kept_float = with_exact_inputs(config, source)
    if config.scheme == "mixed":
        if config.activations == "int8" and islands(read(source.float32.content)[0]):
            one = config.model_copy(update={"scheme": "static_wi8_ai8"})
            trial = SCHEMES["static_wi8_ai8"](source, calibration, one)
            kept_float += keep_islands_float(source, trial, calibration, one, context)
        conversion, mixed = mixed_artifact(
            source,
            calibration,
            config,
            context,
            lambda content: len(_with_interface(_in_order_of(source, content), config, context)),
        )
    else:
        conversion, choices = with_best_scales(source, calibration, config)
        if config.scheme == "static_wi8_ai8" and not context.untrained:
            few = calibration.batches(_TRIED_ON)
            found = keep_islands_float(source, conversion, calibration, config, context)
            if found:
                kept_float += found
                conversion, choices = with_best_scales(source, calibration, config)
            if config.target == "tflm":
                example = {name: array[:1] for name, array in next(iter(few)).items()}
                while found := keep_float_for_micro(source, conversion, example):
                    kept_float += found
                    conversion, choices = with_best_scales(source, calibration, config)
    if config.artifact_output_type != "float32" and not any(
        _FLOAT_OUTPUTS in n for n in kept_float
    ):
        kept_float += _float_outputs(conversion.content, source.floats)
    conversion = Conversion(
        _in_order_of(source, conversion.content), (*conversion.notes, *kept_float)
    )
    if config.traits.is_integer and quantized_operators(conversion.content) == 0:
        raise StageError(
            f"{config.scheme} quantized no operator of this model",
            subject=context.name,
            hint="it has no convolution or dense layer; try static_wi8_ai8",
        )
    tensors = [tensor for graph in read(conversion.content) for tensor in graph.tensors]
    if config.scheme == "float16" and not any(t.dtype == "FLOAT16" and t.constant for t in tensors):
        raise StageError(
            "float16 stored no constant of this model as float16",
            subject=context.name,
            hint="it has no kernel of floating-point numbers; `shrink inspect` lists its operators",
        )
    return conversion, Details(mixed=mixed, choices=choices)


def keep_islands_float(
    source: FloatModel,
    conversion: Conversion,
    calibration: CalibrationExamples,
    config: QuantizeConfig,
    context: StageContext,
) -> tuple[str, ...]:
    """Leave operators float that int8 is too coarse for, if the outputs gain by it.

    Warns of those that floats do not help either.

    Args:
        source: gets the names of their tensors among its `floats`.
        conversion: the int8 model as it is.
        calibration: examples.
        config: of static_wi8_ai8.
        context: of the stage.

    Returns:
        A note if operators stay float, else nothing.
    """
    few = calibration.batches(_ROUNDED_ON)
    if (lost := noise(conversion, source, few)) < _FINE_NOISE:
        return ()
    graph = read(source.float32.content)[0]
    borders = {graph.tensors[index].name for index in graph.outputs}
    found = coarse_islands(conversion.content, source.float32.content, next(iter(few)))
    if config.integer_outputs:
        found = [island for island in found if borders.isdisjoint(island.outputs)]
    if not found:
        return ()
    before, texts = source.floats, ", ".join(map(str, found))
    source.floats = before | {name for island in found for name in island.outputs}
    gained = noise(SCHEMES[config.scheme](source, calibration, config), source, few)
    helps = gained <= _LEAST_GAIN * lost
    if (left := gained if helps else lost) >= _FINE_NOISE:
        context.warn(
            "coarse-operators",
            f"the outputs of the int8 model have an SNR of {-10 * np.log10(left):.1f} dB; most "
            f"noise comes from {texts}{', or from what these read' if helps else ''}",
            _FINER_HINT,
        )
    if not helps:
        source.floats = before
        return ()
    decibels = f"{-10 * np.log10(lost):.1f} to {-10 * np.log10(gained):.1f} dB"
    written = borders & {name for island in found for name in island.outputs}
    return (
        f"int8 is too coarse for {texts}, so it stays float; SNR of the outputs: {decibels}"
        + (f", {_FLOAT_OUTPUTS}" if written else ""),
    )


def keep_float_for_micro(
    source: FloatModel, conversion: Conversion, example: Named
) -> tuple[str, ...]:
    """Leave operators float that TFLite Micro has no integer kernel for, such as SQRT and EXP.

    Returns:
        A note if there are new ones, else nothing: the artifact runs, or floats do not help.
    """
    try:
        predict_in_micro(conversion.content, example)
    except StageError as error:
        kind = refused_operator(error.message)
        graph = read(source.float32.content)[0]
        found = islands(graph, {kind} if kind else ())
        names = {name for island in found for name in island.outputs}
        if names <= source.floats:
            return ()
        source.floats |= names
        texts = ", ".join(map(str, found))
        return (f"stays float, as TFLite Micro has no integer kernel of {kind}: {texts}",)
    return ()


def _float_outputs(content: bytes, floats: Collection[str]) -> tuple[str, ...]:
    """Return a note if outputs of an artifact are float32 because their operators are."""
    graph = read(content)[0]
    outputs = [graph.tensors[i] for i in graph.outputs]
    names = [one.name for one in outputs if one.dtype == "FLOAT32" and one.name in floats]
    return (f"{_FLOAT_OUTPUTS}: {', '.join(names)}",) if names else ()


def _with_interface(content: bytes, config: QuantizeConfig, context: StageContext) -> bytes:
    """Return the artifact with its interface inside, where the recipe asks for it."""
    if not config.embed_metadata:
        return content
    usage = context.usage(content)
    return with_metadata(content, METADATA_ENTRY, json.dumps(to_plain(usage)).encode())


def _in_order_of(source: FloatModel, content: bytes) -> bytes:
    """Return the artifact with its inputs and outputs in the float model's order."""
    inputs, outputs = source.border_names()
    if len(inputs) == len(outputs) == 1:
        return content
    return with_ordered_borders(content, inputs, outputs)


def _stored_sparsely(content: bytes, examples: Named) -> tuple[bytes, str]:
    """Return the smaller of both files, and a sentence on what leaving out zeros saves."""
    sparse = with_sparse_constants(content)
    kernels = [tensor for tensor in weights(sparse) if tensor.sparse]
    if not kernels or len(sparse) >= len(content):
        return content, "sparse: leaving zeros out of its kernels would not shrink the file"
    before, after = (load(one).predict(examples) for one in (content, sparse))
    if not all(np.array_equal(*pair) for pair in zip(before, after, strict=True)):
        return content, "sparse: not used, as LiteRT gives other outputs without the zeros"
    saved = f"zeros are left out of {len(kernels)} kernel{'s' if len(kernels) > 1 else ''}"
    return sparse, f"sparse: {saved}: {len(content):,} bytes became {len(sparse):,}"


def _with_ranges(
    source: FloatModel,
    config: QuantizeConfig,
    context: StageContext,
    calibration: CalibrationExamples,
) -> tuple[QuantizeConfig, list[str]]:
    """Give a model the ranges that it was trained with elsewhere.

    Returns:
        The settings, with a scale for each dense kernel as in tfmot's training unless they say
        otherwise, and a note.
    """
    trained = context.imported.ranges
    if not trained or config.scheme != "static_wi8_ai8" or source.model is None:
        return config, []
    context.phase("matching trained ranges")
    source.ranges = ranges_of_file(source, trained, calibration.batches())
    note = (
        f"{len(source.ranges)} activations of the artifact have ranges that came with the model "
        f"({len(trained)} did); the others were calibrated"
    )
    if source.ranges and config.dense_scales == "auto":
        config = config.model_copy(update={"dense_scales": "tensor"})
    return config, [note]


def _warn_of_mixed_ranges(
    content: bytes, source: FloatModel, examples: Named, context: StageContext
) -> None:
    """Say where one scale of an integer output leaves hardly any values for a part of it."""
    details = load(content).output_details
    if not any(detail.scale for detail in details):
        return
    outputs = load(source.float32.content).predict(examples)
    graph = read(content)[0]
    made = {index: operator.name for operator in graph.operators for index in operator.outputs}
    for detail, values in zip(details, outputs, strict=True):
        if made.get(detail.index) in _PROBABILITIES:
            continue  # their kernels write steps of 1/256, whatever the examples are
        mixed = mixed_ranges(detail.name, values, detail.scale)
        if mixed is not None:
            context.warn("mixed-ranges", str(mixed), _MIXED_HINT)
