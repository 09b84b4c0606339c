"""Every loss: its name, arguments and formula, and the outputs and targets that it is for.

A loss is called by a key, its name with those arguments that are not its defaults,
`huber(delta=2)`; that of a user's is `file.py:function(of=values)`. All that is known of a loss
before any data is seen follows from its key alone.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from shrink.base.arguments import (
    FUNCTION_SCHEMA,
    Argument,
    Value,
    check_known,
    mapping_schema,
)
from shrink.base.errors import DataError, hint_for
from shrink.base.foreign import Json, JsonObject
from shrink.base.functions import of_file

ValueKind = Literal["classes", "labels", "values", "boxes"]
"""Of the numbers of an output's last axis: one class among several, each a label of 0 and 1 for
itself, or real targets."""

OF = "of"
"""The argument that says of which kind the outputs are, of losses that are for several."""


Numbers: TypeAlias = Any
"""NumPy arrays, float64, or tensors."""
EPSILON = 1e-7
"""Keras' distance from 0 for what it divides by and takes logarithms of."""


@dataclass(frozen=True)
class LossInfo:
    """What is known of a loss before any data is seen.

    Attributes:
        kind: of the outputs; None where targets and model decide, or the argument `of` says it.
        arguments: in the order of the key.
        of_probabilities: whether logits are turned into probabilities first.
        metric: what is measured beside it where the recipe names no metric; empty for the default
            of its kind.
        bounds: what targets of the outputs' shape lie between.
        formula: see `loss`; None for a detector's loss and for a user's function.
        is_entropy: whether `formula` takes logits, too, and training takes tf-keras' function.
        of_numbers: whether the formula takes class numbers, (n, ..., 1), and not shares of classes.
        by_example: whether the formula gives one number for each example, (n,); what a mask leaves
            out is 0 among its targets and outputs.
    """

    kind: ValueKind | None
    arguments: tuple[Argument, ...] = ()
    of_probabilities: bool = False
    metric: str = ""
    bounds: tuple[float, float] = (-math.inf, math.inf)
    formula: Callable[..., Numbers] | None = None
    is_entropy: bool = False
    of_numbers: bool = False
    by_example: bool = False

    @property
    def of_signs(self) -> bool:
        """Whether it compares the signs of outputs with labels, as hinge losses do."""
        return self.kind in ("classes", "labels") and not self.of_probabilities


LOSSES: dict[str, LossInfo] = {}
"""Every loss that a recipe can name: those of tf-keras, and Dice."""
_Formula = TypeVar("_Formula", bound=Callable[..., Numbers])


def loss(
    kind: ValueKind | None,
    *arguments: Argument,
    is_entropy: bool = False,
    of_probabilities: bool = False,
    **info: Any,
) -> Callable[[_Formula], _Formula]:
    """Add a formula to `LOSSES`, under its own name, with what `LossInfo` says.

    Its parameters are `xp`, `y`, `x`, and the loss's arguments by name. It returns the loss of each
    element, (n, ...) or (n, ..., k). `xp` is NumPy when artifacts are measured, and in training
    TensorFlow with the names of NumPy's functions (`NAMESPACE` of `shrink.engine.losses`). `x` are
    the outputs, (n, ..., k), or probabilities where `of_probabilities` says so; `y` has their
    shape: shares of classes, labels from 0 to 1 or real targets.

    The formula of a cross-entropy takes `from_logits` behind `x`, and is measured alone. Training
    takes tf-keras' function of its name: its gradient is exact where probabilities round to 0 or 1.
    """

    def add(formula: _Formula) -> _Formula:
        LOSSES[formula.__name__] = LossInfo(
            kind,
            arguments,
            is_entropy or of_probabilities,
            formula=formula,
            is_entropy=is_entropy,
            **info,
        )
        return formula

    return add


_SMOOTHING = Argument("label_smoothing", 0.0, high=1.0)
_GAMMA = Argument("gamma", 2.0)
_OF = Argument(OF, choices=("classes", "labels", "values"))


def log_probabilities(xp: Any, x: Numbers, from_logits: bool, epsilon: float = EPSILON) -> Numbers:
    """Return logarithms of the probabilities of classes, `epsilon` from 0 and 1, that add to 1."""
    if from_logits:
        shifted = x - xp.max(x, axis=-1, keepdims=True)
        return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))
    total = xp.maximum(xp.sum(x, axis=-1, keepdims=True), epsilon)
    return xp.log(xp.clip(x / total, epsilon, 1 - epsilon))


