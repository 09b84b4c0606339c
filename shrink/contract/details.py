"""Details of a stage beside its figures, a field for each kind of stage, and differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from shrink.base.foreign import Json
from shrink.contract.choices import Choice
from shrink.contract.codec import left_out, unknown_keys
from shrink.contract.compaction import Compaction, Placement
from shrink.contract.events import OutOfMemoryEvent
from shrink.contract.record import record


@record
class Limits:
    """The 95 % interval of a metric itself.

    Attributes:
        low, high: None where one example says nothing.
        note: what the limits do not show: that they are wide, or may be too narrow.
    """

    low: float | None = None
    high: float | None = None
    note: str | None = left_out(None)


@record
class FigureDelta:
    """The difference of a size, a memory or a latency; no ratio to a 0."""

    value: float
    ratio: float | None


@record
class MetricDelta:
    """The difference of a metric with its 95 % interval, as in `Limits`."""

    value: float
    low: float | None = None
    high: float | None = None
    note: str | None = left_out(None)


Deltas = Mapping[str, FigureDelta | MetricDelta | None]
"""Differences by figure; None where either side is null."""


def metric_delta(deltas: Deltas | None, metric: str) -> MetricDelta | None:
    """Return a metric's difference; None where there is none."""
    delta = (deltas or {}).get(metric)
    return delta if isinstance(delta, MetricDelta) else None


Columns = Mapping[str, tuple[float | None, ...]]


@record
class Training:
    """How a stage trained.

    Attributes:
        replicas: copies of the model.
        workers: processes that trained together.
        global_batch_size: examples per update.
        micro_batch_size: examples per forward pass and replica, in the end.
        accumulation_steps: micro-batches of each replica in a full global batch.
        precision: compute dtype.
        memory_limit_bytes: per device, if there was a limit.
        oom_events: steps that ran out of memory and were repeated with a smaller micro-batch.
        exact: whether the weights are those of one replica with one big batch.
        inexact_because: the layers for which they are not, and why.
        epochs: passes over the training examples.
        updates: optimizer updates.
        examples_per_s: without the first step, which builds the graph; null for a single step.
        history: loss, val_loss and metrics, a number per epoch.
        memory_timeline: columns `update`, `time_s`, `device_bytes` (peak since the row before) and
            `host_bytes`, of the process that ended the training.
        oom_retries: number of `oom_events`.
        training_peak_lower_bound: whether `training_peak_bytes` is without small tensors.
    """

    replicas: int | None = None
    workers: int | None = None
    global_batch_size: int | None = None
    micro_batch_size: int | None = None
    accumulation_steps: int | None = None
    precision: str | None = None
    memory_limit_bytes: float | None = None
    oom_events: tuple[OutOfMemoryEvent, ...] = ()
    exact: bool | None = None
    inexact_because: tuple[str, ...] = ()
    epochs: int | None = None
    updates: int | None = None
    examples_per_s: float | None = None
    history: Columns = field(default_factory=dict)
    memory_timeline: Columns = field(default_factory=dict)
    oom_retries: int | None = None
    training_peak_lower_bound: bool | None = None

    def seconds(self, examples: int | None) -> float | None:
        """Return what its passes over so many examples took; None where that is not known."""
        if not self.examples_per_s or self.epochs is None or examples is None:
            return None
        return self.epochs * examples / self.examples_per_s


@record
class TaskOutput:
    """How one output was read.

    Attributes:
        loss_by, from_logits_by: recipe, compiled, graph, values, run or data.
        ending: the final activation.
    """

    name: str = ""
    loss: str | None = None
    loss_by: str | None = None
    from_logits: bool | None = None
    from_logits_by: str | None = None
    ending: str | None = None


@record
class Task:
    """What was measured: losses, metrics, and the form of the outputs."""

    outputs: tuple[TaskOutput, ...] = ()
    loss_weights: tuple[float, ...] = ()
    metrics: tuple[str, ...] | None = None
    metrics_by: str | None = None
    monitor: str | None = None


@record
class Control:
    """Test figures of a student without its teacher, with it, and of the teacher.

    Attributes:
        alone, taught, teacher: by metric.
        gain: `taught` less `alone`, by metric.
        verdict: better, worse or no proven difference, by metric.
    """

    alone: Mapping[str, float] = field(default_factory=dict)
    taught: Mapping[str, float] = field(default_factory=dict)
    teacher: Mapping[str, float] = field(default_factory=dict)
    gain: Mapping[str, MetricDelta] = field(default_factory=dict)
    verdict: Mapping[str, str | None] = field(default_factory=dict)


@record
class TensorType:
    """An input or output of an artifact: `real = scale * (stored - zero_point)`."""

    name: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    scale: float | None = None
    zero_point: int | None = None


