"""Configuration of the `compact` stage."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from shrink.base.fields import Bytes
from shrink.base.foreign import JsonObject
from shrink.compact.targets.names import NPUS, PLACED, PlacedTarget, check_vela
from shrink.model.reference import Form
from shrink.stages.base import StageConfig

_OF_ARENAS = ("arena_bytes", "max_extra_macs", "int8_io")


class CompactConfig(StageConfig):
    """Rewrite a .tflite file to take a smaller tensor arena, its outputs equal to the byte."""

    kind: ClassVar[str] = "compact"
    accepts: ClassVar[tuple[Form, ...]] = ("tflite",)
    follows: ClassVar[tuple[Form, ...]] = ("tflite",)
    produces: ClassVar[Form] = "tflite"

    arena_bytes: Bytes | None = None
    """Arena to fit, with the fewest extra multiply-accumulates found; by default the smallest
    arena."""
    max_extra_macs: Annotated[float, Field(ge=0, le=10)] = 0.05
    """Fraction of extra multiply-accumulates allowed: 0.05 is 5 %. Not with `arena_bytes`."""
    int8_io: bool = False
    """Make uint8 and float32 inputs and outputs int8, and drop the operators that convert them."""
    target: Literal["tflm", PlacedTarget] = "tflm"
    """What runs the file; tflm: TFLite Micro, whose arena becomes smaller; ethos-u*: an NPU,
    for which Vela compiles; xnnpack: LiteRT, and the file stays as it is."""
    decode: Literal["auto"] | None = None
    """auto: compress pruned and clustered int8 kernels for TFLite Micro's operator TFLM_DECODE."""

    @property
    def needs_examples(self) -> str | None:
        """It needs none."""
        return None

    @property
    def needs_micro(self) -> bool:
        """Whether it plans TFLite Micro's arena."""
        return self.target == "tflm"

    @property
    def bounds_work(self) -> bool:
        """Whether `max_extra_macs` decides how small an arena in TFLite Micro becomes."""
        return self.target == "tflm" and self.arena_bytes is None

    @property
    def arguments(self) -> JsonObject:
        """The arguments of `shrink.compact.compact`."""
        return {
            "arena": self.arena_bytes,
            "max_extra_macs": self.max_extra_macs,
            "int8_io": self.int8_io,
            "decode": self.decode == "auto",
        }

    def check_installed(self) -> None:
        """Raise `ResourceError` where Vela is missing, which compiles for an NPU."""
        if self.target in NPUS:
            check_vela(self.target)

    @model_validator(mode="after")
    def _check(self) -> CompactConfig:
        # Not what is set: a worker is given every key, those at their defaults among them.
        fields = type(self).model_fields
        given = [name for name in _OF_ARENAS if getattr(self, name) != fields[name].default]
        if self.target in PLACED and given:
            raise ValueError(f"{given[0]}: it is for target: tflm, not for {self.target}")
        if "arena_bytes" in given and "max_extra_macs" in given:
            raise ValueError(
                "max_extra_macs: arena_bytes, the arena to fit, decides how much work comes on "
                "top: give one of the two"
            )
        if self.decode is not None and self.target != "tflm":
            raise ValueError(
                f"decode: it is for target: tflm, not for {self.target}: TFLite Micro alone runs "
                "such a file"
            )
        return self
