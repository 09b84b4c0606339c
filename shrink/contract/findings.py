"""Results of tools, as workers send them and `--json` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from shrink.base.errors import ReportWarning
from shrink.base.foreign import Json
from shrink.contract.codec import left_out
from shrink.contract.compaction import Placement, Rewritten
from shrink.contract.details import OperatorRow, TensorType
from shrink.contract.record import record
from shrink.contract.report import Skipped


@record
class LayerMemory:
    """What a layer holds at the batch size, in bytes: outputs, weights, and at a step's peak."""

    name: str
    activation_bytes: int
    parameter_bytes: int
    peak_bytes: int


@record
class StepMoment:
    """What outputs and their gradients take while a layer is computed in a training step."""

    layer: str
    phase: Literal["forward", "backward"]
    alive_bytes: int


@record
class PeakRow:
    """The peak of a training step at one batch size; None where it is not known."""

    batch_size: int
    training_peak_bytes: int | None
    training_peak_predicted_bytes: int | None


@record
class Profile:
    """What `profile` found.

    Attributes:
        model: what it is called.
        training_peak_bytes: measured at `batch_size`.
        training_peak_predicted_bytes: from steps of at most half of it.
        largest_batch_size: that is expected to fit `memory_limit_bytes`.
        curve: the same two peaks at other batch sizes.
        split: bytes of the measured peak, by part.
        layers: at this batch size, those that hold most at the peak first, by shapes.
        step: what is alive over a training step, by shapes.
        trace: files that were written.
        notes: why something is None.
    """

    model: str
    batch_size: int
    training_peak_bytes: int | None
    training_peak_predicted_bytes: int | None
    largest_batch_size: int | None
    memory_limit_bytes: int | None
    training_host_peak_bytes: int
    curve: tuple[PeakRow, ...]
    split: Mapping[str, int] | None
    layers: tuple[LayerMemory, ...]
    step: tuple[StepMoment, ...]
    devices: tuple[str, ...]
    trace: tuple[str, ...]
    notes: tuple[str, ...]


@record
class Bench:
    """What `bench` measured.

    Attributes:
        threads: of the interpreter.
        examples: 0 where the inputs are made up.
        inferences_per_s: one at a time, at the median.
        inference_peak_bytes: None where it is not known, with a note.
    """

    path: str
    p50_ms: float
    p90_ms: float
    threads: int
    examples: int
    inferences_per_s: float
    inference_peak_bytes: int | None
    file_bytes: int
    machine: str
    notes: tuple[str, ...]


@record
class KerasTensor:
    """An input or output of a Keras model; None is an open dimension."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str


@record
class LayerShapes:
    """A layer; `sparsity` is of its kernels, None where it has none."""

    name: str
    type: str
    output_shapes: tuple[tuple[int | None, ...], ...]
    dtype: str
    parameters: int
    sparsity: float | None


@record
class GroupRow:
    """Channels that are removed together: the layers that make them, and all that have them."""

    layers: tuple[str, ...]
    channels: int
    members: tuple[str, ...]


@record
class KerasInspection:
    """What `inspect` found in a Keras model.

    Attributes:
        groups: channels that can be removed; None where they were not asked for.
        protected: layers that keep theirs, and why; None likewise.
    """

    path: str
    form: Literal["keras"] = "keras"
    inputs: tuple[KerasTensor, ...]
    outputs: tuple[KerasTensor, ...]
    parameters: int
    layers: tuple[LayerShapes, ...]
    groups: tuple[GroupRow, ...] | None = left_out(None)
    protected: tuple[Skipped, ...] | None = left_out(None)


@record
class ArtifactTensor(TensorType):
    """A tensor of an artifact; scale and zero point where it has one of each."""

    constant: bool
    scales: int


@record
class OperatorTensors:
    """An operator of an artifact with its tensors."""

    name: str
    custom: bool
    inputs: tuple[ArtifactTensor, ...]
    outputs: tuple[ArtifactTensor, ...]


@record
class Suitability:
    """What is found in an artifact; why a runtime does not run it, None where it does."""

    operators: tuple[OperatorRow, ...]
    float_islands: tuple[str, ...]
    custom_operators: tuple[str, ...]
    findings: tuple[str, ...]
    litert_fails: str | None
    tflm_fails: str | None


@record
class Arenas:
    """Sizes of a file's tensor arena, by the report's names.

    Attributes:
        arena_note: why there is no `arena_bytes`; empty where there is one.
    """

    arena_bytes: int | None = None
    arena_estimate_bytes: int | None = None
    arena_32_bytes: int | None = None
    arena_32_reference_bytes: int | None = None
    arena_note: str = ""


@record
class ArtifactInspection(Arenas):
    """What `inspect` found in a .tflite file.

    Attributes:
        macs: None where they cannot be counted, with the reason in `macs_note`.
    """

    path: str
    form: Literal["tflite"] = "tflite"
    file_bytes: int
    inputs: tuple[ArtifactTensor, ...]
    outputs: tuple[ArtifactTensor, ...]
    parameters: int
    nonzero_parameters: int
    macs: int | None
    macs_note: str
    quantized_operators: int
    float_operators: tuple[str, ...]
    operators: tuple[OperatorTensors, ...]
    audit: Suitability


@record
class InputRange:
    """Shape, type and range of one input of a split's examples; None where there are none."""

    shape: tuple[int, ...] = ()
    dtype: str = ""
    low: float | None = None
    high: float | None = None