def _smoothed(y: Numbers, smoothing: float, classes: int = 2) -> Numbers:
    return y * (1 - smoothing) + smoothing / classes


@loss(
    "classes",
    Argument("ignore_class", form="whole", low=-math.inf),
    is_entropy=True,
    of_numbers=True,
)
def sparse_categorical_crossentropy(
    xp: Any,
    y: Numbers,
    x: Numbers,
    from_logits: bool,
    ignore_class: int | None = None,
    epsilon: float = EPSILON,
) -> Numbers:
    """Return the cross-entropy of class numbers; elements of `ignore_class` are masked before."""
    logs = log_probabilities(xp, x, from_logits, epsilon)
    if y.shape == x.shape:
        return -xp.sum(y * logs, axis=-1)
    return -xp.take_along_axis(logs, y, axis=-1)[..., 0]


@loss("classes", _SMOOTHING, is_entropy=True)
def categorical_crossentropy(
    xp: Any, y: Numbers, x: Numbers, from_logits: bool, label_smoothing: float
) -> Numbers:
    """Return the cross-entropy of shares of classes."""
    wanted = _smoothed(y, label_smoothing, x.shape[-1])
    return -xp.sum(wanted * log_probabilities(xp, x, from_logits), axis=-1)


@loss("labels", _SMOOTHING, is_entropy=True, bounds=(0.0, 1.0))
def binary_crossentropy(
    xp: Any,
    y: Numbers,
    x: Numbers,
    from_logits: bool,
    label_smoothing: float = 0.0,
    epsilon: float = EPSILON,
) -> Numbers:
    """Return the cross-entropy of each label for itself."""
    wanted = _smoothed(y, label_smoothing)
    if from_logits:
        return xp.maximum(x, 0) - x * wanted + xp.log1p(xp.exp(-xp.abs(x)))
    p = xp.clip(x, epsilon, 1 - epsilon)
    return -(wanted * xp.log(p) + (1 - wanted) * xp.log1p(-p))


@loss("values")
def mean_squared_error(xp: Any, y: Numbers, x: Numbers) -> Numbers:
    """Return the squared error of each number."""
    return xp.square(y - x)


@loss("values", metric="mean_absolute_error")
def mean_absolute_error(xp: Any, y: Numbers, x: Numbers) -> Numbers:
    """Return the absolute error of each number."""
    return xp.abs(y - x)


@loss(
    "labels",
    Argument("apply_class_balancing", False, "flag"),
    Argument("alpha", 0.25, high=1.0),
    _GAMMA,
    _SMOOTHING,
    is_entropy=True,
    bounds=(0.0, 1.0),
)
def binary_focal_crossentropy(
    xp: Any,
    y: Numbers,
    x: Numbers,
    from_logits: bool,
    apply_class_balancing: bool,
    alpha: float,
    gamma: float,
    label_smoothing: float,
) -> Numbers:
    """Equations 4 and 5 of Lin et al. 2017."""
    wanted = _smoothed(y, label_smoothing)
    if from_logits:
        p, entropy = xp.exp(-xp.logaddexp(0, -x)), binary_crossentropy(xp, wanted, x, True)
    else:
        # Keras adds its epsilon once more, within the logarithm.
        p, q = x, xp.clip(x, EPSILON, 1 - EPSILON)
        entropy = -(wanted * xp.log(q + EPSILON) + (1 - wanted) * xp.log(1 - q + EPSILON))
    right = wanted * p + (1 - wanted) * (1 - p)
    balance = wanted * alpha + (1 - wanted) * (1 - alpha) if apply_class_balancing else 1.0
    return (1 - right) ** gamma * entropy * balance


@loss("classes", Argument("alpha", 0.25, "numbers"), _GAMMA, _SMOOTHING, is_entropy=True)
def categorical_focal_crossentropy(
    xp: Any,
    y: Numbers,
    x: Numbers,
    from_logits: bool,
    alpha: float | tuple[float, ...],
    gamma: float,
    label_smoothing: float,
) -> Numbers:
    """Equation 5 of Lin et al. 2017, of several classes."""
    classes = x.shape[-1]
    if isinstance(alpha, tuple) and len(alpha) != classes:
        raise DataError(
            f"categorical_focal_crossentropy.alpha has {len(alpha)} numbers for {classes} classes",
            subject="task.loss",
        )
    wanted = _smoothed(y, label_smoothing, classes)
    p = xp.clip(xp.exp(log_probabilities(xp, x, from_logits)), EPSILON, 1 - EPSILON)
    return -xp.sum((1 - p) ** gamma * wanted * xp.log(p) * alpha, axis=-1)


