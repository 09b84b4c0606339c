"""Decoding against formulas written out, and suppression against TensorFlow's."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import tensorflow as tf

from shrink.base.errors import ModelError
from shrink.detection.config import DecodeConfig
from shrink.detection.decode import decode, iou, select, suppress
from shrink.detection.head import head_of

RANDOM = np.random.default_rng(0)

Coding = Literal["exp", "squared"]


def chosen(score_threshold: float, nms_iou: float, most: int) -> DecodeConfig:
    """Return which candidates become detections."""
    return DecodeConfig(
        name="boxes", score_threshold=score_threshold, nms_iou=nms_iou, max_detections=most
    )


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def random_boxes(count: int) -> np.ndarray:
    corners = RANDOM.uniform(0, 60, (count, 2))
    return np.hstack([corners, corners + RANDOM.uniform(5, 40, (count, 2))])


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.5, 0.9])
def test_suppress_keeps_what_tensorflow_keeps(threshold: float) -> None:
    boxes = random_boxes(60).astype(np.float32)
    scores = np.sort(RANDOM.random(60).astype(np.float32))[::-1]
    turned = boxes[:, [1, 0, 3, 2]]
    expected = tf.image.non_max_suppression(turned, scores, 60, threshold).numpy()
    np.testing.assert_array_equal(suppress(boxes, threshold), expected)


def test_iou_is_that_of_areas() -> None:
    one = np.array([[0.0, 0, 2, 2], [0, 0, 0, 0]])
    other = np.array([[1.0, 1, 3, 3], [0, 0, 2, 2], [5, 5, 6, 6]])
    np.testing.assert_allclose(iou(one, other), [[1 / 7, 1.0, 0.0], [0.0, 0.0, 0.0]], atol=1e-15)


def test_select_is_by_class_and_breaks_ties_by_place() -> None:
    boxes = np.array([[0.0, 0, 10, 10], [0, 0, 10, 9], [30, 30, 40, 40]])
    scores = np.array([[0.5, 0.7], [0.5, 0.2], [0.04, np.nan]])
    got = select(boxes, scores, chosen(0.05, 0.5, 100))
    np.testing.assert_allclose(got, [[0, 0, 10, 10, 0.7, 1], [0, 0, 10, 10, 0.5, 0]])
    assert len(select(boxes, scores, chosen(0.05, 0.5, 1))) == 1
    assert len(select(boxes, scores, chosen(0.8, 0.5, 9))) == 0


def test_grid_counts_distances_from_the_centre_of_a_cell() -> None:
    head = head_of(
        DecodeConfig(name="grid", strides=(8, 16)), (32, 32, 3), [(4, 4, 6), (2, 2, 6)], 2
    )
    fine, coarse = RANDOM.normal(size=(1, 4, 4, 6)), RANDOM.normal(size=(1, 2, 2, 6))
    read = head.read([tf.constant(fine), tf.constant(coarse)])
    for place, raw, stride, row, column in [
        (4 * 2 + 3, fine[0, 2, 3], 8, 2, 3),
        (16 + 1, coarse[0, 0, 1], 16, 0, 1),
    ]:
        apart = np.log1p(np.exp(raw[:4])) * stride
        x, y = (column + 0.5) * stride, (row + 0.5) * stride
        expected = [x - apart[0], y - apart[1], x + apart[2], y + apart[3]]
        np.testing.assert_allclose(read.boxes[0, place], expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(head.probabilities(read)[0, place], sigmoid(raw[4:]))


def test_ssd_scales_offsets_by_anchor_and_variance_and_leaves_the_background_out() -> None:
    settings = DecodeConfig(name="ssd", strides=(8,), anchors=(((12.0, 6.0),),), scores="softmax")
    head = head_of(settings, (16, 16, 1), [(4, 4), (4, 3)], 2)
    offsets, logits = RANDOM.normal(size=(1, 4, 4)), RANDOM.normal(size=(1, 4, 3))
    read = head.read([tf.constant(offsets), tf.constant(logits)])
    t = offsets[0, 2]  # row 1, column 0
    centre = np.array([4, 12]) + 0.1 * t[:2] * [12, 6]
    size = np.exp(0.2 * t[2:]) * [12, 6]
    expected = [*(centre - size / 2), *(centre + size / 2)]
    np.testing.assert_allclose(read.boxes[0, 2], expected, rtol=0, atol=1e-12)
    e = np.exp(logits[0, 2])
    np.testing.assert_allclose(head.probabilities(read)[0, 2], e[1:] / e.sum(), atol=1e-12)


@pytest.mark.parametrize("units", ["pixels", "fraction"])
@pytest.mark.parametrize("form", ["xyxy", "xywh"])
def test_boxes_are_as_the_model_says(units: str, form: str) -> None:
    settings = chosen(0.15, 0.5, 4).model_copy(update={"box_format": form, "units": units})
    head = head_of(settings, (20, 40, 1), [(3, 6)], 2)
    edges = np.array([[1.0, 2, 11, 8], [5, 5, 9, 7], [20, 4, 36, 16]])
    stored = edges.copy()
    if form == "xywh":
        stored = np.hstack([(edges[:, :2] + edges[:, 2:]) / 2, edges[:, 2:] - edges[:, :2]])
    if units == "fraction":
        stored = stored / [40, 20, 40, 20]
    scores = np.array([[0.9, 0.1], [0.0, 1.0], [0.2, 0.3]])
    found = decode(head, [np.hstack([stored, scores])[None]])
    expected = [[*edges[1], 1, 1], [*edges[0], 0.9, 0], [*edges[2], 0.3, 1], [*edges[2], 0.2, 0]]
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=2e-7)


def test_boxes_that_are_not_finite_are_left_out() -> None:
    boxes = np.array([[0.0, 0, 10, 10], [0, 0, np.inf, 10], [0, np.nan, 9, 9]])
    got = select(boxes, np.array([[0.5], [0.9], [0.8]]), chosen(0.05, 0.5, 100))
    np.testing.assert_allclose(got, [[0, 0, 10, 10, 0.5, 0]])


def test_decode_pads_pictures_without_detections() -> None:
    head = head_of(chosen(0.5, 0.5, 3), (20, 20, 1), [(2, 5)], 1)
    found = decode(head, [np.zeros((2, 2, 5))])
    assert found.shape == (2, 3, 6)
    assert np.all(found[..., 5] == -1)


def test_outputs_of_another_shape_are_refused_with_the_one_that_is_wanted() -> None:
    with pytest.raises(ModelError, match=r"\(4, 4, 6\), not \(4, 4, 7\)"):
        head_of(DecodeConfig(name="grid", strides=(8,)), (32, 32, 3), [(4, 4, 7)], 2)
    with pytest.raises(ModelError, match="no picture"):
        head_of(DecodeConfig(name="grid", strides=(8,)), (None, 32, 3), [(4, 4, 6)], 2)


@pytest.mark.parametrize("coding", ["exp", "squared"])
def test_yolo_of_two_levels_is_decoded_as_loops_over_cells_and_anchors_do(coding: Coding) -> None:
    strides, classes = (8, 16), 3
    anchors = (((6.0, 9.0), (12.0, 8.0)), ((20.0, 16.0), (30.0, 34.0)))
    settings = DecodeConfig(
        name="yolo",
        strides=strides,
        anchors=anchors,
        coding=coding,
        score_threshold=0.2,
        max_detections=50,
    )
    shapes = [(4, 5, 2 * (5 + classes)), (2, 3, 2 * (5 + classes))]
    head = head_of(settings, (32, 40, 1), shapes, classes)
    outputs = [RANDOM.normal(0, 1.5, (2, *shape)) for shape in shapes]
    found = decode(head, outputs)
    for picture in range(2):
        rows = []  # the layout of darknet's files: cell by cell, in a cell anchor by anchor
        for output, stride, own in zip(outputs, strides, anchors, strict=True):
            for y, x, which in np.ndindex(*output.shape[1:3], 2):
                t = output[picture, y, x].reshape(2, 5 + classes)[which]
                if coding == "exp":
                    centre = [(x + sigmoid(t[0])) * stride, (y + sigmoid(t[1])) * stride]
                    size = [own[which][0] * np.exp(t[2]), own[which][1] * np.exp(t[3])]
                else:
                    centre = [(x - 0.5 + 2 * sigmoid(t[0])) * stride, 0]
                    centre[1] = (y - 0.5 + 2 * sigmoid(t[1])) * stride
                    size = [
                        a * (2 * sigmoid(s)) ** 2 for a, s in zip(own[which], t[2:4], strict=True)
                    ]
                low = [c - s / 2 for c, s in zip(centre, size, strict=True)]
                high = [c + s / 2 for c, s in zip(centre, size, strict=True)]
                for label in range(classes):
                    rows.append([*low, *high, sigmoid(t[4]) * sigmoid(t[5 + label]), label])
        expected = []
        for label in range(classes):
            own_rows = np.array([row for row in rows if row[5] == label and row[4] >= 0.2])
            turned = own_rows[:, [1, 0, 3, 2]].astype(np.float32)
            kept = tf.image.non_max_suppression(turned, own_rows[:, 4].astype(np.float32), 99, 0.5)
            expected += own_rows[kept.numpy()].tolist()
        expected = sorted(expected, key=lambda row: -row[4])[:50]
        assert len(expected) > 10
        np.testing.assert_allclose(found[picture][: len(expected)], expected, rtol=0, atol=1e-9)
        assert np.all(found[picture][len(expected) :, 5] == -1)
