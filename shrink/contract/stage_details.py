"""What a stage tells in its own words, as it writes it; `details` says how that is read again."""

from __future__ import annotations

from collections.abc import Mapping

from shrink.base.foreign import Json
from shrink.base.intervals import Interval
from shrink.contract.choices import Choice
from shrink.contract.codec import left_out, unknown_keys
from shrink.contract.compaction import Compaction, Placement
from shrink.contract.details import Agreement, Budget, Curve
from shrink.contract.record import record


@record
class LayerRow:
    """A layer of a Keras model; `shrink.measure.size.layer_table` tells what each is."""

    name: str
    type: str
    parameters: int
    macs: int | None
    activation_bytes: int | None
    sparsity: float | None


@record
class OperatorRow:
    """An operator of an artifact; `shrink.measure.size.operator_table` tells what each is."""

    name: str
    layer: str | None
    inputs: tuple[str, ...]
    weights: str | None
    outputs: tuple[str, ...]
    parameters: int
    macs: int | None
    activation_bytes: int
    sparsity: float | None


@record
class ComparedOperator(OperatorRow):
    """An operator with how far its output is from the float model's.

    Attributes:
        snr_db, cosine: None where there is nothing to compare with.
    """

    snr_db: float | None
    cosine: float | None


@record
class ArtifactAudit:
    """What is inside of a quantized artifact; `shrink.contract.details.Audit` tells of each."""

    operators: tuple[OperatorRow, ...]
    float_islands: tuple[str, ...]
    custom_operators: tuple[str, ...]
    agreement: tuple[Agreement, ...]
    compared_on: str


@record
class MixedOperator:
    """An operator of the scheme `mixed`: its bits, and its error where it has 4 of them."""

    name: str
    kind: str
    weight_bits: int
    parameters: int
    error_at_4_bits: float


@record
class MixedPrecision:
    """What the scheme `mixed` chose, for which budget."""

    activations: str
    budget: Mapping[str, float | None]
    validation_drop: float | None
    operators: tuple[MixedOperator, ...]


@record
class TeacherCache:
    """A cache of teacher outputs: its size, and whether any were computed now (`asked`)."""

    bytes: int
    asked: bool
    duration_s: float


@record
class ControlFigures:
    """Test metrics of a student alone, taught, and of its teacher; what the teacher brought."""

    alone: Mapping[str, float]
    taught: Mapping[str, float]
    teacher: Mapping[str, float]
    gain: Mapping[str, Interval]
    verdict: Mapping[str, str | None]


@record
class StageDetails:
    """What else a report keeps of a stage; each field is one kind of stage's.

    Attributes:
        others: what a stage of another package tells, under keys of its own.
    """

    mixed: MixedPrecision | None = left_out(None)
    audit: ArtifactAudit | None = left_out(None)
    sensitivity: tuple[Curve, ...] = left_out(())
    budget: Budget | None = left_out(None)
    teacher_cache: TeacherCache | None = left_out(None)
    control: ControlFigures | None = left_out(None)
    compact: Compaction | None = left_out(None)
    placement: Placement | None = left_out(None)
    choices: tuple[Choice, ...] = left_out(())
    others: Mapping[str, Json] = unknown_keys()
