"""The `data` section of a recipe: its sources, which examples, how they are split and varied."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema, model_validator

from shrink.base.errors import DataError, RecipeError, ShrinkError, hint_for
from shrink.base.fields import (
    Config,
    Count,
    Fraction,
    NameIn,
    NonNegative,
    OpenFraction,
    Positive,
    parse_quotient,
)
from shrink.base.file_hashes import files_under, hash_file, named_hashes
from shrink.base.foreign import Json
from shrink.base.packages import Extension, find_extension
from shrink.data.folders import shown
from shrink.data.slice_config import Slices, check_slices

NO_DATA = "none"
"""The source of a recipe without data: its stages need no examples, its report has no metrics."""
SOURCES: dict[str, str] = {
    "digits": "Digits",
    "images": "Images",
    "masks": "Masks",
    "boxes": "Boxes",
    "npz": "Npz",
    "hdf5": "Hdf5",
    "tfrecord": "Tfrecord",
    "lmdb": "Lmdb",
    "tiles": "Tiles",
    "tfds": "Tfds",
    "csv": "Csv",
    "audio": "Audio",
    "series": "Series",
    "text": "Text",
    "python": "Python",
    NO_DATA: "NoData",
}
"""Shrink's own values of `data.source`: the class in `shrink.data.source_types`."""


class Source:
    """A kind of data: which keys it takes, what identifies its content, how it is opened.

    Sources of other packages are subclasses, too, named by an entry point `name =
    "package.module:Class"` of `shrink.sources`. NumPy and other large packages are imported inside
    of `open`: the other methods serve commands that answer at once.

    Attributes:
        keys: keys of `data` that not every source takes, and this one does.
        needs_path: whether `data.path` has to be given.
        has_columns: whether `data.slices` may name columns or arrays of it.
        has_paths: whether its examples are files, which `data.slices` may tell by their paths.
        endings: of files that `--data` takes for this source.
    """

    keys: tuple[str, ...] = ()
    needs_path = True
    has_columns = has_paths = False
    endings: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def module(self) -> ModuleType:
        """What is heavy of a source of shrink's own."""
        return importlib.import_module(f"shrink.data.sources.{self.name}")

    def identity(self) -> str:
        """Return what its fingerprints begin with, in which `content` follows."""
        return self.name

    def path(self, config: DataConfig) -> Path:
        """Return `data.path`, absolute."""
        return Path(config.path or "").expanduser().absolute()

    def content(self, config: DataConfig) -> Iterator[str]:
        """Yield texts that change when the examples do: by default hashes of the file or folder.

        Raises:
            DataError: nothing is there, or it cannot be read.
        """
        path = existing(self.path(config))
        if path.is_dir():
            yield from named_hashes(
                path, [str(file.relative_to(path)) for file in files_under(path)]
            )
        else:
            yield hash_file(str(path))

    def check(self, config: DataConfig) -> None:
        """Raise what `open` would, as far as it can be known at once."""

    def fit(
        self, config: DataConfig, image_input: Callable[[], tuple[int, int, int] | None]
    ) -> tuple[DataConfig, str | None]:
        """Return the section with what follows from the model's input, and a note on it.

        Args:
            config: the section.
            image_input: returns height, width and channels of the model's one image input.
        """
        return config, None

    def open(self, config: DataConfig, seed: int) -> Any:
        """Return the data set, a `shrink.data.dataset.Dataset`, split by the seed.

        Raises:
            DataError: missing, unreadable or inconsistent data.
        """
        return self.module.open_source(config, seed)


def existing(path: Path) -> Path:
    """Return a path; raise `DataError` if nothing is there."""
    if not path.exists():
        raise DataError(
            "no such file or folder",
            subject=shown(path),
            hint="correct data.path (relative to the recipe) or --data",
        )
    return path


def existing_file(path: Path) -> Path:
    """Return a path; raise `DataError` if it is no file, or may not be read."""
    if not existing(path).is_file():
        raise DataError(
            "this is not a file", subject=shown(path), hint="source: images takes folders"
        )
    if not os.access(path, os.R_OK):
        raise DataError(
            "no permission to read the file", subject=shown(path), hint=f"chmod u+r {shown(path)}"
        )
    return path


