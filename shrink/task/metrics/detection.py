"""Mean average precision of a detector, by COCO's definition.

Outputs are decoded detections (n, most, 6), targets boxes (n, g, 7). pycocotools finds once what is
right; every resample of the pictures is then summed up from that (`shrink.detection.precision`).
"""

from __future__ import annotations

import functools
from itertools import pairwise

import numpy as np

from shrink.base.scores.output import Output, class_number
from shrink.base.scores.rule import MakeRule, Rows, Rule, Weighted
from shrink.data import boxes
from shrink.detection import decode
from shrink.detection.coco import ClassMatches, Size, matches
from shrink.detection.precision import MeanPrecision

UNDEFINED = "there is no such box to find"
_FOUND = 1.0
"""The first number of a row that is a detection; that of a box is 0."""
_ALL, _AT_50, _AT_75 = slice(None), slice(0, 1), slice(5, 6)
_REMEMBERED = 4


@functools.lru_cache(maxsize=_REMEMBERED)
def _matches(rows: bytes, example: bytes, examples: int, size: Size) -> dict[int, ClassMatches]:
    """Return the matches of each class; several metrics ask for the same ones."""
    values = np.frombuffer(rows).reshape(-1, 8)
    owner = np.frombuffer(example, np.int64)
    places = np.searchsorted(owner, np.arange(examples + 1))
    own = [values[start:end] for start, end in pairwise(places)]
    truths = [rows[rows[:, 0] != _FOUND][:, 1:] for rows in own]
    detections = [rows[rows[:, 0] == _FOUND][:, [1, 2, 3, 4, 6, 5]] for rows in own]
    return matches(truths, detections, size)


def of_class(metric: str, label: int, rows: Rows, examples: int) -> Weighted:
    """Return a metric of one class, from what `RULES` keep of all of them.

    Args:
        metric: a name in `RULES`.
        label: number of the class.
        rows: of all examples.
        examples: how many these are.
    """
    return _weighted(rows, examples, label, *_KINDS[metric])


def holders(rows: Rows, label: int, examples: int) -> int:
    """Return how many pictures have a box of a class to find, which is no crowd."""
    values = rows.values[0]
    own = (values[:, 0] != _FOUND) & (values[:, 5] == label) & (values[:, 6] == 0)
    return int(np.count_nonzero(np.bincount(rows.example[own], minlength=examples)))


def _weighted(
    rows: Rows, examples: int, label: int | None, size: Size, overlaps: slice
) -> Weighted:
    values, example = np.ascontiguousarray(rows.values[0]), rows.example.astype(np.int64)
    every = _matches(values.tobytes(), example.tobytes(), examples, size)
    chosen = [one for name, one in every.items() if label is None or name == label]
    columns = 1 + len(values) * len(range(10)[overlaps]) // (10 * max(examples, 1))
    labels = [name for name in every if label is None or name == label]
    fewest = min((holders(rows, name, examples) for name in labels), default=0)
    share = 1 / (len(labels) * fewest) if fewest else 0.0
    return Weighted(MeanPrecision(chosen, overlaps), columns, share=share)


def _average_precision(size: Size, overlaps: slice) -> MakeRule:
    def make(arguments: dict[str, object]) -> Rule:
        wanted = arguments.get("class")
        label: list[int] = []

        def keep(output: Output) -> Rows:
            if wanted is not None and not label:
                label.append(class_number(str(wanted), output.classes, len(output.classes)))
            # Boxes and detections in rows of eight: what it is, four edges, and three numbers.
            targets = np.asarray(output.targets, np.float64)
            there = targets[..., boxes.CLASS] >= 0
            true = targets[there]
            detected = output.outputs[..., decode.CLASS] >= 0
            found = output.outputs[detected]
            # Of a box class, crowd and area; of a detection class, score and nothing.
            of_boxes = np.hstack([np.zeros((len(true), 1)), true])
            of_found = np.hstack(
                [
                    np.full((len(found), 1), _FOUND),
                    found[:, :4],
                    found[:, [decode.CLASS, decode.SCORE]],
                    np.zeros((len(found), 1)),
                ]
            )
            example = np.concatenate([np.nonzero(there)[0], np.nonzero(detected)[0]])
            order = np.argsort(example, kind="stable")
            return Rows(example[order], (np.concatenate([of_boxes, of_found])[order],))

        def over(rows: Rows, examples: int) -> Weighted:
            return _weighted(rows, examples, label[0] if label else None, size, overlaps)

        return Rule(keep, over, UNDEFINED)

    return make


_KINDS: dict[str, tuple[Size, slice]] = {
    "map": ("all", _ALL),
    "map_50": ("all", _AT_50),
    "map_75": ("all", _AT_75),
    "map_small": ("small", _ALL),
    "map_medium": ("medium", _ALL),
    "map_large": ("large", _ALL),
}
RULES: dict[str, MakeRule] = {name: _average_precision(*kind) for name, kind in _KINDS.items()}
