"""Mean average precision of a detector: LiteRT, TensorFlow's suppression, pycocotools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from tests.oracle import litert
from tests.oracle.coco import coco_stats

MOST = 100


def of_boxes_head(
    artifact: Path,
    inputs: dict[str, np.ndarray],
    truths: np.ndarray,
    folder: Path,
    threshold: float = 0.05,
    overlap: float = 0.5,
) -> dict[str, float]:
    """Return COCO's metrics of an artifact that gives edges in pixels and probabilities.

    Args:
        artifact: its outputs, one or [boxes, scores], are (n, a, 4) edges and (n, a, classes).
        inputs: by name, (n, ...).
        truths: (n, g, 7), see `coco_stats`.
        folder: for files.
        threshold: scores below it do not count.
        overlap: above which the worse of two boxes of a class goes.
    """
    outputs = litert.run(artifact, inputs)
    rows = np.concatenate(outputs, axis=-1) if len(outputs) > 1 else outputs[0]
    found = np.full((len(rows), MOST, 6), -1.0)
    for target, picture in zip(found, rows, strict=True):
        kept = _kept(picture[:, :4], picture[:, 4:], threshold, overlap)
        target[: len(kept)] = np.reshape(kept, (-1, 6))
    return coco_stats(folder, truths, found)


def _kept(
    boxes: np.ndarray, scores: np.ndarray, threshold: float, overlap: float
) -> Sequence[np.ndarray]:
    """Return rows of edges, score and class, best first; equal scores in candidates' order."""
    every = []
    for label in range(scores.shape[1]):
        order = np.argsort(-scores[:, label], kind="stable")
        own = order[scores[order, label] >= threshold]
        # Of equal scores TensorFlow takes the one that comes first.
        stays = tf.image.non_max_suppression(
            boxes[own][:, [1, 0, 3, 2]], scores[own, label], len(own), overlap
        ).numpy()
        every += [
            (-scores[a, label], a, label, np.array([*boxes[a], scores[a, label], label]))
            for a in own[stays]
        ]
    return [row for *_, row in sorted(every, key=lambda one: one[:3])][:MOST]