def source_of(name: str) -> Source:
    """Return a source by its name: shrink's own, or one that an installed package adds.

    Raises:
        RecipeError: there is none, or the package cannot be imported, or adds something else.
    """
    if name in SOURCES:
        types = importlib.import_module("shrink.data.source_types")
        own: Source = getattr(types, SOURCES[name])(name)
        return own
    added = find_extension("source", name)
    if added is None:
        raise RecipeError(f"unknown source {name!r}; {hint_for(name, SOURCES)}")
    loaded = added.load()
    if not (isinstance(loaded, type) and issubclass(loaded, Source)):
        raise added.error(f"{added.point.value} is no class of shrink.data.config.Source")
    source = _called(added, "class", loaded, name)
    assert isinstance(source, Source), "its class made it"
    for method in ("content", "check", "fit", "open"):
        setattr(source, method, functools.partial(_called, added, method, getattr(source, method)))
    return source


def _called(
    added: Extension, name: str, method: Callable[..., object], *arguments: object
) -> object:
    """Call another package's source or its class; what it raises names the package."""
    try:
        answer = method(*arguments)
        if name == "content":
            answer = list(cast(Iterable[object], answer))
        elif name == "open" and not hasattr(answer, "train"):
            raise TypeError(f"a {type(answer).__name__} in place of a Dataset")
    except (ShrinkError, MemoryError):
        raise
    except Exception as error:  # whatever foreign code raises
        message = f"its {name} raised {type(error).__name__}: {error}"
        raise DataError(added.error(message).message) from error
    for part in answer if isinstance(answer, list) else ():
        if not isinstance(part, str):
            raise DataError(added.error(f"its {name} yielded no str: {part!r:.40}").message)
    return answer


def source_code(name: str) -> dict[str, str]:
    """Return package, version and hash of the sources of a source that another package adds.

    Of shrink's own sources nothing: shrink's version and sources tell.
    """
    added = None if name in SOURCES else find_extension("source", name)
    return {} if added is None else added.code()


def sources_with(has: Callable[[Source], bool]) -> list[str]:
    """Return the names of shrink's own sources of which something holds."""
    return [name for name in SOURCES if has(source_of(name))]


StoredDtype = Literal[
    "uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64"
]


class FeatureConfig(Config):
    """One feature of a `tf.train.Example`."""

    type: Literal["int64", "float32", "raw", "picture"]
    """int64 and float32 lists; raw: the bytes of an array; picture: a JPEG, PNG, BMP or GIF."""
    shape: Annotated[tuple[NonNegative, ...], Field(strict=False)] = ()
    """Shape of one example's array; for images height, width, channels."""
    dtype: StoredDtype | None = None
    """raw: the dtype of the bytes, little-endian."""

    @model_validator(mode="after")
    def _check(self) -> FeatureConfig:
        if (self.type == "raw") != (self.dtype is not None):
            raise ValueError("dtype belongs to features of type raw, and only to them")
        if self.type == "picture" and len(self.shape) != 3:
            raise ValueError("an image needs shape: [height, width, channels]")
        return self


class AugmentConfig(Config):
    """Random changes to training images, decided by seed, epoch and example alone."""

    flip: Literal["horizontal", "vertical", "both"] | None = None
    """Mirror half of the images at random; both: in each direction independently."""
    crop: Count | None = None
    """Shift by up to this many pixels each way, as padding with zeros and cropping does."""
    rotate: Annotated[float, Field(gt=0, le=180)] | None = None
    """Rotate by up to this many degrees either way; bilinear, zeros beyond the edges."""
    brightness: Fraction | None = None
    """Add up to this fraction of the range of values (255 for integers, 1 for floats)."""
    contrast: Fraction | None = None
    """Scale the distance from the image's mean by 1 plus or minus up to this."""
    saturation: Fraction | None = None
    """Scale the distance from gray by 1 plus or minus up to this; colour images only."""
    hue: Annotated[float, Field(gt=0, le=0.5)] | None = None
    """Shift the hue by up to this fraction of a full turn; colour images only."""
    cutout: Count | None = None
    """Set a square of this side to zero, centred anywhere (DeVries & Taylor 2017)."""
    mixup: Positive | None = None
    """Mix each example with another of its batch, in proportions from Beta(a, a) with this a;
    labels become probabilities (Zhang et al. 2018)."""
    function: Annotated[str, Field(pattern=r"\.py:[A-Za-z_]\w*$")] | None = None
    """`file.py:function`, called with each image as it is stored, (height, width, channels), and a
    `numpy.random.Generator`; returns an image of the same shape and dtype. It runs before the other
    changes, on the CPU, and must draw all its random numbers from that generator."""

    @property
    def file(self) -> Path | None:
        """The file of its function; None without one."""
        return None if self.function is None else Path(self.function.rpartition(":")[0])

    def at(self, file: str) -> AugmentConfig:
        """Return the same changes with the function in this file."""
        name = (self.function or "").rpartition(":")[2]
        return self.model_copy(update={"function": f"{file}:{name}"})


