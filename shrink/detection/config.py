"""The key `task.decode` of a recipe: how outputs become boxes; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from shrink.base.errors import hint_for
from shrink.base.fields import Config, Count, Fraction, Positive
from shrink.base.foreign import JsonObject
from shrink.base.functions import of_file

KINDS = ("boxes", "grid", "yolo", "ssd")
"""Heads that shrink knows."""
_FUNCTION: JsonObject = {"type": "string", "pattern": r"\.py:[A-Za-z_]\w*$"}
_NAMES: JsonObject = {"anyOf": [{"enum": list(KINDS)}, _FUNCTION]}
Pair = Annotated[tuple[Positive, Positive], Field(strict=False)]
Anchors = Annotated[tuple[Pair, ...], Field(strict=False, min_length=1)]


class DetectionLossConfig(Config):
    """What a detector is trained on: scores of every candidate, and the boxes that it should find.

    An example's loss is divided by the number of its candidates that are assigned to a box.
    """

    gamma: Annotated[float, Field(ge=0)] = 2.0
    """Exponent of the focal loss of sigmoid scores (Lin et al. 2017); 0: binary cross-entropy."""
    alpha: Fraction = 0.25
    """Focal loss: weight of candidates that are assigned to a box; the others have 1 - alpha."""
    box: Literal["giou", "l1"] = "giou"
    """Loss of boxes: 1 - generalised intersection over union (Rezatofighi et al. 2019), or the
    mean distance of edges, in sizes of the cell or anchor."""
    box_weight: Positive = 2.0
    """Weight of the loss of boxes."""


class DecodeConfig(Config):
    """How outputs become boxes; the same for every stage, on the host. Lengths are pixels."""

    name: Annotated[str, WithJsonSchema(_NAMES)]
    """boxes: the model decodes by itself, [4 numbers, probabilities] per candidate. grid: an
    output (h, w, 4 + classes) per stride, distances from the cell's centre to the edges as
    softplus(t) strides, and logits (FCOS). yolo: an output (h, w, anchors * (5 + classes)) per
    stride, with objectness. ssd: offsets (a, 4) in anchors, and logits (a, classes). Or
    `file.py:function` from outputs to detections (docs/detection.md)."""
    strides: Annotated[tuple[Count, ...], Field(strict=False)] = ()
    """Pixels between cells, for each output or level, the finest first; `boxes` needs them only
    for training."""
    anchors: Annotated[tuple[Anchors, ...], Field(strict=False)] = ()
    """yolo and ssd: [width, height] of each cell's anchors, a list for each stride."""
    box_format: Literal["xyxy", "xywh"] = "xyxy"
    """boxes: left, top, right, bottom; or centre, width and height."""
    units: Literal["pixels", "fraction"] = "pixels"
    """boxes: pixels of the model's input, or fractions of its width and height."""
    coding: Literal["exp", "squared"] = "exp"
    """yolo: sizes are exp(t) anchors (YOLOv3), or (2 sigmoid(t))^2 anchors (YOLOv5)."""
    variances: Annotated[tuple[Positive, Positive], Field(strict=False)] = (0.1, 0.2)
    """ssd: factors of offsets and of the logarithms of sizes."""
    scores: Literal["sigmoid", "softmax"] = "sigmoid"
    """ssd and boxes; softmax: one more class, the first, is the background."""
    score_threshold: Fraction = 0.05
    """Candidates with lower scores are dropped; mean average precision needs a low threshold."""
    nms_iou: Fraction = 0.5
    """Of two boxes of a class that overlap more than this, the one with the lower score is
    dropped."""
    max_detections: Count = 100
    """Detections per picture, those with the highest scores; COCO's metrics use at most 100."""
    loss: DetectionLossConfig | Annotated[str, WithJsonSchema(_FUNCTION)] = DetectionLossConfig()
    """Loss of training, in place of `task.loss`. If `name` is a function, this is a
    `file.py:function` of boxes and outputs; without it such a model cannot be trained."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonObject:
        """Return the schema of the mapping, or of a function alone."""
        return {"anyOf": [handler(schema), _FUNCTION]}

    @property
    def function(self) -> tuple[str, str] | None:
        """File and name of the function that decodes; None for a head that shrink knows."""
        return of_file(self.name)

    @property
    def loss_function(self) -> tuple[str, str] | None:
        """File and name of the function that training minimises, where there is one."""
        return of_file(self.loss) if isinstance(self.loss, str) else None

    @model_validator(mode="before")
    @classmethod
    def _as_mapping(cls, given: object) -> object:
        """Return the mapping that a text stands for."""
        return {"name": given} if isinstance(given, str) else given

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in KINDS and of_file(name) is None:
            near = hint_for(name, KINDS)
            raise ValueError(f"no such head, nor file.py:function: {name!r}; {near}")
        return name

    @model_validator(mode="after")
    def _check(self) -> DecodeConfig:
        if isinstance(self.loss, str) and (self.loss_function is None or self.function is None):
            raise ValueError(
                f"decode.loss: {self.loss!r} is no file.py:function beside one that decodes"
            )
        anchored = self.name in ("yolo", "ssd")
        if self.name != "boxes" and self.function is None and not self.strides:
            raise ValueError(f"decode {self.name} needs strides, such as [8, 16]")
        if anchored and len(self.anchors) != len(self.strides):
            raise ValueError(f"decode {self.name} needs anchors for each of the strides")
        if list(self.strides) != sorted(set(self.strides)):
            raise ValueError("strides ascend: the finest level comes first")
        if self.scores == "softmax" and self.name not in ("ssd", "boxes"):
            raise ValueError(f"scores: softmax belongs to ssd and boxes, not to {self.name}")
        return self

    def idle_keys(self) -> Mapping[str, str]:
        """Return the keys that this kind of head does not read."""
        of = {
            "anchors": ("yolo", "ssd"),
            "box_format": ("boxes",),
            "units": ("boxes",),
            "coding": ("yolo",),
            "variances": ("ssd",),
        }
        idle = {
            key: f"decode {' or '.join(names)}"
            for key, names in of.items()
            if self.name not in names
        }
        if self.function is not None:
            keys = ["strides", "scores", "score_threshold", "nms_iou"]
            keys += ["loss"] if self.loss_function is None else []
            idle |= dict.fromkeys(
                keys, f"decode {', '.join(KINDS)}; a function decides this itself"
            )
        return idle
