"""Every metric: its name, arguments, direction, unit, range, and the outputs that it goes with.

A metric is called by a key, which is its name with the arguments that it has: `f1_macro`,
`recall_cat`, `top_k_3`. All that is known of a metric before any data is seen follows from its key
alone, so that gates, reports and renderings of saved reports need nothing else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from shrink.base.errors import hint_for
from shrink.base.foreign import JsonObject
from shrink.base.losses import Kind, kind_of_loss

_REAL: frozenset[Kind] = frozenset({"values"})
_BINARY: frozenset[Kind] = frozenset({"labels"})
_CLASSES: frozenset[Kind] = frozenset({"classes"})
_LABELS: frozenset[Kind] = _CLASSES | _BINARY
_BOXES: frozenset[Kind] = frozenset({"boxes"})

MetricUnit = Literal["fraction", "none", "per_hour"]
Range: TypeAlias = tuple[float, float]
Argument: TypeAlias = str | float


@dataclass(frozen=True)
class Parameter:
    """An argument of a metric.

    Attributes:
        name: the key in a recipe's mapping.
        default: where it is left out; None where it has none.
        low, high: a number lies strictly between them.
        whole: whether it is a whole number.
        is_class: whether it names a class; such a parameter is the last.
        needed: whether the metric cannot do without.
    """

    name: str
    default: float | None = None
    low: float = 0.0
    high: float = math.inf
    whole: bool = False
    is_class: bool = False
    needed: bool = False


@dataclass(frozen=True)
class MetricInfo:
    """What is known of a metric before any data is seen.

    Attributes:
        higher_is_better: whether a drop is a loss.
        kinds: those of the outputs that it makes sense for.
        unit: fractions are shown in percent, their differences in points.
        range: what the value and its interval cannot leave; infinite where there is no end.
        parameters: its arguments, in the order of the key.
        is_mean: whether it is a mean over examples, the interval of which has a closed form.
        needs_logits: whether it matters that outputs are logits and not probabilities.
        needs_slices: whether it looks at the slices of examples, which only test examples have.
    """

    higher_is_better: bool
    kinds: frozenset[Kind]
    unit: MetricUnit = "none"
    range: Range | None = None
    parameters: tuple[Parameter, ...] = ()
    is_mean: bool = True
    needs_logits: bool = False
    needs_slices: bool = False

    @property
    def is_of_real_targets(self) -> bool:
        """Whether it belongs to a regression."""
        return self.kinds == _REAL


_UNIT: Range = (0.0, 1.0)
_POSITIVE: Range = (0.0, math.inf)
_CLASS = (Parameter("class", is_class=True),)


def _share(*parameters: Parameter, is_mean: bool = False) -> MetricInfo:
    """Return a share of 0 to 1 of what a classifier decides, shown in percent."""
    return MetricInfo(True, _LABELS, "fraction", _UNIT, parameters, is_mean, needs_logits=True)


def _ranked(*parameters: Parameter) -> MetricInfo:
    return MetricInfo(True, _LABELS, "none", _UNIT, parameters, False, needs_logits=True)


def _found() -> MetricInfo:
    """Return a mean average precision of COCO, over all classes or of one."""
    return MetricInfo(True, _BOXES, "fraction", _UNIT, _CLASS, is_mean=False)


def _error(*parameters: Parameter, is_mean: bool = True) -> MetricInfo:
    return MetricInfo(False, _REAL, "none", _POSITIVE, parameters, is_mean)


_NORMAL = Parameter("normal", is_class=True, needed=True)


def _anomaly(*parameters: Parameter) -> MetricInfo:
    """Return a ranking of examples by how badly they are reconstructed."""
    return MetricInfo(True, _REAL, "none", _UNIT, parameters, False, needs_slices=True)


METRICS: Mapping[str, MetricInfo] = {
    "accuracy": MetricInfo(True, _LABELS, "fraction", _UNIT),
    "binary_accuracy": MetricInfo(True, _BINARY, "fraction", _UNIT),
    "top5_accuracy": MetricInfo(True, _CLASSES, "fraction", _UNIT),
    "sparse_categorical_crossentropy": MetricInfo(False, _CLASSES, needs_logits=True),
    "categorical_crossentropy": MetricInfo(False, _CLASSES, needs_logits=True),
    "binary_crossentropy": MetricInfo(False, _BINARY, needs_logits=True),
    "mean_squared_error": MetricInfo(False, _REAL),
    "mean_absolute_error": MetricInfo(False, _REAL),
    "balanced_accuracy": _share(),
    **{name: _share(*_CLASS) for name in ("precision", "recall", "f1")},
    **{
        f"{name}_{average}": _share()
        for name in ("precision", "recall", "f1")
        for average in ("macro", "micro", "weighted")
    },
    "roc_auc": _ranked(*_CLASS),
    "average_precision": _ranked(*_CLASS),
    "partial_roc_auc": _ranked(Parameter("max_fpr", 0.1, high=1.0), *_CLASS),
    "false_accepts_per_hour": MetricInfo(
        False,
        _LABELS,
        "per_hour",
        _POSITIVE,
        (Parameter("miss_rate", high=1.0, needed=True), Parameter("seconds", needed=True), *_CLASS),
        is_mean=False,
        needs_logits=True,
    ),
    "top_k": _share(Parameter("k", 5, whole=True), is_mean=True),
    "log_loss": MetricInfo(False, _LABELS, range=_POSITIVE, needs_logits=True),
    "brier": MetricInfo(False, _LABELS, range=(0.0, 2.0), needs_logits=True),
    "expected_calibration_error": MetricInfo(
        False, _LABELS, "fraction", _UNIT, (Parameter("bins", 15, whole=True),), False, True
    ),
    "mean_iou": _share(*_CLASS),
    "dice": _share(*_CLASS),
    "pixel_accuracy": _share(is_mean=True),
    "sequence_accuracy": _share(is_mean=True),
    **{
        name: _found()
        for name in ("map", "map_50", "map_75", "map_small", "map_medium", "map_large")
    },
    "rmse": _error(is_mean=False),
    "mae": _error(),
    "r2": MetricInfo(True, _REAL, "none", (-math.inf, 1.0), is_mean=False),
    "mape": MetricInfo(False, _REAL, "fraction", _POSITIVE),
    "anomaly_roc_auc": _anomaly(_NORMAL),
    "anomaly_average_precision": _anomaly(_NORMAL),
    "anomaly_partial_roc_auc": _anomaly(Parameter("max_fpr", 0.1, high=1.0), _NORMAL),
    "quantile_loss": _error(Parameter("quantile", 0.5, high=1.0)),
}
"""Every metric that a recipe can name, in the order of the schema."""

FUNCTION_ENDINGS = {
    "_score": True,
    "_accuracy": True,
    "_error": False,
    "_loss": False,
    "_error_rate": False,
}
"""What the name of a user's function says of its direction, as scikit-learn's names do."""
_SHARE_ENDINGS = ("accuracy", "_error_rate")
_NOT_IN_CLASS = re.compile(r",|: |\n")


@dataclass(frozen=True)
class Metric:
    """A metric with its arguments.

    Attributes:
        name: a key of `METRICS`.
        arguments: by parameter, those that are given and the defaults of others.
        key: what it is called in recipes, gates and reports.
    """

    name: str
    arguments: Mapping[str, Argument]
    key: str

    @property
    def info(self) -> MetricInfo:
        """What is known of it."""
        return METRICS[self.name]


def metric_of(key: str) -> Metric | None:
    """Return the metric of a key, None where there is no such metric."""
    if key in METRICS:
        parameters = METRICS[key].parameters
        defaults: dict[str, Argument] = {
            p.name: p.default for p in parameters if p.default is not None
        }
        missing = any(p.needed and p.name not in defaults for p in parameters)
        return None if missing else Metric(key, defaults, key)
    names = [name for name in METRICS if key.startswith(f"{name}_") and METRICS[name].parameters]
    for name in sorted(names, key=len, reverse=True):
        arguments = _arguments_in(key[len(name) + 1 :], METRICS[name].parameters)
        if arguments is not None:
            return Metric(name, arguments, key)
    return None


def _arguments_in(text: str, parameters: Sequence[Parameter]) -> dict[str, Argument] | None:
    """Return the arguments of a key behind the metric's name; None where they are not its own."""
    arguments: dict[str, Argument] = {}
    numbers = [p for p in parameters if not p.is_class]
    parts = text.split("_", len(numbers))
    if len(parts) < len(numbers):
        return None
    for parameter, part in zip(numbers, parts, strict=False):
        try:
            number = float(part)
        except ValueError:
            return None
        if _complaint(parameter, number):
            return None
        arguments[parameter.name] = number
    rest = parts[len(numbers)] if len(parts) > len(numbers) else ""
    if _is_negative(rest):
        return None
    if rest and len(numbers) == len(parameters):
        return None
    if not rest and parameters[-1].is_class and (parameters[-1].needed or not numbers):
        return None
    return arguments | ({parameters[-1].name: rest} if rest else {})


