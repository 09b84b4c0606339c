"""COCO's metrics by pycocotools' own evaluation, from JSON written here; nothing of shrink."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import numpy as np

NAMES = {"map": 0, "map_50": 1, "map_75": 2, "map_small": 3, "map_medium": 4, "map_large": 5}
"""Places in `COCOeval.stats`."""


def coco_stats(
    folder: Path, truths: np.ndarray, detections: np.ndarray, times: np.ndarray | None = None
) -> dict[str, float]:
    """Return pycocotools' six mean average precisions; -1 where there is nothing to find.

    Args:
        folder: for the files.
        truths: (n, g, 7): left, top, right, bottom, class (-1: none), crowd, area.
        detections: (n, k, 6): left, top, right, bottom, score, class (-1: none).
        times: how many copies of each picture there are; by default one.
    """
    times = np.ones(len(truths), int) if times is None else times
    copies = np.repeat(np.arange(len(truths)), times)
    labels = np.concatenate([truths[..., 4].ravel(), detections[..., 5].ravel()])
    classes = np.unique(labels.astype(int)).tolist()
    rows: list[dict[str, object]] = []
    results: list[dict[str, object]] = []
    for picture, source in enumerate(copies):
        for left, top, right, bottom, label, crowd, area in truths[source].astype(float):
            if label >= 0:
                rows.append(
                    {
                        "id": len(rows) + 1,
                        "image_id": picture,
                        "category_id": int(label),
                        "bbox": [left, top, right - left, bottom - top],
                        "iscrowd": int(crowd),
                        "area": area,
                    }
                )
        for left, top, right, bottom, score, label in detections[source]:
            if label >= 0:
                box = [left, top, right - left, bottom - top]
                results.append(
                    {"image_id": picture, "category_id": int(label), "bbox": box, "score": score}
                )
    content = {
        "images": [{"id": picture} for picture in range(len(copies))],
        "categories": [{"id": one} for one in classes if one >= 0],
        "annotations": rows,
    }
    (folder / "truth.json").write_text(json.dumps(content))
    (folder / "found.json").write_text(json.dumps(results))
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        own = COCO(str(folder / "truth.json"))
        evaluation = COCOeval(own, own.loadRes(str(folder / "found.json")), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return {name: float(evaluation.stats[place]) for name, place in NAMES.items()}
