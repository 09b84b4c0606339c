"""Configuration of the `quantize` stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from shrink.base.fields import Bytes, Count, Fraction, NameIn, NonNegative
from shrink.base.packages import check_keras
from shrink.model.reference import Form
from shrink.stages.base import StageConfig

InputOutputType = Literal["int8", "uint8", "int16", "float32"]


@dataclass(frozen=True)
class SchemeTraits:
    """What a recipe may ask of a scheme, and what it is called; light.

    Attributes:
        types: input and output types that the artifact can have, the default first.
        calibrates: whether training examples set ranges or rounding, and not the model alone.
        is_integer: whether at least one operator must have integer weights.
        runs_in_micro: whether kernels of TFLite Micro read its weights.
        aliases: what recipes may write for it.
        meant_by: what people elsewhere call it, or what is near to it: for hints, not for recipes.
    """

    types: tuple[str, ...] = ("float32",)
    calibrates: bool = True
    is_integer: bool = True
    runs_in_micro: bool = True
    aliases: tuple[str, ...] = ()
    meant_by: tuple[str, ...] = ()


SCHEME_TRAITS = {
    "float32": SchemeTraits(
        calibrates=False, is_integer=False, aliases=("fp32",), meant_by=("f32", "float")
    ),
    "float16": SchemeTraits(
        calibrates=False,
        is_integer=False,
        runs_in_micro=False,
        aliases=("fp16",),
        meant_by=("f16", "half"),
    ),
    "dynamic_wi8_afp32": SchemeTraits(
        calibrates=False,
        runs_in_micro=False,
        aliases=("dynamic",),
        meant_by=("drq", "dynamic_range", "dynamic_int8"),
    ),
    "dynamic_wi4_afp32": SchemeTraits(runs_in_micro=False, meant_by=("int4", "i4", "4bit")),
    "weight_only_wi8_afp32": SchemeTraits(
        calibrates=False, aliases=("weight_only",), meant_by=("wo8", "weight_only_int8")
    ),
    "weight_only_wi4_afp32": SchemeTraits(runs_in_micro=False),
    "static_wi8_ai8": SchemeTraits(
        types=("int8", "uint8", "float32"),
        aliases=("int8",),
        meant_by=("i8", "full_integer", "static", "qat", "8bit"),
    ),
    "static_wi8_ai16": SchemeTraits(
        types=("int16", "float32"), aliases=("int16x8",), meant_by=("int16", "16x8")
    ),
    "mixed": SchemeTraits(types=("int8", "float32")),
}
"""Every scheme by its name; of `mixed` the types are those with int8 activations."""


ALIASES = {word: name for name, one in SCHEME_TRAITS.items() for word in one.aliases}
"""What recipes may write for a scheme; everything else has its exact name."""


class QuantizeConfig(StageConfig):
    """Convert to TFLite under a quantization scheme, calibrated on the training split."""

    kind: ClassVar[str] = "quantize"
    accepts: ClassVar[tuple[Form, ...]] = ("keras", "tflite")
    produces: ClassVar[Form] = "tflite"
    meant_by: ClassVar[dict[str, dict[str, str]]] = {
        "scheme": {
            word: name
            for name, one in SCHEME_TRAITS.items()
            for word in (*one.aliases, *one.meant_by)
        }
    }

    scheme: Annotated[str, NameIn(SCHEME_TRAITS, ALIASES)] = "static_wi8_ai8"
    """What weights (w) and activations (a) become; float32 only converts; mixed: to a budget.
    int8 is static_wi8_ai8, int16x8 static_wi8_ai16, dynamic dynamic_wi8_afp32, weight_only
    weight_only_wi8_afp32, fp16 float16 and fp32 float32."""
    accuracy_drop: Fraction | None = None
    """mixed: how much accuracy may fall on the validation split; the smallest such file is made."""
    metric_drop: Annotated[float, Field(ge=0)] | None = None
    """mixed: how much worse the main metric may be on the validation split, in its own unit;
    the smallest file within it is taken. An anomaly metric is replaced by the next metric, or
    the loss."""
    file_bytes: Bytes | None = None
    """mixed: file size to reach, with the least error."""
    activations: Literal["int8", "float32"] = "int8"
    """mixed; int8: static quantization; float32: the runtime quantizes activations itself, or
    not at all."""
    calibration_samples: Count = 500
    """Training examples, stratified, for ranges and for rounding to 4 bits."""
    dense_scales: Literal["auto", "channel", "tensor"] = "auto"
    """static_wi8_ai8: weight scales of dense layers; channel: one per output channel; tensor:
    one per layer, a smaller file that every runtime takes; auto: tensor if that is 1 % smaller
    and little less precise on calibration examples."""
    aware: bool = False
    """static_wi8_ai8: first train for `epochs` with rounded weights and activations."""
    epochs: NonNegative = 0
    """aware: epochs of training; a tenth of the original learning rate is enough."""
    input_type: InputOutputType | None = None
    """Type of the file's inputs; int8 by default with static_wi8_ai8."""
    output_type: InputOutputType | None = None
    """Type of the file's outputs; int8 by default with static_wi8_ai8."""
    split_outputs: bool = False
    """Models with `task.decode`: make the parts of the final concatenation separate outputs,
    each with its own scale, so that scores do not share the scale of boxes in pixels."""
    target: Literal["litert", "tflm"] = "litert"
    """The runtime of the file; tflm: also run it in TFLite Micro and compare outputs."""
    sparse: bool = False
    """Leave zeros out of kernels if that makes the file smaller; LiteRT restores them when it
    loads the file."""
    embed_metadata: bool = False
    """Also store labels and normalisation in the file, as the metadata entry `shrink` (JSON)."""

    @property
    def traits(self) -> SchemeTraits:
        """What its scheme is like."""
        return SCHEME_TRAITS[self.scheme]

    @property
    def legal_types(self) -> tuple[str, ...]:
        """Input and output types that the scheme can have, the default first."""
        if self.scheme == "mixed" and self.activations == "float32":
            return ("float32",)
        return self.traits.types

    @property
    def artifact_input_type(self) -> str:
        """The type of the artifact's inputs, the scheme's default where none is given."""
        return self.input_type or self.legal_types[0]

    @property
    def artifact_output_type(self) -> str:
        """The type of the artifact's outputs, the scheme's default where none is given."""
        return self.output_type or self.legal_types[0]

    @property
    def integer_outputs(self) -> bool:
        """Whether the recipe asks for integer outputs, even of operators that stay float."""
        return self.output_type not in (None, "float32")

    @property
    def runs_in_micro(self) -> bool:
        """Whether TFLite Micro has kernels for what the stage makes of weights."""
        floats = self.scheme == "mixed" and self.activations == "float32"
        return self.traits.runs_in_micro and not self.sparse and not floats

    @property
    def needs_examples(self) -> str | None:
        """What it does with examples; some schemes need none."""
        return f"calibrates {self.scheme} on them" if self.traits.calibrates else None

    @property
    def needs_targets(self) -> str | None:
        """Calibration needs none; training and a budget of a metric do."""
        if self.aware:
            return "trains on them"
        budget = self.accuracy_drop is not None or self.metric_drop is not None
        return "has a budget of a metric" if budget else None

    def check_installed(self) -> None:
        """Raise `ResourceError` without TensorFlow, which converts .tflite files too."""
        check_keras()

    @property
    def needs_micro(self) -> bool:
        """Whether it compares TFLite Micro's outputs."""
        return self.target == "tflm"

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
        if self.dense_scales == "tensor" and self.scheme != "static_wi8_ai8":
            raise ValueError(f"dense_scales belongs to static_wi8_ai8, not to {self.scheme}")
        if self.sparse and self.target == "tflm":
            raise ValueError("sparse needs target litert: TFLite Micro has no DENSIFY")
        if self.target == "tflm" and not self.traits.runs_in_micro:
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
        keys = ("accuracy_drop", "metric_drop", "file_bytes")
        budgets = [k for k in keys if getattr(self, k) is not None]
        if self.scheme == "mixed" and len(budgets) != 1:
            raise ValueError(
                "mixed needs exactly one budget: accuracy_drop, metric_drop or file_bytes"
            )
        if self.scheme != "mixed" and budgets:
            raise ValueError(f"{budgets[0]} is a budget of scheme mixed, not of {self.scheme}")
        if self.scheme != "mixed" and self.activations != "int8":  # a written default is harmless
            raise ValueError(f"activations belongs to scheme mixed, not to {self.scheme}")
        return self
