"""Which detections are right, by pycocotools: for each picture, class and overlap.

That does not depend on other pictures: `shrink.detection.precision` sums it up for any resample.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal, TypedDict

import numpy as np

from shrink.base.errors import ResourceError
from shrink.base.packages import extra_hint
from shrink.base.types import Array
from shrink.data import boxes as truth
from shrink.detection import decode as found

Size = Literal["all", "small", "medium", "large"]
_SIDES = {"all": (0.0, 1e5), "small": (0.0, 32.0), "medium": (32.0, 96.0), "large": (96.0, 1e5)}
OVERLAPS = np.linspace(0.5, 0.95, 10)
"""Intersections over union from which on a detection is right; those of COCO."""
MOST_DETECTIONS = 100
"""Detections of a picture and class that count."""


@dataclass(frozen=True)
class ClassMatches:
    """What was found of one class; detections are sorted by score, then by picture.

    Attributes:
        picture: of each detection, int64 (d,).
        group: int64 (d,), the same for detections of one picture with the same score.
        right: bool (t, d), whether it matches a box, by overlap.
        ignored: bool (t, d), whether it counts neither way.
        boxes: of each picture, how many there are to find, int64 (n,).
    """

    picture: Array
    group: Array
    right: Array
    ignored: Array
    boxes: Array


class _Evaluated(TypedDict):
    """What pycocotools tells of one picture and class."""

    dtScores: list[float]
    dtMatches: Array
    dtIgnore: Array
    gtIgnore: Array
    image_id: int


def matches(
    truths: Sequence[Array], detections: Sequence[Array], size: Size = "all"
) -> dict[int, ClassMatches]:
    """Return what was found of each class that is there or was found, by its number.

    Args:
        truths: boxes of each picture, (k, 7), see `shrink.data.boxes`.
        detections: of each picture, (k, 6), see `shrink.detection.decode`.
        size: boxes of which area count, by COCO's limits of 32 and 96 pixels squared.

    Raises:
        ResourceError: the package pycocotools is missing.
    """
    classes = np.unique(
        [
            *(float(one) for rows in truths for one in rows[:, truth.CLASS]),
            *(float(one) for rows in detections for one in rows[:, found.CLASS]),
        ]
    ).astype(int)
    if not len(classes):
        return {}
    evaluated = _evaluate(truths, detections, classes.tolist(), size)
    count = len(truths)
    starts = range(0, len(evaluated), count)
    return {
        label: _of_class([one for one in evaluated[start : start + count] if one], count)
        for label, start in zip(classes.tolist(), starts, strict=True)
    }


def check_installed() -> None:
    """Raise `ResourceError` where pycocotools is missing, before anything is trained."""
    if find_spec("pycocotools") is None:
        raise _missing()


def _missing() -> ResourceError:
    return ResourceError(
        "mean average precision needs the package pycocotools", hint=extra_hint("detection")
    )


def _evaluate(
    truths: Sequence[Array], detections: Sequence[Array], classes: list[int], size: Size
) -> list[_Evaluated | None]:
    """Return pycocotools' answers, class by class and in a class picture by picture."""
    try:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    except ModuleNotFoundError as error:
        raise _missing() from error
    with contextlib.redirect_stdout(io.StringIO()):
        own, other = COCO(), COCO()
        pictures = [{"id": index} for index in range(len(truths))]
        kinds = [{"id": one} for one in classes]
        for coco, rows in ((own, list(_annotations(truths))), (other, list(_results(detections)))):
            coco.dataset = {"images": pictures, "categories": kinds, "annotations": rows}
            coco.createIndex()
        evaluation = COCOeval(own, other, "bbox")
        low, high = _SIDES[size]
        evaluation.params.areaRng, evaluation.params.areaRngLbl = [[low**2, high**2]], [size]
        evaluation.params.maxDets = [MOST_DETECTIONS]
        evaluation.evaluate()
    answers: list[_Evaluated | None] = evaluation.evalImgs
    return answers


def _annotations(truths: Sequence[Array]) -> Iterator[dict[str, object]]:
    number = 0
    for picture, rows in enumerate(truths):
        for row in rows.astype(np.float64):
            number += 1
            yield {
                **_placed(number, picture, row, int(row[truth.CLASS])),
                "area": float(row[truth.AREA]),
                "iscrowd": int(row[truth.CROWD]),
            }


def _results(detections: Sequence[Array]) -> Iterator[dict[str, object]]:
    number = 0
    for picture, rows in enumerate(detections):
        for row in rows:
            number += 1
            yield {
                **_placed(number, picture, row, int(row[found.CLASS])),
                "area": float((row[2] - row[0]) * (row[3] - row[1])),
                "iscrowd": 0,
                "score": float(row[found.SCORE]),
            }


def _placed(number: int, picture: int, row: Array, label: int) -> dict[str, object]:
    left, top, right, bottom = map(float, row[:4])
    box = [left, top, right - left, bottom - top]
    return {"id": number, "image_id": picture, "category_id": label, "bbox": box}


def _of_class(answers: Sequence[_Evaluated], count: int) -> ClassMatches:
    boxes = np.zeros(count, np.int64)
    for one in answers:
        boxes[one["image_id"]] = np.count_nonzero(np.asarray(one["gtIgnore"]) == 0)
    scores = np.array([score for one in answers for score in one["dtScores"]], np.float64)
    pictures = np.array([one["image_id"] for one in answers for _ in one["dtScores"]], np.int64)
    none = np.zeros((len(OVERLAPS), 0), bool)
    right = np.concatenate([none, *(one["dtMatches"] != 0 for one in answers)], axis=1)
    ignored = np.concatenate([none, *(one["dtIgnore"] != 0 for one in answers)], axis=1)
    order = np.argsort(-scores, kind="stable")
    scores, pictures = scores[order], pictures[order]
    new = np.ones(len(order), bool)
    new[1:] = (scores[1:] != scores[:-1]) | (pictures[1:] != pictures[:-1])
    return ClassMatches(
        pictures,
        np.cumsum(new) - 1,
        right[:, order] & ~ignored[:, order],
        ignored[:, order],
        boxes,
    )
