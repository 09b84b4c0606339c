"""The importance of channels, from weights or activations, and what pruning groups costs.

Add an importance as a function and one line in the registry.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras as keras
from scipy.interpolate import PchipInterpolator

from shrink.base import files
from shrink.base.errors import StageError
from shrink.base.keras_internals import calls_of, input_structure
from shrink.base.types import Tensors
from shrink.graph.groups import Group
from shrink.graph.rebuild import Weights, over_kernels, slices, weight_of

_BATCH = 25


def calls(model: keras.Model, layer: str) -> list[tf.Tensor]:
    """Return the (first) input tensor of each call of a layer."""
    nodes = calls_of(model.get_layer(layer))
    return [tf.nest.flatten(node.input_tensors)[0] for node in nodes]


def activations(
    model: keras.Model, tensors: Sequence[tf.Tensor], x: Sequence[np.ndarray], batch: int = _BATCH
) -> Iterator[list[np.ndarray]]:
    """Yield, batch by batch, the values of some of a model's tensors.

    Args:
        x: examples, one array (n, ...) per input.
        batch: examples at a time.
    """
    probe = keras.Model(input_structure(model), list(tensors))
    for start in range(0, len(x[0]), batch):
        values = probe(feed(probe, [part[start : start + batch] for part in x]), training=False)
        yield [np.asarray(value) for value in tf.nest.flatten(values)]


@dataclass(frozen=True)
class Evidence:
    """What scores are made from.

    Attributes:
        weights: of every layer.
        gradients: of the mean loss on training examples, like the weights; computed on first use.
        seed: decides what is random.
    """

    weights: Weights
    gradients: Callable[[], Weights]
    seed: int = 0


Importance = Callable[[Group, Evidence], np.ndarray]
"""A group and the evidence to float64 (channels,)."""


def l2(group: Group, evidence: Evidence) -> np.ndarray:
    """Return the L2 norm of all kernel slices that make or read a channel.

    Each kernel's squared norms are divided by their mean over the group's channels, so that no
    kernel counts more for being larger (the group L2 of DepGraph, Fang et al. 2023, eq. 6).
    """
    return np.sqrt(over_kernels(group, evidence.weights, np.square))


def l1(group: Group, evidence: Evidence) -> np.ndarray:
    """Return the L1 norm of the same slices, normalised alike (Li et al. 2017)."""
    return over_kernels(group, evidence.weights, np.abs)


def lamp(group: Group, evidence: Evidence) -> np.ndarray:
    """Return each squared L2 norm, as in `l2`, over the sum of those that are not smaller.

    Lee et al. 2021, "Layer-adaptive Sparsity for the Magnitude-based Pruning", eq. 1, with channels
    in place of weights: what removing a channel costs of what would be left, so that scores of
    different groups compare. Within a group the order is that of `l2`.
    """
    squared = over_kernels(group, evidence.weights, np.square)
    order = np.argsort(squared, kind="stable")
    left = np.cumsum(squared[order][::-1])[::-1]
    scores = np.empty(len(group))
    scores[order] = squared[order] / np.maximum(left, np.finfo(np.float64).tiny)
    return scores


def bn_scale(group: Group, evidence: Evidence) -> np.ndarray:
    """Return the sum of |gamma| over batch norms (Liu et al. 2017, "Network Slimming").

    Raises:
        StageError: no batch norm with a scale follows the group.
    """
    scales = [m for m in group.members if m.role == "scale"]
    if not scales:
        raise StageError(
            "no batch norm with a scale follows its channels, which bn_scale needs",
            subject=group.name,
            hint=f"exclude {group.name}, or take importance: l2",
        )
    sizes = [slices(m, np.abs(weight_of(m, evidence.weights)), np.sum) for m in scales]
    return np.sum(sizes, axis=0)


def taylor(group: Group, evidence: Evidence) -> np.ndarray:
    """Return the squared first-order change of the loss without a channel.

    (sum of gradient x weight over a channel's weights)², Molchanov et al. 2019, "Importance
    Estimation for Neural Network Pruning", eq. 8, summed over the layers that make it.
    """
    gradients = evidence.gradients()
    makers = [m for m in group.members if m.role == "output"]
    each = [
        slices(m, weight_of(m, evidence.weights) * weight_of(m, gradients), np.sum) for m in makers
    ]
    return np.sum(np.square(each), axis=0)


def random(group: Group, evidence: Evidence) -> np.ndarray:
    """Return random scores: what every other importance has to beat."""
    entropy = [evidence.seed, *map(ord, group.name)]
    return np.random.default_rng(entropy).random(len(group))


IMPORTANCES: Mapping[str, Importance] = {
    "l2": l2,
    "l1": l1,
    "lamp": lamp,
    "bn_scale": bn_scale,
    "taylor": taylor,
    "random": random,
}
"""Every importance that scores channels; least_squares chooses and solves in one."""


def least_important(group: Group, scores: np.ndarray, count: int) -> np.ndarray:
    """Return the `count` channels of lowest score; the first of equals go first."""
    return group.channels[np.argsort(scores, kind="stable")[:count]]


def feed(model: keras.Model, x: Sequence[np.ndarray]) -> Tensors:
    """Return arrays, one per input, in the model's structure and dtypes."""
    tensors = [tf.cast(part, t.dtype) for part, t in zip(x, model.inputs, strict=True)]
    return tf.nest.pack_sequence_as(input_structure(model), tensors)


@dataclass(frozen=True)
class Curve:
    """What pruning one group does to the validation loss.

    Attributes:
        layers: of the group, joined by "+".
        channels: of the group.
        ratios: fractions of its channels that were removed, from 0 on.
        losses: the mean loss at each of them.
    """

    layers: str
    channels: int
    ratios: tuple[float, ...]
    losses: tuple[float, ...]

    def losses_at(self, counts: np.ndarray) -> np.ndarray:
        """Return the loss where so many channels (n,) are removed, interpolated (n,).

        A piecewise cubic, monotone as the points (Fritsch & Carlson 1980): prices then move a
        group by one channel, not from point to point. The loss is taken to rise, never to fall.
        """
        if len(self.ratios) == 1:
            return np.full(len(counts), self.losses[0])
        rising = np.maximum.accumulate(np.array(self.losses))
        losses: np.ndarray = PchipInterpolator(self.ratios, rising)(counts / self.channels)
        return losses


def cached_curves(
    folder: Path, identity: Mapping[str, object], measure: Callable[[], Sequence[Curve]]
) -> tuple[list[Curve], bool]:
    """Return curves and whether they were there; else they are measured and written.

    A file that cannot be read, or is of something else, is measured again and replaced.

    Args:
        folder: of all such files; made where it is missing.
        identity: everything that decides the curves, plain data.
        measure: how to find them out.
    """
    key = files.json_sha256(identity)
    path = folder / f"{key}.json"
    known = _read(path, key)
    if known is not None:
        path.touch()  # used now: what was not for long is swept away
        return known, True
    curves = list(measure())
    body = [asdict(curve) for curve in curves]
    files.write_json(path, {"key": key, "digest": files.json_sha256(body), "curves": body})
    return curves, False


def _read(path: Path, key: str) -> list[Curve] | None:
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        if entry["key"] != key or entry["digest"] != files.json_sha256(entry["curves"]):
            return None
        return [
            Curve(one["layers"], one["channels"], tuple(one["ratios"]), tuple(one["losses"]))
            for one in entry["curves"]
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return None