class AudioConfig(Config):
    """How a clip becomes the model's input; these settings are kept beside the artifact.

    docs/audio.md defines every step.
    """

    features: Literal["log_mel", "mfcc", "waveform"] = "log_mel"
    """log_mel: logarithms of energies in mel bands; mfcc: their cosine transform; waveform: the
    samples themselves."""
    sample_rate: Count = 16_000
    """Sample rate of the clips, Hz; a file with another rate is refused, or resampled with
    `resample`."""
    seconds: Positive = 1.0
    """Length of a clip: shorter clips are padded with zeros, longer ones are cut."""
    resample: bool = False
    """Resample files that have another rate (polyphase filter, Kaiser window)."""
    channel: Literal["mean"] | NonNegative | None = None
    """Files with several channels: take their mean, or the channel of this number; by default
    such files are refused."""
    window_ms: Positive = 30.0
    """Length of a frame (Hann window), ms."""
    stride_ms: Positive = 20.0
    """Time between the starts of two frames, ms."""
    fft_size: Count | None = None
    """Length of the Fourier transform, samples; by default the smallest power of two that holds
    a frame."""
    bands: Count = 40
    """Number of triangular mel bands."""
    low_hz: Annotated[float, Field(ge=0)] = 20.0
    """Lower edge of the lowest band, Hz."""
    high_hz: Positive | None = None
    """Upper edge of the highest band, Hz; by default half the sample rate."""
    log_offset: Positive = 1e-6
    """Added to an energy before its logarithm."""
    coefficients: Count = 10
    """mfcc: number of coefficients to keep, from the first."""
    flatten: bool = False
    """Make each example one row of numbers, frame after frame, instead of (frames, bands, 1)."""

    @property
    def clip_samples(self) -> int:
        """Samples of a clip."""
        return round(self.sample_rate * self.seconds)

    @property
    def window_samples(self) -> int:
        """Samples of a frame."""
        return round(self.sample_rate * self.window_ms / 1000)

    @property
    def stride_samples(self) -> int:
        """Samples from the start of a frame to that of the next."""
        return round(self.sample_rate * self.stride_ms / 1000)

    @property
    def transform_samples(self) -> int:
        """Samples of the Fourier transform."""
        return self.fft_size or 1 << max(self.window_samples - 1, 1).bit_length()

    @property
    def highest_hz(self) -> float:
        """Where the highest band ends."""
        return self.sample_rate / 2 if self.high_hz is None else self.high_hz

    @property
    def frames(self) -> int:
        """Frames of a clip that lie wholly in it."""
        return 1 + (self.clip_samples - self.window_samples) // self.stride_samples

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        if self.features == "waveform":
            return (self.clip_samples,) if self.flatten else (self.clip_samples, 1)
        width = self.bands if self.features == "log_mel" else self.coefficients
        return (self.frames * width,) if self.flatten else (self.frames, width, 1)

    @model_validator(mode="after")
    def _check(self) -> AudioConfig:
        if self.features == "waveform":
            return self
        if min(self.window_samples, self.stride_samples) < 2:
            raise ValueError("window_ms and stride_ms are at least two samples long")
        if self.window_samples > self.clip_samples:
            raise ValueError(f"a frame of {self.window_ms:g} ms is longer than a clip")
        if self.transform_samples < self.window_samples:
            raise ValueError(f"fft_size is at least a frame's {self.window_samples} samples")
        if not self.low_hz < self.highest_hz <= self.sample_rate / 2:
            raise ValueError(
                f"low_hz is below high_hz, and that at most half the rate, {self.sample_rate / 2:g}"
            )
        if self.features == "mfcc" and self.coefficients > self.bands:
            raise ValueError(f"{self.coefficients} coefficients need as many bands at least")
        return self