@loss("classes", of_probabilities=True)
def kl_divergence(xp: Any, y: Numbers, x: Numbers) -> Numbers:
    """Return the Kullback-Leibler divergence of the outputs from the targets."""
    y, p = xp.clip(y, EPSILON, 1.0), xp.clip(x, EPSILON, 1.0)
    return xp.sum(y * xp.log(y / p), axis=-1)


@loss(
    None,
    Argument("smooth", 1.0, is_open=True),
    _OF,
    of_probabilities=True,
    metric="dice",
    bounds=(0.0, 1.0),
    by_example=True,
)
def dice(xp: Any, y: Numbers, x: Numbers, smooth: float, of: str | None) -> Numbers:
    """Return 1 - (2 Σpy + s) / (Σp + Σy + s) over an example's positions (Milletari et al. 2016).

    The mean over the classes or labels of the last axis, (n,).
    """
    positions = tuple(range(1, len(x.shape) - 1))
    shared = xp.sum(x * y, axis=positions)
    both = xp.sum(x, axis=positions) + xp.sum(y, axis=positions)
    return xp.mean(1 - (2 * shared + smooth) / (both + smooth), axis=-1)


@loss("labels", bounds=(-1.0, 1.0))
def hinge(xp: Any, y: Numbers, x: Numbers) -> Numbers:
    """Return by how much the margin is below 1; a label of 0 is a -1.

    tf-keras' own looks at all labels of a batch to tell 0 and 1 from -1 and 1.
    """
    return xp.maximum(1 - xp.where(y == 0, y - 1, y) * x, 0)


@loss("labels", bounds=(-1.0, 1.0))
def squared_hinge(xp: Any, y: Numbers, x: Numbers) -> Numbers:
    """Return the square of `hinge`."""
    return xp.square(hinge(xp, y, x))


@loss("classes")
def categorical_hinge(xp: Any, y: Numbers, x: Numbers) -> Numbers:
    """Return by how much the own class is not 1 above the largest other."""
    own, other = xp.sum(y * x, axis=-1), xp.max((1 - y) * x, axis=-1)
    return xp.maximum(other - own + 1, 0)


@loss("values", Argument("delta", 1.0, is_open=True), metric="mean_absolute_error")
def huber(xp: Any, y: Numbers, x: Numbers, delta: float) -> Numbers:
    """Equation of Huber 1964: squared up to `delta`, linear beyond."""
    apart = xp.abs(x - y)
    return xp.where(apart <= delta, 0.5 * apart**2, delta * (apart - 0.5 * delta))


@loss("values", metric="mean_absolute_error")
def log_cosh(xp: Any, y: Numbers, x: Numbers) -> Numbers:
    """Return the logarithm of the error's hyperbolic cosine, which does not overflow."""
    apart = xp.abs(x - y)
    return apart + xp.log1p(xp.exp(-2 * apart)) - math.log(2)


@loss("values")
def cosine_similarity(xp: Any, y: Numbers, x: Numbers) -> Numbers:
    """Return -1 for the same direction, 1 for the opposite one."""
    y, x = (
        v / xp.sqrt(xp.maximum(xp.sum(xp.square(v), axis=-1, keepdims=True), 1e-12)) for v in (y, x)
    )
    return -xp.sum(y * x, axis=-1)


@loss("values", bounds=(0.0, math.inf))
def poisson(xp: Any, y: Numbers, x: Numbers) -> Numbers:
    """Return the negative logarithm of the likelihood of counts, but for a constant."""
    return x - y * xp.log(x + EPSILON)


@loss("values", metric="mape")
def mean_absolute_percentage_error(xp: Any, y: Numbers, x: Numbers) -> Numbers:
    """Return the error in percent of the target."""
    return 100 * xp.abs((y - x) / xp.maximum(xp.abs(y), EPSILON))


@loss("values", bounds=(0.0, math.inf))
def mean_squared_logarithmic_error(xp: Any, y: Numbers, x: Numbers) -> Numbers:
    """Return the square of the difference of logarithms of 1 + values."""
    y, x = (xp.log1p(xp.maximum(v, EPSILON)) for v in (y, x))
    return xp.square(x - y)


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

    def computed(self, xp: Any, y: Numbers, x: Numbers, *from_logits: bool) -> Numbers:
        """Return what its formula says of targets and outputs: see `loss`."""
        formula = self.info.formula
        if formula is None:
            raise TypeError(f"{self.key} is no formula")
        return formula(xp, y, x, *from_logits, **self.arguments)

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