@record
class SplitRow(InputRange):
    """A split's examples, by class too; shape and range are those of the first input."""

    examples: int
    classes: Mapping[str, int]
    inputs: tuple[InputRange, ...]


@record
class DataCheck:
    """What `data check` found.

    Attributes:
        splits: by name.
        class_names: by label; empty where targets are real.
        bad: a message for each unreadable example.
        duplicates: groups of files with the same content.
        suspicious: messages on files that can be read.
        examples_per_s: of reading.
        fingerprint, warnings: from the light half; empty as the worker sends it.
    """

    splits: Mapping[str, SplitRow]
    class_names: tuple[str, ...]
    bad: tuple[str, ...]
    duplicates: tuple[tuple[str, ...], ...]
    suspicious: tuple[str, ...]
    notes: tuple[str, ...]
    examples_per_s: float
    fingerprint: str = ""
    warnings: tuple[ReportWarning, ...] = ()


@record
class Exported:
    """A model that was written in another form."""

    path: str
    format: Literal["keras", "keras3", "savedmodel"]
    file_bytes: int


@record
class Firmware(Arenas):
    """What firmware must know of an artifact beside its bytes.

    Attributes:
        operators: methods of TFLite Micro's `MicroMutableOpResolver` to call, each once, sorted.
        tflm_fails: why TFLite Micro refuses the model; null where it runs it, or may with a custom
            operator's kernel.
        resource_variables: how many the model keeps between invocations.
        keeps_state: whether operators, such as LSTMs, keep a state between invocations.
        inputs, outputs: in the artifact's order.
        labels: names of the classes by index, from the light half; empty where there are none.
        front_end: what makes inputs of samples or texts, likewise; None where there is none.
    """

    operators: tuple[str, ...]
    tflm_fails: str | None = None
    resource_variables: int = 0
    keeps_state: bool = False
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    labels: tuple[str, ...] = ()
    front_end: Mapping[str, Json] | None = None


@record
class Rewriting(Rewritten):
    """What became of a file that `shrink compact` wrote."""

    path: str
    file_bytes_before: int
    file_bytes: int


@record
class Placing:
    """Where a file's operators run, once it is compiled for an accelerator."""

    path: str
    changed: bool
    placement: Placement
    file_bytes_before: int
    file_bytes: int


@record
class Tracked:
    """Where an experiment tracker keeps a run: its folder of logs, or the run's id."""

    place: str


@record
class Worked:
    """What works in a worker on this machine.

    Attributes:
        problems: a sentence for each thing that does not work.
        limits: a sentence for each figure that will be missing.
    """

    devices: tuple[str, ...] = ()
    tensorflow_import_s: float | None = None
    training_step_s: float | None = None
    host_peak_bytes: int | None = None
    problems: tuple[str, ...] = left_out(())
    limits: tuple[str, ...] = ()


@record
class StorePlace:
    """The cache's folder: the bytes that its disk has left, and whether it can be written."""

    path: str
    free_bytes: int
    writable: bool


@record
class Examination:
    """What `doctor` found; nothing personal is in it but paths, whose home folder is `~`.

    Attributes:
        packages: versions by name.
        extras: that are installed.
        variables: of the environment, that change what shrink or TensorFlow do.
        workers: how the workers of a run start.
        worker: None where none starts.
        problems: a sentence each.
    """

    shrink: str
    installed: str
    python: str
    system: str
    machine: str
    memory_limit_bytes: int | None
    packages: Mapping[str, str]
    extras: tuple[str, ...]
    store: StorePlace
    variables: Mapping[str, str]
    workers: str = ""
    worker: Worked | None = None
    problems: tuple[str, ...] = ()