class SeriesConfig(Config):
    """Windows of a time series: `window` rows are the input, the next `horizon` rows the target.

    A window lies wholly in one split: no row of the test split is seen in training, not even as a
    target.
    """

    window: Count = 48
    """Rows of the input."""
    horizon: Count = 1
    """Rows after the window to predict."""
    stride: Count = 1
    """Rows between the starts of two windows."""
    group: str | None = None
    """Column of a CSV file that tells several series apart; the rows of a series must be
    contiguous."""
    time: str | None = None
    """Column of a CSV file that must rise from row to row of a series: numbers, or text that
    sorts by time, such as 2024-05-01T10:00."""

    @property
    def rows(self) -> int:
        """Rows of a window with its target."""
        return self.window + self.horizon


LEARNED = ("vocabulary", "size", "min_count")
"""Keys that decide the tokens, where the tokens themselves are not known."""
Token = Annotated[str, Field(min_length=1, pattern=r"^[^\r\n]+$")]


class TokensConfig(Config):
    """How a text becomes the model's input; these settings are kept beside the artifact.

    A text is lowercased, split, looked up in the vocabulary, cut or padded to `length`.
    """

    length: Count = 32
    """Ids per example: longer texts are cut, shorter ones padded at the end."""
    lower: bool = True
    """Lowercase the text first."""
    split: Literal["words", "whitespace", "characters"] = "words"
    """words: runs of letters, digits and underscores, and each other sign alone; whitespace:
    split at white space; characters: each character, any white space as a space."""
    vocabulary: Annotated[str, Field(min_length=1)] | None = None
    """A UTF-8 text file with a token on each line; its line number, from 0, is its id. Relative
    to the recipe. By default the vocabulary is learned from the training split."""
    size: Annotated[int, Field(ge=3)] = 10_000
    """Learned vocabulary: the most tokens, padding and unknown included; the most frequent are
    kept."""
    min_count: Count = 1
    """Learned vocabulary: how often the training split must contain a token."""
    padding: Token = "[PAD]"
    """The token that pads a text; id 0 of a learned vocabulary."""
    unknown: Token = "[UNK]"
    """The token for all that the vocabulary lacks; id 1 of a learned vocabulary."""

    @model_validator(mode="after")
    def _check(self) -> TokensConfig:
        if self.padding == self.unknown:
            raise ValueError("padding and unknown are two tokens: give them different names")
        fields = type(self).model_fields
        learned = [k for k in ("min_count", "size") if getattr(self, k) != fields[k].default]
        if self.vocabulary is not None and learned:
            raise ValueError(
                f"{' and '.join(learned)} applies to a learned vocabulary, but vocabulary "
                "names a file"
            )
        return self

    def vocabulary_file(self, folder: Path) -> Path | None:
        """Return the vocabulary's file, if one is named; a relative path starts from `folder`."""
        if self.vocabulary is None:
            return None
        return (folder / Path(self.vocabulary).expanduser()).resolve()


WHY_NO_METRICS = "no data was named"
WHY_NO_TARGETS = "the examples have no targets (data.target: none)"
"""Why nothing is measured with the source `none`."""
Names = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]

NOT_OF_SPLITS = {"path", "cache", "augment", "normalize", "slices", "tokens"}
"""Keys of `data` that decide neither which examples there are nor which split they are in."""


_INPUT_KEYS = ("normalize", "target", "image_size", "channels", "audio", "series", "tokens")
"""Keys that say how inputs and targets are made; every source takes the first two."""
_SOURCE_KEYS = ("inputs", "targets", "features", "level", "validation_split", "test_split")
"""Keys that say what a source's columns mean and how its examples are divided."""
_OF_FEW = ("audio", "series", "tokens", "depends")
"""Keys that are refused with other sources."""


