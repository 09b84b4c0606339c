"""The `data` section of a recipe: which examples, and how they are split."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from shrink.recipe.fields import Config, Count, OpenFraction, Positive

SourceName = Literal["digits", "images", "npz"]


class NormalizeConfig(Config):
    """`x * scale + offset` before the model sees the input."""

    scale: Positive = 1.0
    offset: float = 0.0


class DataConfig(Config):
    """Which examples a recipe trains and measures on."""

    source: SourceName
    """digits: scikit-learn's handwritten digits. images: folders of pictures. npz: arrays."""
    path: str | None = None
    """The file or folder; relative to the recipe."""
    image_size: Annotated[tuple[Count, Count], Field(strict=False)] | None = None
    """Height and width to which pictures are resized; by default they must all be of one size."""
    channels: Literal[1, 3] | None = None
    """Channels of the pictures; by default those of the first one."""
    validation_split: OpenFraction = 0.1
    """Fraction taken for validation, by the seed and stratified, where no such split is given."""
    test_split: OpenFraction = 0.2
    """Fraction taken for the test split, by the seed and stratified, where none is given."""
    target: Literal["label", "input"] = "label"
    """input: the model is trained to reproduce its input (autoencoder)."""
    normalize: NormalizeConfig | None = None
    """None: pictures 0-255 and arrays as stored, cast to the model's input dtype."""

    @model_validator(mode="after")
    def _check(self) -> DataConfig:
        if self.validation_split + self.test_split >= 1:
            raise ValueError("validation_split and test_split together leave nothing to train on")
        if self.source == "digits" and self.path is not None:
            raise ValueError("source: digits comes with scikit-learn and takes no path")
        if self.source != "digits" and self.path is None:
            raise ValueError(f"source: {self.source} needs a path")
        return self
