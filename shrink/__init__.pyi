# Made by `python -m docs.stubs > shrink/__init__.pyi`; do not edit.
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict, Unpack

from shrink.api.kinds import DataGiven, ModelGiven, PathGiven
from shrink.contract.findings import Profile

from shrink.api import Run as Run
from shrink.api import RunStage as RunStage
from shrink.api import Comparison as Comparison
from shrink.api import SearchResult as SearchResult
from shrink.api import API_VERSION as API_VERSION
from shrink.base.errors import ShrinkError as ShrinkError
from shrink.base.errors import RecipeError as RecipeError
from shrink.base.errors import InputError as InputError
from shrink.base.errors import ModelError as ModelError
from shrink.base.errors import DataError as DataError
from shrink.base.errors import StageError as StageError
from shrink.base.errors import ConversionError as ConversionError
from shrink.base.errors import ResourceError as ResourceError
from shrink.base.errors import InternalError as InternalError

class _Common(TypedDict, total=False):
    output: PathGiven | None
    force: bool
    no_cache: bool
    trust_model: bool
    quiet: bool
    verbose: bool
    custom_objects: PathGiven | None

class _Verb(_Common, total=False):
    data_source: Literal['digits', 'images', 'masks', 'boxes', 'npz', 'hdf5', 'tfrecord', 'lmdb', 'tiles', 'tfds', 'csv', 'audio', 'series', 'text', 'python', 'none']
    data_path: str | None
    data_inputs: Sequence[object] | None
    data_targets: Sequence[object] | None
    data_classes: Sequence[object] | None
    data_features: Mapping[str, object] | None
    data_image_size: Sequence[object] | None
    data_channels: Literal[1, 3] | None
    data_audio: Mapping[str, object] | None
    data_series: Mapping[str, object] | None
    data_tokens: Mapping[str, object] | None
    data_level: int
    data_depends: Sequence[object] | None
    data_validation_split: float
    data_test_split: float
    data_target: Literal['label', 'input', 'none']
    data_normalize: Mapping[str, object] | None
    data_cache: Literal['none', 'validation', 'auto', 'memory', 'disk']
    data_on_bad_example: Literal['fail', 'skip']
    data_bad_examples_limit: float
    data_augment: Mapping[str, object] | None
    data_overlap: Literal['report', 'leave_out']
    data_slices: Sequence[object] | None
    task_loss: Literal['sparse_categorical_crossentropy', 'categorical_crossentropy', 'binary_crossentropy', 'mean_squared_error', 'mean_absolute_error', 'binary_focal_crossentropy', 'categorical_focal_crossentropy', 'kl_divergence', 'dice', 'hinge', 'squared_hinge', 'categorical_hinge', 'huber', 'log_cosh', 'cosine_similarity', 'poisson', 'mean_absolute_percentage_error', 'mean_squared_logarithmic_error', 'cosine'] | str | Mapping[str, object] | None
    task_loss_weights: Mapping[str, object] | None
    task_from_logits: bool | Mapping[str, object] | None
    task_metrics: Sequence[object] | None
    task_decode: Mapping[str, object] | str | None
    task_monitor: str | None
    task: Mapping[str, object]

class _Training(_Verb, total=False):
    global_batch_size: int
    replicas: Literal['auto'] | int
    micro_batch_size: Literal['auto'] | int
    memory_limit: int | str | None
    host_memory_limit: int | str | None
    precision: Literal['float32', 'mixed_float16', 'mixed_bfloat16']
    optimizer: Mapping[str, object]
    batch_norm: Literal['per_micro_batch', 'frozen', 'synchronized']
    recompute: Literal['off', 'auto'] | int
    class_weights: Literal['balanced'] | Mapping[str, object] | None
    restore_best: bool
    patience: int | None
    seed: int

class _Run(TypedDict, total=False):
    output: PathGiven | None
    force: bool
    no_cache: bool
    trust_model: bool
    quiet: bool
    verbose: bool
    set: Mapping[str, object]
    from_stage: str | None
    until: str | None

class _Sweep(TypedDict, total=False):
    output: PathGiven | None
    force: bool
    no_cache: bool
    trust_model: bool
    quiet: bool
    verbose: bool
    set: Mapping[str, object]
    jobs: int

class _Profile(TypedDict, total=False):
    memory_limit: int | str | None
    trace: PathGiven | None
    trust_model: bool
    custom_objects: PathGiven | None
    quiet: bool