def usage_section(config: DataConfig) -> dict[str, Json]:
    """Return the keys of a `data` section that a model's record keeps.

    The path stays behind, as a record travels; a vocabulary is in the record itself. That all
    examples were tested is nothing for a later stage, which may train.
    """
    kept = {"source", *_INPUT_KEYS, *_SOURCE_KEYS} - (
        {"test_split"} if config.test_split == 1 else set()
    )
    section = config.model_dump(mode="json", include=kept, exclude_none=True)
    if isinstance(tokens := section.get("tokens"), dict):
        section["tokens"] = {key: tokens[key] for key in tokens if key not in LEARNED}
    return section


def inherited_keys(section: Mapping[str, Json], source: str) -> dict[str, Json]:
    """Return what a record's section says that holds for examples of a source, too."""
    before = section.get("source")
    kept: dict[str, Json] = {}
    for key, value in section.items():
        takers = sources_with(lambda one, key=key: key in one.keys)  # type: ignore[misc]
        applies = key in _INPUT_KEYS[:2] or (
            key in _INPUT_KEYS
            and source in {*takers} - {"python"}
            and before in (*takers, "python")
        )
        if applies or (before == source and key in (*_INPUT_KEYS, *_SOURCE_KEYS)):
            kept[key] = value
    return kept


def _known_source(name: object) -> str:
    """Return a source's name: shrink's own, or one that an installed package adds."""
    if isinstance(name, str) and name not in SOURCES and find_extension("source", name):
        return source_of(name).name
    return NameIn(SOURCES).check(name)


SourceName = Annotated[
    str,
    PlainValidator(_known_source),
    WithJsonSchema({"enum": list(SOURCES), "type": "string"}),
]


class NormalizeConfig(Config):
    """`x * scale + offset` before the model sees the input."""

    scale: Annotated[Positive, BeforeValidator(parse_quotient)] = 1.0
    """Factor; a quotient such as 1/255 is accepted."""
    offset: Annotated[float, BeforeValidator(parse_quotient)] = 0.0
    """Added after the factor."""


