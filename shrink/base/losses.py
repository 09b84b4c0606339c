"""Every loss: its name, arguments, and the outputs and targets that it is for.

A loss is called by a key, its name with those arguments that are not its defaults,
`huber(delta=2)`; that of a user's is `file.py:function(of=values)`. All that is known of a loss
before any data is seen follows from its key alone.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from shrink.base.arguments import (
    FUNCTION_SCHEMA,
    Argument,
    Value,
    check_known,
    mapping_schema,
)
from shrink.base.errors import hint_for
from shrink.base.foreign import Json, JsonObject
from shrink.base.functions import of_file

ValueKind = Literal["classes", "labels", "values", "boxes"]
"""Of the numbers of an output's last axis: one class among several, each a label of 0 and 1 for
itself, or real targets."""

OF = "of"
"""The argument that says of which kind the outputs are, of losses that are for several."""


@dataclass(frozen=True)
class LossInfo:
    """What is known of a loss before any data is seen.

    Attributes:
        kind: of the outputs; None where targets and model decide, or the argument `of` says it.
        arguments: in the order of the key.
        of_probabilities: whether logits are turned into probabilities first.
        metric: what is measured beside it where the recipe names no metric; empty for the default
            of its kind.
    """

    kind: ValueKind | None
    arguments: tuple[Argument, ...] = ()
    of_probabilities: bool = False
    metric: str = ""


_OF_KINDS = ("classes", "labels", "values")
_SMOOTHING = Argument("label_smoothing", 0.0, high=1.0)
_GAMMA = Argument("gamma", 2.0)
_OF = Argument(OF, choices=_OF_KINDS)
_IGNORE = Argument("ignore_class", form="whole", low=-math.inf)

LOSSES: Mapping[str, LossInfo] = {
    "sparse_categorical_crossentropy": LossInfo("classes", (_IGNORE,), True),
    "categorical_crossentropy": LossInfo("classes", (_SMOOTHING,), True),
    "binary_crossentropy": LossInfo("labels", (_SMOOTHING,), True),
    "mean_squared_error": LossInfo("values"),
    "mean_absolute_error": LossInfo("values", metric="mean_absolute_error"),
    "binary_focal_crossentropy": LossInfo(
        "labels",
        (
            Argument("apply_class_balancing", False, "flag"),
            Argument("alpha", 0.25, high=1.0),
            _GAMMA,
            _SMOOTHING,
        ),
        True,
    ),
    "categorical_focal_crossentropy": LossInfo(
        "classes", (Argument("alpha", 0.25, "numbers"), _GAMMA, _SMOOTHING), True
    ),
    "kl_divergence": LossInfo("classes", (), True),
    "dice": LossInfo(None, (Argument("smooth", 1.0, is_open=True), _OF), True, "dice"),
    "hinge": LossInfo("labels"),
    "squared_hinge": LossInfo("labels"),
    "categorical_hinge": LossInfo("classes"),
    "huber": LossInfo(
        "values", (Argument("delta", 1.0, is_open=True),), metric="mean_absolute_error"
    ),
    "log_cosh": LossInfo("values", metric="mean_absolute_error"),
    "cosine_similarity": LossInfo("values"),
    "poisson": LossInfo("values"),
    "mean_absolute_percentage_error": LossInfo("values", metric="mape"),
    "mean_squared_logarithmic_error": LossInfo("values"),
}
"""Every loss that a recipe can name: those of tf-keras, and Dice."""

DETECTION = "detection"
"""What reports call the loss of a detector, which `task.decode` says; no recipe names it."""
_OF_BOXES = LossInfo("boxes")

ALIASES = {"cosine": "cosine_similarity"}
_FUNCTION = LossInfo(None, (_OF,))
_KEY = re.compile(r"(.+?)(?:\(((?:\w+=[^,()=]+)(?:, ?\w+=[^,()=]+)*)\))?")


@dataclass(frozen=True)
class Loss:
    """A loss with its arguments.

    Attributes:
        name: a key of `LOSSES`, or `file.py:function`.
        arguments: by name, those that are given and the defaults of others.
    """

    name: str
    arguments: Mapping[str, Value]

    @property
    def info(self) -> LossInfo:
        """What is known of it."""
        return _OF_BOXES if self.name == DETECTION else LOSSES.get(self.name, _FUNCTION)

    @property
    def function(self) -> tuple[str, str] | None:
        """File and name of the user's function that it is; None for a loss of shrink's."""
        return of_file(self.name)

    @property
    def kind(self) -> ValueKind | None:
        """Of the outputs; None where nobody said it yet."""
        stated = self.arguments.get(OF)
        return next((kind for kind in get_args(ValueKind) if kind == stated), self.info.kind)

    @property
    def key(self) -> str:
        """What it is called, with the arguments that are not defaults."""
        defaults = {one.name: one.default for one in self.info.arguments}
        texts = [
            f"{name}={_text(self.arguments[name])}"
            for name, default in defaults.items()
            if self.arguments[name] != default
        ]
        return f"{self.name}({', '.join(texts)})" if texts else self.name

    def of(self, kind: ValueKind) -> Loss:
        """Return it for outputs of a kind, where it is not for one kind alone."""
        if self.info.kind is not None:
            return self
        return Loss(self.name, {**self.arguments, OF: kind})


@functools.cache
def loss_of(key: str) -> Loss:
    """Return the loss of a key.

    Raises:
        ValueError: no such loss or argument, or an argument that it cannot have.
    """
    if key == DETECTION:
        return Loss(DETECTION, {})
    found = _KEY.fullmatch(key)
    if found is None:
        raise ValueError(f"unknown loss {key!r}; {hint_for(key, LOSSES)}")
    parts = (part.split("=") for part in (found[2] or "").split(",") if part)
    return _loss(found[1], {name.strip(): _parsed(text.strip()) for name, text in parts})


def key_of_loss(given: str | Mapping[str, object]) -> str:
    """Return the key of a loss as a recipe has it: a name, a key, or `{name: huber, delta: 2}`.

    Raises:
        ValueError: no such loss or argument, or an argument that it cannot have.
    """
    if given == DETECTION:
        raise ValueError("a detector's loss is task.decode.loss: set task.decode")
    if isinstance(given, str):
        return loss_of(given).key
    name = given.get("name")
    if not isinstance(name, str):
        raise ValueError(f"a loss has a name, not {name!r}; {hint_for(str(name), LOSSES)}")
    return _loss(name, {key: value for key, value in given.items() if key != "name"}).key


def is_loss_mapping(given: Mapping[str, object]) -> bool:
    """Whether a mapping is one loss with its arguments, and not losses by outputs' names."""
    if "name" not in given:
        return False
    others = [value for key, value in given.items() if key not in ("name", OF)]
    return not others or not all(_is_loss(value) for value in others)