def is_known_name(name: str) -> bool:
    """Whether something is a metric's key or may be the name of a user's function."""
    is_function = name.isidentifier() and name.endswith(tuple(FUNCTION_ENDINGS))
    return is_function or metric_of(name) is not None


def named_after(name: str) -> tuple[bool, MetricUnit]:
    """Return whether larger is better, and the unit, of a metric of which only the name is known.

    As in scikit-learn, a score is the better the larger, an error or a loss the smaller. What
    ends in `accuracy` or `error_rate` is a fraction, too.
    """
    larger = any(up and name.endswith(end) for end, up in FUNCTION_ENDINGS.items())
    is_share = name.endswith(_SHARE_ENDINGS)
    return larger or name.endswith("accuracy"), "fraction" if is_share else "none"


def key_of_mapping(settings: Mapping[str, object]) -> str:
    """Return the key of a metric that is written as a mapping, `{name: recall, class: cat}`.

    Raises:
        ValueError: no such metric or argument, or an argument that it cannot have.
    """
    name = settings.get("name")
    if not isinstance(name, str) or name not in METRICS:
        raise ValueError(f"unknown metric {name!r}; {hint_for(str(name), METRICS)}")
    parameters = METRICS[name].parameters
    known = ["name", *(p.name for p in parameters)]
    for key in settings:
        if key not in known:
            takes = ", ".join(known[1:]) or "no arguments"
            raise ValueError(f"{name}: unknown argument {key!r}; it takes {takes}")
    texts = list(_texts(name, parameters, settings))
    given = [p.name for p in parameters if p.name in settings]
    return "_".join([name, *texts]) if given else name