class DataConfig(Config):
    """Which examples a recipe trains and measures on."""

    source: SourceName
    """digits: scikit-learn's handwritten digits. images: folders of images, or a CSV file that
    lists them. masks: the folders images and masks, with a PNG for each image. boxes: pictures with
    boxes, as COCO, YOLO or Pascal VOC has them. npz, hdf5: arrays. csv: a table of numbers, in a
    CSV or Parquet file. audio: WAV files in folders by class, or listed in a CSV file. series:
    windows of a time series in a CSV, Parquet or npz file. text: texts with a label, in a CSV,
    JSON-lines or Parquet file, or in folders by class. tfrecord: sharded files of
    `tf.train.Example`. lmdb: the same records in an LMDB file. tiles: windows of TIFF files, listed
    in a CSV file. tfds: a data set that TensorFlow Datasets has prepared. python: a function that
    gives examples. none: no data, for stages that need no examples; sizes, memory and latency are
    measured, metrics are not. Installed packages may add others."""
    path: str | None = None
    """The file or folder, or `file.py:function` for source python; relative to the recipe."""
    inputs: Names | None = None
    """Names of the input arrays: the model's input names in any order, or other names in the
    order of the model's inputs; by default x (source tfds: the data set's own)."""
    targets: Names | None = None
    """Names of the target arrays: the model's output names in any order, or other names in the
    order of the model's outputs; by default y (source tfds: the data set's own)."""
    classes: Names | None = None
    """Names of the classes in the order of the model's outputs; by default folder names and
    words are sorted. If labels are integers, this only names them."""
    features: Annotated[dict[str, FeatureConfig], Field(min_length=1)] | None = None
    """Sources tfrecord and lmdb: type and shape of each feature of a record."""
    image_size: Annotated[tuple[Count, Count], Field(strict=False)] | None = None
    """Height and width to which images are resized; by default all images must have one size."""
    channels: Literal[1, 3] | None = None
    """Channels of the images; by default those of the first image."""
    audio: AudioConfig | None = None
    """Source audio: how clips become inputs; by default log-mel energies of one second at 16
    kHz. Source python: the same, if the function returns clips, (samples,) from -1 to 1."""
    series: SeriesConfig | None = None
    """Source series: how windows are cut."""
    tokens: TokensConfig | None = None
    """Source text: how a text becomes ids."""
    level: NonNegative = 0
    """Source tiles: level of the pyramid; 0 is the finest."""
    depends: Names | None = None
    """Source python: more files and folders that the function reads (relative to its file), and
    environment variables as $NAME. If they change, the data is generated again. Files read by
    Python's `open` are tracked automatically."""
    validation_split: OpenFraction = 0.1
    """Fraction drawn for validation by the seed, stratified, if the data has no such split."""
    test_split: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Fraction drawn for testing by the seed, stratified, if the data has no such split. 1 is
    for recipes without stages and tests as `shrink evaluate` does: the test split, else the
    validation split, else all examples; or, if shrink trained the model on this data, the test
    split of that run."""
    target: Literal["label", "input", "none"] = "label"
    """input: the model is trained to reproduce its input (autoencoder). none: the examples have no
    labels; `quantize` calibrates on them, and no metric is measured."""
    normalize: NormalizeConfig | None = None
    """By default images (0 to 255) and arrays stay as stored, cast to the model's input dtype."""
    cache: Literal["none", "validation", "auto", "memory", "disk"] = "validation"
    """Decoded examples to keep for the next epoch; auto: training and validation split, each if
    it takes up to 200 MB of memory; validation: the validation split alone; memory: both; disk:
    both, in the cache folder, for later stages too."""
    on_bad_example: Literal["fail", "skip"] = "fail"
    """Images that cannot be decoded; fail: stop; skip: leave them out, up to the limit."""
    bad_examples_limit: Fraction = 0.001
    """The largest fraction of examples that on_bad_example: skip may leave out."""
    augment: AugmentConfig | None = None
    """Random changes to the examples of the train split; none by default."""
    overlap: Literal["report", "leave_out"] = "report"
    """Test and validation examples that are training examples too (equal stored inputs);
    report: warn; leave_out: leave them out of test and validation."""
    slices: Slices | None = None
    """How the report divides the test examples, besides their classes: the name of a column or
    array, `file.py:function`, or a mapping."""

    @model_validator(mode="after")
    def _check(self) -> DataConfig:
        if self.test_split < 1 <= self.validation_split + self.test_split:
            raise ValueError("validation_split and test_split together leave nothing to train on")
        if self.source == NO_DATA:
            # Refuse keys about examples where there are none; a written default is harmless.
            fields = type(self).model_fields
            said = [
                name
                for name in fields
                if name != "source" and getattr(self, name) != fields[name].default
            ]
            if said:
                raise ValueError(
                    f"source: none has no examples, and {', '.join(said)} is about some"
                )
            return self
        source = source_of(self.source)
        if not source.needs_path and self.path is not None and self.source in SOURCES:
            raise ValueError(f"source: {self.source} brings its examples and takes no path")
        if self.path is None and source.needs_path:
            raise ValueError(f"source: {self.source} needs a path")
        if self.source == "python" and ":" not in str(self.path):
            raise ValueError("source: python takes path: file.py:function")
        for key in _OF_FEW:
            if getattr(self, key) is not None and key not in source.keys:
                takers = sources_with(lambda one, key=key: key in one.keys)  # type: ignore[misc]
                raise ValueError(
                    f"{key} belongs to source: {' and '.join(takers)}, not to {self.source}; a "
                    f"YAML file names the source: data: {{source: {takers[0]}, path: ...}}"
                )
        if self.slices:
            columns = sources_with(lambda one: one.has_columns)
            paths = sources_with(lambda one: one.has_paths)
            check_slices(
                self.slices,
                {
                    "column": [] if source.has_columns else columns,
                    "folder": [] if source.has_paths else paths,
                    "pattern": [] if source.has_paths else paths,
                },
                self.source,
            )
        return self

    def takes_one_class(self, are_words: bool) -> bool:
        """Whether all examples may have one label: they are only tested, and its number is known.

        Args:
            are_words: whether that label is a word or a folder, which `classes` numbers.
        """
        return self.test_split == 1 and (not are_words or self.classes is not None)

    @property
    def clips(self) -> AudioConfig | None:
        """How clips become inputs; None where the examples are no clips."""
        return self.audio or (AudioConfig() if self.source == "audio" else None)
