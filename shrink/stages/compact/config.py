"""Configuration of the `compact` stage."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from shrink.base.fields import Bytes
from shrink.model.reference import Form
from shrink.stages.base import StageConfig


class CompactConfig(StageConfig):
    """Rewrite a .tflite file to take a smaller tensor arena, its outputs equal to the byte."""

    kind: ClassVar[str] = "compact"
    accepts: ClassVar[tuple[Form, ...]] = ("tflite",)
    follows: ClassVar[tuple[Form, ...]] = ("tflite",)
    produces: ClassVar[Form] = "tflite"

    arena_bytes: Bytes | None = None
    """The arena to fit, with the least extra work that is found; by default the smallest one."""
    max_extra_macs: Annotated[float, Field(ge=0, le=10)] = 0.05
    """Share of multiply-accumulates that may come on top; where no arena is to fit."""
    target: Literal["tflm"] = "tflm"
    """The runtime whose memory counts: TFLite Micro."""

    @property
    def needs_examples(self) -> str | None:
        """It needs none."""
        return None

    @model_validator(mode="after")
    def _check(self) -> CompactConfig:
        if self.arena_bytes is not None and "max_extra_macs" in self.model_fields_set:
            raise ValueError(
                "max_extra_macs: the arena to fit decides how much work comes on top: give one of "
                "the two"
            )
        return self
