"""What the features of stored records hold: the `data.features` section; light."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from shrink.base.fields import Config, NonNegative

StoredDtype = Literal[
    "uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64"
]


class FeatureConfig(Config):
    """One feature of a `tf.train.Example`."""

    type: Literal["int64", "float32", "raw", "picture"]
    """int64 and float32 lists; raw: the bytes of an array; picture: a JPEG, PNG, BMP or GIF."""
    shape: Annotated[tuple[NonNegative, ...], Field(strict=False)] = ()
    """Shape of one example's array; of pictures height, width, channels."""
    dtype: StoredDtype | None = None
    """Of raw bytes, little-endian."""

    @model_validator(mode="after")
    def _check(self) -> FeatureConfig:
        if (self.type == "raw") != (self.dtype is not None):
            raise ValueError("dtype belongs to features of type raw, and only to them")
        if self.type == "picture" and len(self.shape) != 3:
            raise ValueError("a picture needs shape: [height, width, channels]")
        return self