class _Search(TypedDict, total=False):
    output: PathGiven | None
    force: bool
    no_cache: bool
    trust_model: bool
    quiet: bool
    verbose: bool
    custom_objects: PathGiven | None
    set: Mapping[str, object]
    jobs: int
    objectives: Sequence[object]
    flash: int | str | None
    ram: int | str | None
    latency: float | str | None
    max_drop: float | None
    macs: int | None
    parameters: int | None
    gzip_bytes: int | str | None
    trials: int | None
    time: float | str | None
    seed: int
    storage: str | None

class _Train(_Training, total=False):
    epochs: int

class _Prune(_Training, total=False):
    method: Literal['magnitude', 'channels', 'layers']
    sparsity: float
    pattern: Literal['unstructured', '2:4', 'block']
    schedule: Literal['constant', 'polynomial']
    initial_sparsity: float
    ramp: float
    frequency: Literal['auto'] | int
    ratio: float | None
    ratios: Mapping[str, object]
    macs: float | None
    parameters: float | None
    file_bytes: int | str | None
    arena_bytes: int | str | None
    file_precision: Literal['float32', 'int8']
    arena: Literal['converted', 'compacted']
    max_extra_macs: float | None
    allocation: Literal['auto', 'uniform', 'sensitivity', 'global']
    importance: Literal['auto'] | Literal['l2', 'l1', 'lamp', 'bn_scale', 'taylor', 'random', 'least_squares']
    samples: int
    blocks: int | None
    rebuild: bool
    round_to: int
    teacher: Literal['auto', 'self'] | None
    temperature: Literal['auto'] | float
    alpha: float
    exclude: Sequence[object]
    steps: int
    epochs: Literal['auto'] | int
    fine_tuning: Literal['auto', 'training']

class _Distill(_Training, total=False):
    temperature: Literal['auto'] | float
    alpha: float
    epochs: int
    loss: Literal['auto', 'kl', 'logit_mse', 'decoupled', 'output_mse']
    beta: float
    feature_layers: Mapping[str, object]
    feature_loss: Literal['hint', 'attention', 'attention_scores', 'relational']
    feature_weight: float
    teacher_cache: Literal['auto', 'on', 'off']
    cache_dtype: Literal['float32', 'float16']
    control: bool

class _Cluster(_Training, total=False):
    clusters: int
    exclude: Sequence[object]
    epochs: int

class _Quantize(_Training, total=False):
    scheme: Literal['float32', 'float16', 'dynamic_wi8_afp32', 'dynamic_wi4_afp32', 'weight_only_wi8_afp32', 'weight_only_wi4_afp32', 'static_wi8_ai8', 'static_wi8_ai16', 'mixed', 'fp32', 'fp16', 'dynamic', 'weight_only', 'int8', 'int16x8']
    accuracy_drop: float | None
    metric_drop: float | None
    file_bytes: int | str | None
    activations: Literal['int8', 'float32']
    calibration_samples: int
    dense_scales: Literal['auto', 'channel', 'tensor']
    aware: bool
    epochs: int
    input_type: Literal['int8', 'uint8', 'int16', 'float32'] | None
    output_type: Literal['int8', 'uint8', 'int16', 'float32'] | None
    split_outputs: bool
    target: Literal['litert', 'tflm']
    sparse: bool
    embed_metadata: bool

class _Compact(_Verb, total=False):
    seed: int
    arena_bytes: int | str | None
    max_extra_macs: float
    int8_io: bool
    target: Literal['tflm', 'xnnpack', 'ethos-u55-32', 'ethos-u55-64', 'ethos-u55-128', 'ethos-u55-256', 'ethos-u65-256', 'ethos-u65-512', 'ethos-u85-128', 'ethos-u85-256', 'ethos-u85-512', 'ethos-u85-1024', 'ethos-u85-2048']
    decode: Literal['auto'] | None

class _Evaluate(_Verb, total=False):
    seed: int
    gates: Mapping[str, object]

def train(model: ModelGiven, data: DataGiven=None, **keys: Unpack[_Train]) -> Run:
    """Train a model, or continue from its weights.

    Args:
        model: a Keras model, a path, `file.py:function`, or a `Run`, whose last artifact it is.
        data: arrays `(x, y)`, a mapping of splits, a `tf.data.Dataset`, a path, a source's name, or
            a recipe's `data` section. A `Run` brings its own.
        keys: of the recipe's stage `train` and of its `training` section; `data_...` and `task_...`
            of these sections; `output`, `force`, `no_cache`, `trust_model`, `custom_objects`,
            `quiet` and `verbose` as the command line has them.

    Raises:
        ShrinkError: `exit_code` says what kind it is. A missed gate is none: see `Run.passed`."""

def prune(model: ModelGiven, data: DataGiven=None, **keys: Unpack[_Prune]) -> Run:
    """Remove the weights that matter least, then fine-tune; arguments as those of `train`."""