def _texts(
    name: str, parameters: Sequence[Parameter], settings: Mapping[str, object]
) -> Iterator[str]:
    for parameter in parameters:
        value = settings.get(parameter.name, parameter.default)
        if value is None:
            if parameter.needed:
                raise ValueError(f"{name}: the argument {parameter.name!r} is missing")
            continue
        if parameter.is_class:
            text = str(value)
            taken = f"{name}_{text}" in METRICS
            is_name = isinstance(value, str | int) and not isinstance(value, bool)
            if not is_name or not text or taken or _is_negative(text):
                raise ValueError(f"{name}.class: must be a class's name or number, not {value!r}")
            if _NOT_IN_CLASS.search(text):
                raise ValueError(f"{name}.class: give the class's number in place of {value!r}")
            yield text
            continue
        if complaint := _complaint(parameter, value):
            raise ValueError(f"{name}.{parameter.name}: {complaint}, not {value!r}")
        yield f"{value:g}"


def _is_negative(text: str) -> bool:
    return text.startswith("-") and text[1:].isdigit()


def _complaint(parameter: Parameter, value: object) -> str:
    """Return what a number must be, or nothing where it is that."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if parameter.whole and not (is_number and float(value) == int(float(value))):  # type: ignore[arg-type]
        return "must be a whole number"
    if not is_number or not parameter.low < value < parameter.high:  # type: ignore[operator]
        below = f" and below {parameter.high:g}" if parameter.high < math.inf else ""
        return f"must be above {parameter.low:g}{below}"
    return ""


def metrics_json_schema() -> JsonObject:
    """Return the JSON Schema of a recipe's metrics: names, keys, and mappings with arguments."""
    takes = {name: info.parameters for name, info in METRICS.items() if info.parameters}
    arguments = {p.name: p for parameters in takes.values() for p in parameters}
    plain = [n for n, i in METRICS.items() if not any(p.needed for p in i.parameters)]
    mapping = {
        "type": "object",
        "additionalProperties": False,
        "required": ["name"],
        "properties": {
            "name": {"enum": list(METRICS)},
            **{name: _argument_schema(one) for name, one in arguments.items()},
        },
    }
    keys = {"type": "string", "pattern": f"^({'|'.join(takes)})_.+$"}
    function: JsonObject = {"type": "string", "pattern": r"\.py:[A-Za-z_]\w*(\(.*\))?$"}
    own = {
        "type": "object",
        "additionalProperties": False,
        "required": ["name"],
        "properties": {
            "name": function,
            "better": {"enum": ["higher", "lower"]},
            "unit": {"enum": ["none", "fraction"]},
        },
    }
    return {"type": "array", "items": {"anyOf": [{"enum": plain}, keys, mapping, function, own]}}


