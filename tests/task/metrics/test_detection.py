"""Mean average precision against pycocotools' own evaluation, and against closed forms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shrink.base.errors import ResourceError
from shrink.detection.coco import matches
from shrink.task.metrics.resample import draws
from tests.oracle.coco import NAMES, coco_stats
from tests.task.metrics.toys import sampled, value, weighted

CLASSES = ("cat", "dog", "owl")


def scenes(seed: int, pictures: int = 25, *, levels: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Return boxes (n, 5, 7) and detections (n, 9, 6) near some; few scores, so that many tie."""
    random = np.random.default_rng(seed)
    truths = np.zeros((pictures, 5, 7))
    truths[..., 4] = -1
    found = np.zeros((pictures, 9, 6))
    found[..., 5] = -1
    for truth, detected in zip(truths, found, strict=True):
        for row in truth[: random.integers(0, 6)]:
            corner, size = random.uniform(0, 150, 2), random.uniform(4, 140, 2)
            crowd = random.random() < 0.15
            area = size.prod() * random.uniform(0.6, 1)
            row[:] = [*corner, *(corner + size), random.integers(3), crowd, area]
        for row in detected[: random.integers(0, 10)]:
            base = truth[random.integers(5)]
            row[:4] = base[:4] + random.normal(0, 4, 4) if base[4] >= 0 else [5, 5, 30, 40]
            row[2:4] = np.maximum(row[2:4], row[:2] + 1)
            label = int(base[4]) if base[4] >= 0 and random.random() < 0.8 else random.integers(3)
            row[4:] = [random.integers(1, levels) / levels, label]
    # What is stored is float32; a reference from other numbers would tell nothing.
    return truths.astype(np.float32).astype(float), found


@pytest.mark.parametrize("seed", range(4))
def test_metrics_equal_pycocotools_on_random_scenes(seed: int, tmp_path: Path) -> None:
    truths, found = scenes(seed, levels=5 if seed % 2 else 1000)
    expected = coco_stats(tmp_path, truths, found)
    for name in NAMES:
        got = value(name, found, truths, classes=CLASSES)
        assert got == pytest.approx(expected[name], abs=1e-12) if expected[name] >= 0 else True
        assert np.isnan(got) == (expected[name] < 0)


def test_metric_of_a_resample_is_that_of_pycocotools_on_copies_of_its_pictures(
    tmp_path: Path,
) -> None:
    truths, found = scenes(7, 20, levels=4)
    for row in found:  # copies of a picture with two equal scores have no order
        row[:, 4] = np.argsort(np.argsort(row[:, 4] + np.arange(9) * 1e-3)) / 10
    of = {name: weighted(name, found, truths, classes=CLASSES) for name in ("map", "map_50")}
    for times in list(next(draws(20, 6))):
        expected = coco_stats(tmp_path, truths, found, times.astype(int))
        for name, own in of.items():
            assert own.of(times[None])[0] == pytest.approx(expected[name], abs=1e-12)


def test_one_box_and_two_detections_give_the_closed_form() -> None:
    truths = np.array([[[0, 0, 10, 10, 0, 0, 100.0]]])
    # The better score misses, the other overlaps by 8/10: precision 1/2 at overlaps up to 0.8.
    found = np.array([[[50, 50, 60, 60, 0.9, 0], [0, 0, 10, 8, 0.8, 0.0]]])
    assert value("map_50", found, truths, classes=CLASSES) == pytest.approx(0.5, abs=1e-12)
    assert value("map", found, truths, classes=CLASSES) == pytest.approx(0.5 * 7 / 10, abs=1e-12)


def test_half_of_the_boxes_give_the_share_of_recalls_that_they_reach() -> None:
    truths = np.array([[[0, 0, 10, 10, 0, 0, 100.0]], [[0, 0, 10, 10, 0, 0, 100.0]]])
    found = np.array([[[0, 0, 10, 10, 0.9, 0.0]], [[0, 0, 0, 0, 0, -1.0]]])
    assert value("map", found, truths, classes=CLASSES) == pytest.approx(51 / 101, abs=1e-12)


def test_metric_is_not_defined_without_boxes_and_0_without_detections() -> None:
    nothing, none_found = np.full((2, 1, 7), -1.0), np.full((2, 1, 6), -1.0)
    detection = np.array([[[0, 0, 9, 9, 0.5, 1.0]]] * 2)
    assert np.isnan(value("map", none_found, nothing, classes=CLASSES))
    assert np.isnan(value("map", detection, nothing, classes=CLASSES))
    truths = np.array([[[0, 0, 9, 9, 1, 0, 81.0]]] * 2)
    assert value("map", none_found, truths, classes=CLASSES) == 0
    only_crowd = np.array([[[0, 0, 9, 9, 1, 1, 81.0]]] * 2)
    assert np.isnan(value("map", detection, only_crowd, classes=CLASSES))


def test_metric_of_a_class_is_that_of_its_boxes_alone(tmp_path: Path) -> None:
    truths, found = scenes(3, levels=1000)
    alone_t, alone_f = truths.copy(), found.copy()
    alone_t[alone_t[..., 4] != 1, 4] = -1
    alone_f[alone_f[..., 5] != 1, 5] = -1
    expected = coco_stats(tmp_path, alone_t, alone_f)["map"]
    got = value("map_dog", found, truths, classes=CLASSES)
    assert got == pytest.approx(expected, abs=1e-12)


def test_interval_comes_from_as_many_resamples_as_of_other_metrics_of_few_pictures() -> None:
    truths, found = scenes(5)
    sample = sampled("map", found, truths, classes=CLASSES)
    assert sample is not None
    assert len(sample.replicates) == 2_000
    assert len(sample.influences) == len(truths)
    known = [one for one in sample.replicates if one is not None]
    assert min(known) < sample.value < max(known)


def test_missing_package_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pycocotools.coco", None)
    truths, found = scenes(1, 4)
    with pytest.raises(ResourceError, match="pycocotools") as raised:
        matches([row[row[:, 4] >= 0] for row in truths], [row[row[:, 5] >= 0] for row in found])
    assert raised.value.exit_code == 5
    assert "pip install 'pycocotools" in str(raised.value.hint)
