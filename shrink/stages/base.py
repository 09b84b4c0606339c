"""The contract of a stage: a light configuration here, a heavy `run` beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, TypedDict

from pydantic import Field

from shrink.base.fields import Config
from shrink.base.foreign import JsonObject
from shrink.model.reference import Form

if TYPE_CHECKING:
    from shrink.quantization.audit import AuditDetails

StageName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


class StageConfig(Config):
    """What a recipe says of one stage; every stage's own configuration derives from it.

    The heavy half is `run(config, context) -> StageResult` in the module `run` beside the
    configuration's, imported in the worker only.
    """

    kind: ClassVar[str]
    """The stage's key in a recipe and the folder of its code."""
    accepts: ClassVar[tuple[Form, ...]] = ("keras",)
    """The forms of model that the stage can start from."""
    follows: ClassVar[tuple[Form, ...]] = ("keras",)
    """The forms of an earlier stage's artifact that it can go on from."""
    produces: ClassVar[Form] = "keras"
    """The form of its artifact."""
    preserves: ClassVar[tuple[str, ...]] = ()
    """What of its outcome every later stage preserves, such as `sparsity`."""
    breaks: ClassVar[tuple[str, ...]] = ()
    """What it cannot preserve, so that no stage with that outcome may come before."""

    name: StageName | None = None
    """Name of the stage; by default its kind, numbered where it repeats."""
    from_: StageName | None = Field(default=None, alias="from")
    """The earlier stage to start from; by default the one before."""
    training: JsonObject | None = None
    """Overrides of the recipe's `training` section for this stage alone."""

    @property
    def reads_training(self) -> bool:
        """Whether more of `training` than its seed decides the outcome: by default if it trains."""
        return bool(getattr(self, "epochs", 0))

    @property
    def needs_examples(self) -> str | None:
        """What the stage does with examples, after "it"; None where it needs none."""
        return "trains on them"

    @property
    def needs_classes(self) -> bool:
        """Whether the stage measures how many examples are classified rightly."""
        return False

    def preserved(self) -> tuple[str, ...]:
        """Return what this configuration makes later stages keep; by default `preserves`."""
        return self.preserves


class BudgetTable(TypedDict):
    """What became of a budget; `shrink.stages.prune.targets.BudgetMet` as plain data."""

    figure: str
    limit: float
    before: float
    after: float
    precision: str | None
    measured: int | None


class CurveTable(TypedDict):
    """Loss by the share of a group's channels removed; `shrink.pruning.importance.Curve`."""

    layers: str
    channels: int
    ratios: tuple[float, ...]
    losses: tuple[float, ...]


class GainTable(TypedDict):
    """A difference with its limits; `shrink.base.intervals.Interval` as plain data."""

    value: float
    low: float | None
    high: float | None
    note: str | None


class ControlTable(TypedDict):
    """Test metrics of a student alone, taught, and of its teacher; what the teacher brought."""

    alone: Mapping[str, float]
    taught: Mapping[str, float]
    teacher: Mapping[str, float]
    gain: Mapping[str, GainTable]
    verdict: Mapping[str, str | None]


class MixedOperator(TypedDict):
    """An operator of the scheme `mixed`: its bits, and its error where it has 4 of them."""

    name: str
    kind: str
    weight_bits: int
    parameters: int
    error_at_4_bits: float


class MixedTable(TypedDict):
    """What the scheme `mixed` chose, for which budget."""

    activations: str
    budget: Mapping[str, float | None]
    validation_drop: float | None
    operators: list[MixedOperator]


class TeacherCacheTable(TypedDict):
    """A cache of teacher outputs: its size, and whether any were computed now (`asked`)."""

    bytes: int
    asked: bool
    duration_s: float


class StageDetails(TypedDict, total=False):
    """What else a report keeps of a stage, as plain data; each key is one kind of stage's."""

    audit: AuditDetails
    budget: BudgetTable
    compact: JsonObject
    control: ControlTable
    mixed: MixedTable
    sensitivity: list[CurveTable]
    teacher_cache: TeacherCacheTable