def _argument_schema(parameter: Parameter) -> JsonObject:
    if parameter.is_class:
        return {"type": ["string", "integer"]}
    schema: JsonObject = {"type": "integer" if parameter.whole else "number"}
    schema["exclusiveMinimum"] = parameter.low
    return schema | ({} if parameter.high == math.inf else {"exclusiveMaximum": parameter.high})


def check_metric(key: str) -> None:
    """Raise `ValueError` unless this is a metric's key."""
    if metric_of(key) is None:
        if key in METRICS:
            raise ValueError(f"metric {key!r} needs arguments: {{name: {key}, ...}}")
        raise ValueError(f"unknown metric {key!r}; {hint_for(key, METRICS)}")


def is_mean(key: str) -> bool:
    """Whether a metric is a mean over examples; the loss is one."""
    known = metric_of(key)
    return known is None or known.info.is_mean


def needs_slices(key: str) -> bool:
    """Whether a metric looks at the slices of examples."""
    known = metric_of(key)
    return known is not None and known.info.needs_slices


def without_slices(keys: Iterable[str]) -> tuple[str, ...]:
    """Return the metrics that examples without slices can be measured by: those of validation."""
    return tuple(key for key in keys if not needs_slices(key))


def measured_outputs(
    metric: str, losses: Sequence[str], widths: Sequence[int | None] | None = None
) -> list[int]:
    """Return the outputs over which a metric is averaged: an accuracy says nothing of an angle.

    Args:
        metric: a metric's key.
        losses: the key of each output's loss.
        widths: numbers on the last axis of each output, where they are known. An output of several
            labels decides for no class, and is left out of `accuracy`.

    Returns:
        Places of outputs; all of them where the metric goes with none, or with each.
    """
    known = metric_of(metric)
    suitable = known.info.kinds if known is not None else frozenset[Kind]()
    fitting = [i for i, loss in enumerate(losses) if kind_of_loss(loss) in suitable]
    if metric == "accuracy" and widths is not None:
        fitting = [i for i in fitting if kind_of_loss(losses[i]) != "labels" or widths[i] == 1]
    return fitting or list(range(len(losses)))