def _is_loss(value: object) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, str) and value in LOSSES)


def _loss(name: str, given: Mapping[str, object]) -> Loss:
    name = ALIASES.get(name, name)
    if name not in LOSSES and of_file(name) is None:
        raise ValueError(f"unknown loss {name!r}; {hint_for(name, [*LOSSES, *ALIASES])}")
    known = {one.name: one for one in Loss(name, {}).info.arguments}
    values: dict[str, Value] = {one: known[one].default for one in known}
    check_known(name, given, known)
    values |= {k: known[k].checked(name, one) for k, one in given.items() if one is not None}
    return Loss(name, values)


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return " ".join(f"{one:.12g}" for one in value)
    return f"{value:.12g}" if isinstance(value, int | float) else str(value)


def _parsed(text: str) -> object:
    try:
        values = [json.loads(part) for part in text.split(" ")]
    except ValueError:
        return text
    return values[0] if len(values) == 1 else values


def kind_of_loss(key: str) -> ValueKind:
    """Return the kind of an output by its loss's key; `values` where the key does not say it."""
    return loss_of(key).kind or "values"


def ignored_class(key: str) -> int | None:
    """Return the class number whose elements a loss leaves out; None where there is none."""
    value = loss_of(key).arguments.get("ignore_class")
    return int(value) if isinstance(value, int | float) else None


def takes_logits(key: str) -> bool:
    """Whether a loss is of probabilities, and so has to know whether outputs are logits."""
    return loss_of(key).info.of_probabilities


def is_function(key: str) -> bool:
    """Whether a loss is a user's function."""
    return loss_of(key).function is not None


def losses_json_schema() -> JsonObject:
    """Return the JSON Schema of a recipe's loss: one for all outputs, or by output's name."""
    arguments = {one.name: one for info in LOSSES.values() for one in info.arguments}
    names: JsonObject = {"enum": [*LOSSES, *ALIASES]}
    key: JsonObject = {"type": "string", "pattern": f"^({'|'.join(LOSSES)})\\(.+\\)$"}
    schemas = {name: one.json_schema() for name, one in arguments.items()}
    mapping = mapping_schema({"name": {"anyOf": [names, FUNCTION_SCHEMA]}, **schemas})
    one: list[Json] = [names, key, FUNCTION_SCHEMA, mapping]
    by_output = {"type": "object", "additionalProperties": {"anyOf": one}}
    return {"anyOf": [*one, by_output, {"type": "null"}]}
