"""Configuration of the `quantize` stage."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import model_validator

from shrink.recipe.fields import Count
from shrink.stages.base import Form, StageConfig

SchemeName = Literal["float32", "float16", "dynamic_wi8_afp32", "static_wi8_ai8", "static_wi8_ai16"]
InputOutputType = Literal["int8", "uint8", "int16", "float32"]

LEGAL_TYPES: dict[str, tuple[str, ...]] = {
    "static_wi8_ai8": ("int8", "uint8", "float32"),
    "static_wi8_ai16": ("int16", "float32"),
}
"""Input and output types that a static scheme can have, the default first; others have float32."""


class QuantizeConfig(StageConfig):
    """Convert to TFLite under a quantization scheme, calibrated on the training split."""

    kind: ClassVar[str] = "quantize"
    summary: ClassVar[str] = "convert to TFLite with integer or half-precision weights"
    produces: ClassVar[Form] = "tflite"

    scheme: SchemeName = "static_wi8_ai8"
    """What weights (w) and activations (a) become; float32 only converts."""
    calibration_samples: Count = 500
    """Examples of the training split, stratified, that set the activation ranges."""
    input_type: InputOutputType | None = None
    """Type of the artifact's inputs: for static_wi8_ai8 int8 by default."""
    output_type: InputOutputType | None = None
    """Type of the artifact's outputs: for static_wi8_ai8 int8 by default."""

    @property
    def legal_types(self) -> tuple[str, ...]:
        """Input and output types that the scheme can have, the default first."""
        return LEGAL_TYPES.get(self.scheme, ("float32",))

    @model_validator(mode="after")
    def _check(self) -> QuantizeConfig:
        for key in ("input_type", "output_type"):
            value = getattr(self, key)
            if value is not None and value not in self.legal_types:
                legal = " or ".join(self.legal_types)
                raise ValueError(f"{key}: {self.scheme} can have {legal}, not {value}")
        return self
