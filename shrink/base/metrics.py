"""Every metric by its key; each is described and computed in a file of `shrink/base/scores`.

A metric is called by a key, which is its name with the arguments that it has: `f1_macro`,
`recall_cat`, `top_k_3`. All that is known of a metric before any data is seen follows from its key
alone, so that gates, reports and renderings of saved reports need nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from shrink.base.arguments import FUNCTION_SCHEMA, Argument, check_known, mapping_schema
from shrink.base.errors import hint_for
from shrink.base.foreign import JsonObject
from shrink.base.losses import ValueKind, kind_of_loss
from shrink.base.scores import calibration, confusion, means, ranking, regression
from shrink.base.scores.info import OF_CLASS, UNIT, MetricInfo, MetricUnit

Texts: TypeAlias = Mapping[str, str | float]

_MAP = MetricInfo(True, frozenset({"boxes"}), "fraction", UNIT, (OF_CLASS,))
METRICS: dict[str, MetricInfo] = {
    **means.METRICS,
    **confusion.METRICS,
    **ranking.METRICS,
    **calibration.METRICS,
    **regression.METRICS,
    **dict.fromkeys(("map", "map_50", "map_75", "map_small", "map_medium", "map_large"), _MAP),
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
    arguments: Texts
    key: str

    @property
    def info(self) -> MetricInfo:
        """What is known of it."""
        return METRICS[self.name]


def metric_of(key: str) -> Metric | None:
    """Return the metric of a key, None where there is no such metric."""
    if key in METRICS:
        parameters = METRICS[key].parameters
        defaults = {p.name: p.default for p in parameters if p.default is not None}
        missing = any(p.needed and p.name not in defaults for p in parameters)
        return None if missing else Metric(key, defaults, key)
    names = [name for name in METRICS if key.startswith(f"{name}_") and METRICS[name].parameters]
    for name in sorted(names, key=len, reverse=True):
        arguments = _arguments_in(key[len(name) + 1 :], METRICS[name].parameters)
        if arguments is not None:
            return Metric(name, arguments, key)
    return None


def _arguments_in(text: str, parameters: Sequence[Argument]) -> Texts | None:
    """Return the arguments of a key behind the metric's name; None where they are not its own."""
    arguments: dict[str, str | float] = {}
    numbers = [p for p in parameters if p.form != "class"]
    parts = text.split("_", len(numbers))
    if len(parts) < len(numbers):
        return None
    for parameter, part in zip(numbers, parts, strict=False):
        try:
            arguments[parameter.name] = json.loads(part)
            parameter.checked("", arguments[parameter.name])
        except ValueError:
            return None
    rest = parts[len(numbers)] if len(parts) > len(numbers) else ""
    if _is_negative(rest) or (rest and len(numbers) == len(parameters)):
        return None
    last = parameters[-1]
    if not rest and last.form == "class" and (last.needed or not numbers):
        return None
    return arguments | ({last.name: rest} if rest else {})


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
    given = {key: value for key, value in settings.items() if key != "name"}
    check_known(name, given, {p.name: p for p in parameters})
    texts = list(_texts(name, parameters, settings))
    return "_".join([name, *texts]) if given else name


def _texts(
    name: str, parameters: Sequence[Argument], settings: Mapping[str, object]
) -> Iterator[str]:
    for parameter in parameters:
        value = settings.get(parameter.name, parameter.default)
        if value is None:
            if parameter.needed:
                raise ValueError(f"{name}: the argument {parameter.name!r} is missing")
            continue
        checked = parameter.checked(name, value)
        if parameter.form != "class":
            yield f"{checked:g}"
            continue
        text = str(value)
        if not text or f"{name}_{text}" in METRICS or _is_negative(text):
            raise ValueError(f"{name}.class: must be a class's name or number, not {value!r}")
        if _NOT_IN_CLASS.search(text):
            raise ValueError(f"{name}.class: give the class's number in place of {value!r}")
        yield text


def _is_negative(text: str) -> bool:
    return text.startswith("-") and text[1:].isdigit()


def metrics_json_schema() -> JsonObject:
    """Return the JSON Schema of a recipe's metrics: names, keys, and mappings with arguments."""
    takes = {name: info.parameters for name, info in METRICS.items() if info.parameters}
    arguments = {p.name: p.json_schema() for parameters in takes.values() for p in parameters}
    plain = [n for n, i in METRICS.items() if not any(p.needed for p in i.parameters)]
    mapping = mapping_schema({"name": {"enum": list(METRICS)}, **arguments})
    keys = {"type": "string", "pattern": f"^({'|'.join(takes)})_.+$"}
    choices = {"better": {"enum": ["higher", "lower"]}, "unit": {"enum": ["none", "fraction"]}}
    own = mapping_schema({"name": FUNCTION_SCHEMA, **choices})
    items = {"anyOf": [{"enum": plain}, keys, mapping, FUNCTION_SCHEMA, own]}
    return {"type": "array", "items": items}


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
    suitable = known.info.kinds if known is not None else frozenset[ValueKind]()
    fitting = [i for i, loss in enumerate(losses) if kind_of_loss(loss) in suitable]
    if metric == "accuracy" and widths is not None:
        fitting = [i for i in fitting if kind_of_loss(losses[i]) != "labels" or widths[i] == 1]
    return fitting or list(range(len(losses)))
