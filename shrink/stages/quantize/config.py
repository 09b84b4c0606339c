"""Configuration of the `quantize` stage."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import model_validator

from shrink.base.fields import Bytes, Count, Fraction, NonNegative
from shrink.model.reference import Form
from shrink.stages.base import StageConfig

SchemeName = Literal[
    "float32",
    "float16",
    "dynamic_wi8_afp32",
    "dynamic_wi4_afp32",
    "weight_only_wi8_afp32",
    "weight_only_wi4_afp32",
    "static_wi8_ai8",
    "static_wi8_ai16",
    "mixed",
]
InputOutputType = Literal["int8", "uint8", "int16", "float32"]

SCHEMES_WITHOUT_EXAMPLES: tuple[SchemeName, ...] = (
    "float32",
    "float16",
    "dynamic_wi8_afp32",
    "weight_only_wi8_afp32",
)
"""Schemes that a model alone decides; the others calibrate on training examples."""

_MEANT_BY: dict[str, str] = {
    **dict.fromkeys(("int8", "i8", "full_integer", "static", "qat", "8bit"), "static_wi8_ai8"),
    **dict.fromkeys(("int16", "16x8", "int16x8"), "static_wi8_ai16"),
    **dict.fromkeys(("fp16", "f16", "half"), "float16"),
    **dict.fromkeys(("fp32", "f32", "float"), "float32"),
    **dict.fromkeys(("dynamic", "drq", "dynamic_range", "dynamic_int8"), "dynamic_wi8_afp32"),
    **dict.fromkeys(("weight_only", "wo8", "weight_only_int8"), "weight_only_wi8_afp32"),
    **dict.fromkeys(("int4", "i4", "4bit"), "dynamic_wi4_afp32"),
}
"""What people elsewhere call a scheme, or what is near to it: for hints, not for recipes."""

LEGAL_TYPES: dict[str, tuple[str, ...]] = {
    "static_wi8_ai8": ("int8", "uint8", "float32"),
    "static_wi8_ai16": ("int16", "float32"),
}
"""Input and output types that a static scheme can have, the default first; others have float32."""
_MIXED_STATIC_TYPES = ("int8", "float32")
_NOT_FOR_MICRO: tuple[SchemeName, ...] = (
    "float16",
    "dynamic_wi8_afp32",
    "dynamic_wi4_afp32",
    "weight_only_wi4_afp32",
)
"""Schemes whose weights no kernel of TFLite Micro reads, whatever the model."""


class QuantizeConfig(StageConfig):
    """Convert to TFLite under a quantization scheme, calibrated on the training split."""

    kind: ClassVar[str] = "quantize"
    accepts: ClassVar[tuple[Form, ...]] = ("keras", "tflite")
    produces: ClassVar[Form] = "tflite"
    meant_by: ClassVar[dict[str, dict[str, str]]] = {"scheme": _MEANT_BY}

    scheme: SchemeName = "static_wi8_ai8"
    """What weights (w) and activations (a) become; float32 only converts; mixed: to a budget."""
    accuracy_drop: Fraction | None = None
    """mixed: the accuracy that may be lost on the validation split, at the smallest size."""
    file_bytes: Bytes | None = None
    """mixed: the size of the artifact to reach, with the least error."""
    activations: Literal["int8", "float32"] = "int8"
    """mixed: int8 is static; float32 is quantized while running, where the runtime does so."""
    calibration_samples: Count = 500
    """Examples of the training split, stratified, that set ranges and 4-bit rounding."""
    dense_scales: Literal["channel", "tensor"] = "channel"
    """static_wi8_ai8: weight scales of dense layers; tensor is smaller and runs everywhere."""
    aware: bool = False
    """static_wi8_ai8: train for `epochs` first, with weights and activations rounded."""
    epochs: NonNegative = 0
    """aware: passes of training; a tenth of the learning rate that made the model is enough."""
    input_type: InputOutputType | None = None
    """Type of the artifact's inputs: for static_wi8_ai8 int8 by default."""
    output_type: InputOutputType | None = None
    """Type of the artifact's outputs: for static_wi8_ai8 int8 by default."""
    target: Literal["litert", "tflm"] = "litert"
    """The runtime that the artifact is for; tflm runs it in TFLite Micro and compares outputs."""
    sparse: bool = False
    """Leave the zeros out of kernels where that shrinks the file; LiteRT puts them back."""
    embed_metadata: bool = False
    """Also store labels and normalisation in the file, as the metadata entry `shrink` (JSON)."""

    @property
    def legal_types(self) -> tuple[str, ...]:
        """Input and output types that the scheme can have, the default first."""
        if self.scheme == "mixed" and self.activations == "int8":
            return _MIXED_STATIC_TYPES
        return LEGAL_TYPES.get(self.scheme, ("float32",))

    @property
    def artifact_input_type(self) -> str:
        """The type of the artifact's inputs, the scheme's default where none is given."""
        return self.input_type or self.legal_types[0]

    @property
    def artifact_output_type(self) -> str:
        """The type of the artifact's outputs, the scheme's default where none is given."""
        return self.output_type or self.legal_types[0]

    @property
    def needs_examples(self) -> str | None:
        """What it does with examples; some schemes need none."""
        if self.scheme in SCHEMES_WITHOUT_EXAMPLES:
            return None
        return f"calibrates {self.scheme} on them"

    @property
    def needs_classes(self) -> bool:
        """Whether its budget is one of accuracy."""
        return self.accuracy_drop is not None

    @model_validator(mode="after")
    def _check(self) -> QuantizeConfig:
        for key in ("input_type", "output_type"):
            value = getattr(self, key)
            if value is not None and value not in self.legal_types:
                legal = " or ".join(self.legal_types)
                raise ValueError(f"{key}: {self.scheme} can have {legal}, not {value}")
        return self

    @model_validator(mode="after")
    def _check_aware(self) -> QuantizeConfig:
        if self.dense_scales != "channel" and self.scheme != "static_wi8_ai8":
            raise ValueError(f"dense_scales belongs to static_wi8_ai8, not to {self.scheme}")
        if self.sparse and self.target == "tflm":
            raise ValueError("sparse needs target litert: TFLite Micro has no DENSIFY")
        if self.target == "tflm" and self.scheme in _NOT_FOR_MICRO:
            raise ValueError(
                f"target tflm: TFLite Micro has no kernels for the weights of {self.scheme}; take "
                "static_wi8_ai8"
            )
        if self.target == "tflm" and self.scheme == "mixed" and self.activations == "float32":
            raise ValueError("target tflm: TFLite Micro runs mixed with activations: int8 only")
        if self.aware and self.scheme != "static_wi8_ai8":
            raise ValueError(f"aware belongs to scheme static_wi8_ai8, not to {self.scheme}")
        if self.aware != (self.epochs > 0):
            raise ValueError("aware and epochs need each other: `aware: true, epochs: 3`")
        return self

    @model_validator(mode="after")
    def _check_budget(self) -> QuantizeConfig:
        budgets = [k for k in ("accuracy_drop", "file_bytes") if getattr(self, k) is not None]
        if self.scheme == "mixed" and len(budgets) != 1:
            raise ValueError("mixed needs exactly one budget: accuracy_drop or file_bytes")
        if self.scheme != "mixed" and budgets:
            raise ValueError(f"{budgets[0]} is a budget of scheme mixed, not of {self.scheme}")
        if self.scheme != "mixed" and self.activations != "int8":  # a written default is harmless
            raise ValueError(f"activations belongs to scheme mixed, not to {self.scheme}")
        return self