@record
class Usage:
    """How an artifact is used: what an application, or the next command, must know of it.

    It is `details.interface` in report.json and an entry of `artifacts/metadata.json`;
    `shrink.contract.usage` writes and reads the entry.

    Attributes:
        inputs, outputs: of the .tflite file, or of a Keras model converted to float32.
        labels: by index of the output, never fewer than the outputs; None where targets are real.
        normalize: `scale` and `offset` of what is done to examples before the model sees them.
        front_end: what makes inputs of samples or texts, before that.
        decode: how the outputs of a detector become boxes, a recipe's `task.decode`.
        data: keys of a recipe's `data` that say how inputs and targets are made and divided.
        task: how outputs were read: losses, metrics, logits.
        recipe: name of the recipe that was run.
        fingerprint: of the data.
        test_examples: hash of which examples were tested on.
    """

    inputs: tuple[TensorType, ...] | None = None
    outputs: tuple[TensorType, ...] | None = None
    labels: tuple[str, ...] | None = None
    normalize: Mapping[str, object] | None = None
    front_end: Mapping[str, object] | None = None
    decode: Mapping[str, object] | None = left_out(None)
    data: Mapping[str, object] | None = left_out(None)
    task: Task | None = left_out(None)
    recipe: str | None = left_out(None)
    fingerprint: str | None = left_out(None)
    test_examples: str | None = left_out(None)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The tokens by id, of a model of texts; of any other none."""
        tokens = (self.front_end or {}).get("vocabulary")
        return tuple(map(str, tokens)) if isinstance(tokens, list | tuple) else ()


@record
class LayerRow:
    """A layer of a Keras model.

    Attributes:
        macs: multiply-accumulates of one example.
        activation_bytes: of one example's output.
        sparsity: share of zeros in the weights.
    """

    name: str
    type: str
    parameters: int
    macs: int | None = None
    activation_bytes: int | None = None
    sparsity: float | None = None


@record
class OperatorRow:
    """An operator of an artifact; numbers as those of `LayerRow`.

    Attributes:
        layer: the Keras layer that it was made of.
        inputs, outputs, weights: types.
        snr_db, cosine: of the output against the float model's, where the artifact was audited.
    """

    name: str
    layer: str | None = None
    inputs: tuple[str, ...] = ()
    weights: str | None = None
    outputs: tuple[str, ...] = ()
    parameters: int
    macs: int | None = None
    activation_bytes: int
    sparsity: float | None = None
    snr_db: float | None = left_out(None)
    cosine: float | None = left_out(None)


@record
class Agreement:
    """How near one form of a model is to another, for one output.

    Attributes:
        output: its number.
        compared: such as "keras to float tflite".
        snr_db: signal to noise, 10 log10 of the outputs' power over the difference's; null where
            there is no difference at all.
        cosine: of the angle between both, all examples as one vector.
    """

    output: int = 0
    compared: str = ""
    snr_db: float | None = None
    cosine: float | None = None


@record
class Audit:
    """What is inside of a quantized artifact, and what it computes."""

    operators: tuple[OperatorRow, ...] = ()
    float_islands: tuple[str, ...] = ()
    custom_operators: tuple[str, ...] = ()
    agreement: tuple[Agreement, ...] = ()
    compared_on: str = "training examples"


@record
class Curve:
    """Loss on validation examples by the share of a group's channels that is removed.

    Attributes:
        metric: of `losses`; another than the loss only in reports of older versions.
    """

    layers: str | None = None
    channels: int | None = None
    ratios: tuple[float, ...] = ()
    losses: tuple[float | None, ...] = ()
    metric: str = left_out("loss")


@record
class Budget:
    """What became of a budget.

    Attributes:
        precision: of the file that the figure is taken from, where it is one.
        measured: models that were built and measured on the way.
    """

    figure: str | None = None
    limit: float | None = None
    before: float | None = None
    after: float | None = None
    precision: str | None = None
    measured: int | None = None


@record
class Confused:
    """How many examples (or positions) of one class were taken for another; ties in shares."""

    true: str = "?"
    decided: str = "?"
    count: float = 0.0


@record
class Confusion:
    """Which class was taken for which, of one output.

    Attributes:
        labels: names or numbers of the classes; none where there are very many.
        counts: examples by true class (rows) and predicted class (columns).
        confused: the pairs that were confused most, the commonest first.
    """

    output: str = ""
    labels: tuple[str, ...] = ()
    counts: tuple[tuple[float, ...], ...] = ()
    confused: tuple[Confused, ...] = ()


@record
class OutputMetrics:
    """The metrics of one of several outputs; None is not defined."""

    output: str = ""
    metrics: Mapping[str, float | None] = field(default_factory=dict)


@record
class MixedOperator:
    """An operator of the scheme `mixed`: its bits, and its error where it has 4 of them."""

    name: str
    kind: str
    weight_bits: int
    parameters: int
    error_at_4_bits: float | None


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
class Details:
    """What else a stage reports; each kind of stage has its own.

    Attributes:
        layers: of a Keras model.
        operators: of an artifact that was not audited.
        others: what a stage of another package reports, under keys of its own.
    """

    task: Task | None = None
    confusion: tuple[Confusion, ...] = ()
    by_output: tuple[OutputMetrics, ...] = ()
    interface: Usage | None = None
    layers: tuple[LayerRow, ...] = left_out(())
    operators: tuple[OperatorRow, ...] = left_out(())
    mixed: MixedPrecision | None = left_out(None)
    audit: Audit | None = left_out(None)
    sensitivity: tuple[Curve, ...] = left_out(())
    budget: Budget | None = left_out(None)
    teacher_cache: TeacherCache | None = left_out(None)
    control: Control | None = left_out(None)
    compact: Compaction | None = left_out(None)
    placement: Placement | None = left_out(None)
    choices: tuple[Choice, ...] = left_out(())
    others: Mapping[str, Json] = unknown_keys()

    def filled_by(self, other: Details | None) -> Details:
        """Return these details with the fields that `other` does not leave empty.

        An audit has the operators, with the layers that they were made of.
        """
        empty, given = vars(Details()), vars(other or Details())
        filled = replace(self, **{k: v for k, v in given.items() if v != empty[k]})
        return replace(filled, operators=()) if filled.audit else filled
