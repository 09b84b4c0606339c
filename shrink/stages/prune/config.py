"""Configuration of the `prune` stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from shrink.base.fields import Bytes, Count, Fraction, NameIn, NonNegative, OpenFraction, Positive
from shrink.stages.base import StageConfig

_RISE = ("initial_sparsity", "ramp", "frequency")
_SCHEDULE = ("schedule", *_RISE)
_MAGNITUDE = ("sparsity", "pattern", *_SCHEDULE)
_TARGETS = ("macs", "parameters", "file_bytes", "arena_bytes")
_CHANNELS = (
    "ratio", "ratios", *_TARGETS, "file_precision", "arena", "max_extra_macs", "allocation",
    "importance", "samples", "rebuild", "round_to", "steps", "teacher", "temperature", "alpha",
    "fine_tuning",
)  # fmt: skip
_LAYERS = ("blocks", "teacher", "temperature", "alpha")
_KEYS = {"magnitude": _MAGNITUDE, "channels": _CHANNELS, "layers": _LAYERS}
"""The keys that not every method has."""

AUTO = "auto"
IMPORTANCES = ["l2", "l1", "lamp", "bn_scale", "taylor", "random", "least_squares"]
"""Names of what `shrink.pruning.importance` has a function for, and `least_squares`."""

_PASSES, _SELDOM = 5, 10

Ratio = Annotated[float, Field(ge=0, lt=1)]


class PruneConfig(StageConfig):
    """Remove the least important weights, channels or layers, then fine-tune."""

    kind: ClassVar[str] = "prune"
    breaks: ClassVar[tuple[str, ...]] = ("clusters",)

    method: Literal["magnitude", "channels", "layers"] = "magnitude"
    """magnitude: set the smallest weights to zero; channels: remove whole channels; layers: remove
    whole blocks whose input and output have the same shape, such as residual blocks."""
    sparsity: Ratio = 0.5
    """magnitude: fraction of each prunable kernel that is set to zero."""
    pattern: Literal["unstructured", "2:4", "block"] = "unstructured"
    """magnitude; unstructured: any weight; 2:4: two of every four input channels, in one step;
    block: blocks of four input channels."""
    schedule: Literal["constant", "polynomial"] = "polynomial"
    """magnitude; constant: the whole sparsity from the start; polynomial: rises cubically over
    `ramp`."""
    initial_sparsity: Ratio = 0.0
    """magnitude: the sparsity from which a polynomial schedule rises."""
    ramp: Fraction = 0.6
    """magnitude: fraction of the updates over which a polynomial schedule rises."""
    frequency: Literal["auto"] | Count = "auto"
    """magnitude: updates between two choices of the mask while the sparsity rises; auto: 10, or
    fewer if the ramp has fewer than 480 updates, so that the mask is chosen 48 times."""
    ratio: Ratio | None = None
    """channels: fraction of the channels of each group to remove."""
    ratios: dict[str, Ratio] = Field(default_factory=dict)
    """channels: ratios of single groups, by a pattern of layer names."""
    macs: OpenFraction | None = None
    """channels: budget, the fraction of the multiply-accumulates that may be left."""
    parameters: OpenFraction | None = None
    """channels: budget, the fraction of the parameters that may be left."""
    file_bytes: Bytes | None = None
    """channels: budget, the size of the TFLite file."""
    arena_bytes: Bytes | None = None
    """channels: budget, the size of the tensor arena in TFLite Micro."""
    file_precision: Literal["float32", "int8"] = "float32"
    """channels: the TFLite file whose size or arena is limited."""
    arena: Literal["converted", "compacted"] = "converted"
    """channels: limit the arena of the converted file, or of the file after the stages `quantize`
    and `compact`, for which fewer channels are removed."""
    max_extra_macs: Annotated[float, Field(ge=0, le=10)] | None = None
    """channels: with `arena: compacted`, the fraction of multiply-accumulates that compaction may
    add; by default that of the recipe's stage `compact`, else 0.05."""
    allocation: Literal["auto", "uniform", "sensitivity", "global"] = "auto"
    """channels; uniform: the same fraction of every group; sensitivity: more of groups that
    affect the validation loss less; global: the least important channels of all groups; auto:
    uniform, or with a budget uniform or sensitivity, whichever has the lower validation loss."""
    importance: Literal["auto"] | Annotated[str, NameIn(IMPORTANCES)] = "auto"
    """channels: how to rank channels; least_squares also refits the next layers' kernels; auto:
    l2, or with a budget least_squares or l2, whichever has the lower validation loss."""
    samples: Count = 400
    """channels: training examples for taylor and least_squares."""
    blocks: Count | None = None
    """layers: number of blocks to remove, one at a time, each time the block whose removal
    raises the validation loss least."""
    rebuild: bool = True
    """channels; false: keep all shapes and set the weights of removed channels to zero."""
    round_to: Count = 1
    """channels: keep a multiple of this many channels in each group, or all of them."""
    teacher: Literal["auto", "self"] | None = "auto"
    """channels, layers; self: fine-tune towards the softened outputs of the unpruned model;
    null: on labels alone; auto: self with a budget or for layers, if the task has softened
    outputs."""
    temperature: Literal["auto"] | Positive = "auto"
    """channels, layers: T, which divides the logits of model and teacher; auto: 4, and 1 for a
    detector."""
    alpha: Fraction = 0.1
    """channels, layers: with a teacher, the weight of the loss on the labels."""
    exclude: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Layers to leave unchanged, by name; `*` and `?` match as in a shell."""
    steps: Count = 1
    """channels: rounds of pruning and fine-tuning; each removes its share and trains for its
    share of `epochs`."""
    epochs: Literal["auto"] | NonNegative = "auto"
    """Epochs of fine-tuning; 0 does not train; auto: about 600 updates in 5 to 20 epochs, then
    doubled while the validation loss falls."""
    fine_tuning: Literal["auto", "training"] = "auto"
    """channels; training: with the settings in `training`; auto: with a budget and the default
    optimizer, a learning rate scaled to the weights, falling to 0 by a cosine."""

    def idle_keys(self) -> Mapping[str, str]:
        """Return keys of a rise that does not happen."""
        if self.method != "magnitude" or self.pattern == "2:4":
            return {}  # refused below
        # 10 was the default, so resolved recipes of earlier runs have it.
        rise = [key for key in _RISE if key != "frequency" or self.frequency != _SELDOM]
        if self.epochs == 0:
            return dict.fromkeys(rise, "epochs above 0")
        if self.schedule == "constant":
            return dict.fromkeys(rise, "schedule: polynomial")
        return {} if self.ramp else {"frequency": "a ramp above 0"}

    def preserved(self) -> tuple[str, ...]:
        """Return `sparsity` if pruned weights stay as zeros."""
        return ("sparsity",) if self.method == "magnitude" or not self.rebuild else ()

    def counting_on(self, max_extra_macs: float) -> PruneConfig:
        """Return the configuration with the limit of a later stage `compact`, if it applies."""
        if self.arena != "compacted" or self.max_extra_macs is not None:
            return self
        return self.model_copy(update={"max_extra_macs": max_extra_macs})

    @property
    def needs_examples(self) -> str | None:
        """What it does with examples; None for magnitude without fine-tuning."""
        if self.method == "channels":
            return "checks on them that the smaller model is the same"
        if self.method == "layers":
            return "chooses by them which blocks go"
        return super().needs_examples if self.epochs else None

    @property
    def keeps_layers(self) -> bool:
        """Whether the layers keep their shapes."""
        return self.method == "magnitude" or not self.rebuild

    @property
    def needs_micro(self) -> bool:
        """Whether it measures arenas."""
        return self.arena_bytes is not None

    @property
    def removes_blocks(self) -> int:
        """Number of blocks to remove."""
        return self.blocks or 0

    @property
    def passes(self) -> int:
        """Epochs of fine-tuning, at least, by the recipe alone."""
        return max(_PASSES, self.steps) if self.epochs == "auto" else self.epochs

    @property
    def budget(self) -> str | None:
        """The key of the budget; None with ratios."""
        return next((key for key in _TARGETS if getattr(self, key) is not None), None)

    @property
    def _may_have_teacher(self) -> bool:
        wanted = self.budget is not None or (self.method == "layers" and self.passes > 0)
        return self.teacher == "self" or (self.teacher == AUTO and wanted)

    @property
    def _measures_files(self) -> bool:
        return self.file_bytes is not None or self.arena_bytes is not None

    @model_validator(mode="after")
    def _check(self) -> PruneConfig:
        for method, keys in _KEYS.items():
            own = _KEYS[self.method]
            foreign = [key for key in keys if key in self.model_fields_set and key not in own]
            if foreign:
                raise ValueError(
                    f"{', '.join(foreign)} belongs to method {method}, and the method is "
                    f"{self.method}"
                )
        if not self._may_have_teacher and self.model_fields_set & {"temperature", "alpha"}:
            raise ValueError("temperature and alpha need `teacher: self`")
        if self.teacher == "self" and self.epochs == 0:
            raise ValueError("a teacher needs epochs of fine-tuning")
        if self.method == "channels":
            self._check_targets()
        elif self.method == "layers" and self.blocks is None:
            raise ValueError("layers needs blocks, the number of blocks to remove")
        elif self.initial_sparsity > self.sparsity:
            raise ValueError(
                f"initial_sparsity {self.initial_sparsity:g} is above sparsity {self.sparsity:g}"
            )
        if self.pattern == "2:4" and self.sparsity != 0.5:
            raise ValueError("pattern 2:4 is a sparsity of 0.5; leave sparsity out")
        if self.pattern == "2:4" and self.model_fields_set.intersection(_SCHEDULE):
            raise ValueError(f"pattern 2:4 is chosen once: leave {', '.join(_SCHEDULE)} out")
        return self

    def _check_targets(self) -> None:
        targets = [key for key in _TARGETS if getattr(self, key) is not None]
        if self.ratio is not None or self.ratios:
            targets.append("ratio")
        if not targets:
            raise ValueError(f"channels needs ratio, or a budget: {', '.join(_TARGETS)}")
        if len(targets) > 1:
            raise ValueError(f"{' and '.join(targets)} contradict each other; give one of them")
        if "file_precision" in self.model_fields_set and not self._measures_files:
            raise ValueError("file_precision needs file_bytes or arena_bytes")
        if "arena" in self.model_fields_set and self.arena_bytes is None:
            raise ValueError("arena needs arena_bytes")
        if self.arena == "compacted" and self.file_precision != "int8":
            raise ValueError("arena: compacted needs file_precision: int8")
        if self.max_extra_macs is not None and self.arena != "compacted":
            raise ValueError("max_extra_macs needs arena: compacted")
        if self.budget is not None and not self.rebuild:
            raise ValueError(
                f"{self.budget} needs `rebuild: true`: masked channels keep their shapes"
            )
        if self.steps > 1 and not self.rebuild:
            raise ValueError("steps need `rebuild: true`")
        if self.steps > max(self.passes, 1):
            raise ValueError(f"{self.steps} steps need at least as many epochs of fine-tuning")
        if self.ratios and self.allocation not in ("auto", "uniform"):
            raise ValueError("ratios say what each group loses; leave allocation out")
        if self.allocation == "global" and self.importance == "least_squares":
            raise ValueError(
                "least_squares gives no scores that groups could be compared by; take another "
                "importance, or allocation: sensitivity"
            )

    def model_dump(self, **options: Any) -> dict[str, Any]:  # what pydantic's own takes
        """Leave out the other method's defaults, which would be refused when read again."""
        foreign = {key for keys in _KEYS.values() for key in keys} - {*_KEYS[self.method]}
        if not self._measures_files:
            foreign.add("file_precision")
        if self.arena_bytes is None:
            foreign.add("arena")
        if self.max_extra_macs is None:
            foreign.add("max_extra_macs")
        if not self._may_have_teacher:
            foreign |= {"temperature", "alpha"}
        if self.pattern == "2:4":
            foreign.update(_SCHEDULE)
        kept = super().model_dump(**options)
        return {key: value for key, value in kept.items() if key not in foreign}