def distill(teacher: ModelGiven, student: ModelGiven | dict[str, float | bool], data: DataGiven=None, **keys: Unpack[_Distill]) -> Run:
    """Train a student to follow a teacher; the teacher is the baseline of the report.

    Args:
        teacher: a model, as `train` takes it.
        student: another, or a cut of the teacher: `{"width": 0.5, "depth": 0.5, "inherit": True}`.
        data: as `train` takes it.
        keys: of the recipe's stage `distill`, and the others of `train`.

    Raises:
        ShrinkError: see `train`."""

def cluster(model: ModelGiven, data: DataGiven=None, **keys: Unpack[_Cluster]) -> Run:
    """Let the weights of each kernel share a few values; arguments as those of `train`."""

def quantize(model: ModelGiven, data: DataGiven=None, **keys: Unpack[_Quantize]) -> Run:
    """Convert to TFLite under a quantization scheme; arguments as those of `train`.

    Schemes that need no examples take no data: `quantize(model, scheme="float16")`."""

def compact(model: ModelGiven, data: DataGiven=None, **keys: Unpack[_Compact]) -> Run:
    """Rewrite a .tflite file to need less RAM, with outputs equal to the byte.

    Arguments are those of `train`. It always measures a run; `shrink compact` also writes a file
    alone."""

def evaluate(model: ModelGiven, data: DataGiven=None, **keys: Unpack[_Evaluate]) -> Run:
    """Measure a model on the test split: accuracy with its interval, size, memory, latency.

    Arguments are those of `train`, without the keys of a stage, and `gates`, a mapping such as
    `{"accuracy": 0.9}`."""

def run(recipe: PathGiven | Mapping[str, object], **keys: Unpack[_Run]) -> Run:
    """Run a recipe: every stage, its report, its gates.

    Args:
        recipe: a file, the name of a bundled recipe, or the recipe itself as a mapping, whose
            model, data, teacher and student may be in memory; its paths start from the current
            folder.
        keys: `set`, a mapping such as `{"prune.sparsity": 0.7}`; `from_stage` and `until`, names of
            stages; and `output`, `force`, `no_cache`, `trust_model`, `quiet` and `verbose` as the
            command line has them.

    Raises:
        ShrinkError: `exit_code` says what kind it is. A missed gate is none: see `Run.passed`."""

def sweep(recipe: PathGiven | Mapping[str, object], **keys: Unpack[_Sweep]) -> Comparison:
    """Run every combination of a recipe's settings and compare them.

    Args:
        recipe: as `run` takes it.
        keys: `set`, a mapping of which each value may be a list, a run for every combination:
            `{"prune.sparsity": [0.3, 0.5]}`; `jobs`, how many runs go at a time; the others are
            those of `run`.

    Raises:
        ShrinkError: the sweep could not begin, or was ended. Runs that fail are rows."""

def compare(*runs: Run | Comparison | PathGiven, output: PathGiven | None=None) -> Comparison:
    """Compare runs and sweeps: a table, Pareto fronts, settings that differ.

    Args:
        runs: what calls returned, or run folders, `report.json` files and folders of sweeps.
        output: a folder for compare.html, compare.md and compare.json.

    Raises:
        ShrinkError: a folder that is missing, or is neither a run nor a sweep."""

def search(model: ModelGiven | Mapping[str, object], data: DataGiven=None, **keys: Unpack[_Search]) -> SearchResult:
    """Find the recipe for a device: the smallest file, or the most accurate, within limits.

    Args:
        model: a model, as `train` takes it; or a recipe, as `run` takes it, whose baseline, data
            and training are taken.
        data: of the model, as `train` takes it; a recipe names its own.
        keys: `flash` and `ram`, sizes such as "64KB"; `latency` such as "5ms"; `max_drop`, such as
            0.01; `time` such as "30m", or `trials`; and what else the flags of `shrink search` are.

    Raises:
        ShrinkError: the search could not begin, or no trial keeps the limits; search.json in its
            folder then says what came nearest. A missed gate of the best trial does not raise: see
            `SearchResult.run`."""

def profile(model: ModelGiven, batch_size: int, **keys: Unpack[_Profile]) -> Profile:
    """Measure the memory of a training step, on random inputs with Adam.

    Args:
        model: as `train` takes it.
        batch_size: examples per step.
        keys: `memory_limit` per device, such as "2GB"; `trace`, a folder for TensorBoard;
            `trust_model`, `custom_objects` and `quiet` as the command line has them.

    Raises:
        ShrinkError: the model cannot be used, or memory gives out."""

def load_run(folder: PathGiven) -> Run:
    """Return the run that a folder holds, of this version or an earlier one.

    Raises:
        InputError: there is no report that can be read."""

__all__: list[str]
__version__: str
