"""The `data` section of a recipe: which examples, and how they are split."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticKnownError

from shrink.base.fields import (
    Config,
    Count,
    Fraction,
    NonNegative,
    OpenFraction,
    Positive,
    parse_quotient,
)
from shrink.data.augment.config import AugmentConfig
from shrink.data.features import FeatureConfig
from shrink.data.registry import NO_DATA, SOURCES, added_source

WHY_NO_METRICS = "no data was named"
"""Why nothing is measured with the source `none`."""
Names = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]

NOT_OF_SPLITS = {"path", "cache", "augment", "normalize"}
"""Keys of `data` that decide neither which examples there are nor which part they are in."""


def _known_source(name: Any) -> str:
    """Return a source's name; pydantic's error of a `Literal` where nothing has that name."""
    if isinstance(name, str) and (name in SOURCES or added_source(name) is not None):
        return name
    *others, last = map(repr, SOURCES)
    raise PydanticKnownError("literal_error", {"expected": f"{', '.join(others)} or {last}"})


SourceName = Annotated[
    str,
    PlainValidator(_known_source),
    WithJsonSchema({"enum": list(SOURCES), "type": "string"}),
]


class NormalizeConfig(Config):
    """`x * scale + offset` before the model sees the input."""

    scale: Annotated[Positive, BeforeValidator(parse_quotient)] = 1.0
    """Factor; a quotient such as 1/255 will do."""
    offset: Annotated[float, BeforeValidator(parse_quotient)] = 0.0
    """Added after the factor."""


class DataConfig(Config):
    """Which examples a recipe trains and measures on."""

    source: SourceName
    """digits: scikit-learn's handwritten digits. images: folders of pictures, or a CSV file that
    lists them. npz, hdf5: arrays. csv: a table of numbers. tfrecord: sharded records, such as
    `shrink data pack` writes. lmdb: the same records in an LMDB file. tiles: windows of TIFF files,
    listed in a CSV file. tfds: a data set that TensorFlow Datasets has prepared. python: a function
    that gives examples. none: no data, for stages that need no examples; sizes, memory and latency
    are measured, metrics are not. Installed packages may add others."""
    path: str | None = None
    """The file or folder, or `file.py:function` for source python; relative to the recipe."""
    inputs: Names | None = None
    """Names of the input arrays: those of the model's inputs in any order, or others in the model's
    order; by default x, of source tfds what the data set itself names."""
    targets: Names | None = None
    """Names of the target arrays: those of the model's outputs in any order, or others in the
    model's order; by default y, of source tfds what the data set itself names."""
    classes: Names | None = None
    """Names of the classes by label, in the order of the model's outputs; by default folders of
    pictures and words in a CSV file are sorted by name. Of whole numbers it is what they are
    called."""
    features: Annotated[dict[str, FeatureConfig], Field(min_length=1)] | None = None
    """What the features of TFRecord files hold; by default as their manifest says."""
    image_size: Annotated[tuple[Count, Count], Field(strict=False)] | None = None
    """Height and width to which pictures are resized; by default they must all be of one size."""
    channels: Literal[1, 3] | None = None
    """Channels of the pictures; by default those of the first one."""
    level: NonNegative = 0
    """Of source tiles: the level of the pyramid, 0 is the finest."""
    depends: Names | None = None
    """Of source python: files and folders that the function reads other than by Python's `open`,
    relative to its file; a change of them is new data. Those that it opens are found out."""
    validation_split: OpenFraction = 0.1
    """Fraction taken for validation, by the seed and stratified, where no such split is given."""
    test_split: OpenFraction = 0.2
    """Fraction taken for the test split, by the seed and stratified, where none is given."""
    target: Literal["label", "input"] = "label"
    """input: the model is trained to reproduce its input (autoencoder)."""
    normalize: NormalizeConfig | None = None
    """None: pictures 0-255 and arrays as stored, cast to the model's input dtype."""
    cache: Literal["none", "validation", "auto", "memory", "disk"] = "validation"
    """Where decoded examples of train and validation are kept for the next epoch; auto: in memory
    where a part takes up to 200 MB; validation: that part alone, as with auto; disk: in the cache
    folder, for the next stage too."""
    on_bad_example: Literal["fail", "skip"] = "fail"
    """What to do about pictures that cannot be decoded; skip: leave them out, up to the limit."""
    bad_examples_limit: Fraction = 0.001
    """The largest fraction of examples that on_bad_example: skip may leave out."""
    augment: AugmentConfig | None = None
    """Random changes to the examples of the train split; none by default."""

    @model_validator(mode="after")
    def _check(self) -> DataConfig:
        if self.validation_split + self.test_split >= 1:
            raise ValueError("validation_split and test_split together leave nothing to train on")
        if self.source == NO_DATA:
            self._check_nothing_said()
            return self
        if self.source == "digits" and self.path is not None:
            raise ValueError("source: digits comes with scikit-learn and takes no path")
        if self.path is None and not self._does_without_path():
            raise ValueError(f"source: {self.source} needs a path")
        if self.source == "python" and ":" not in str(self.path):
            raise ValueError("source: python takes path: file.py:function")
        if self.source != "python" and self.depends is not None:
            raise ValueError(f"depends belongs to source: python, not to {self.source}")
        return self

    def _does_without_path(self) -> bool:
        # Without its own fingerprint, a source's is that of what is at the path.
        return self.source == "digits" or hasattr(added_source(self.source), "fingerprint")

    def _check_nothing_said(self) -> None:
        """Refuse keys about examples where there are none; a written default is harmless."""
        fields = type(self).model_fields
        said = [
            name
            for name in fields
            if name != "source" and getattr(self, name) != fields[name].default
        ]
        if said:
            raise ValueError(f"source: none has no examples, and {', '.join(said)} is about some")
