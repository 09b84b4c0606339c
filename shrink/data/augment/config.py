"""How training examples are varied: the `data.augment` section."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shrink.base.fields import Config, Count, Fraction, Positive


class AugmentConfig(Config):
    """Random changes to training pictures, decided by seed, epoch and example alone."""

    flip: Literal["horizontal", "vertical", "both"] | None = None
    """Mirror every second picture, by chance; both: each way on its own."""
    crop: Count | None = None
    """Shift by up to this many pixels each way, as padding with zeros and cropping does."""
    rotate: Annotated[float, Field(gt=0, le=180)] | None = None
    """Turn by up to this many degrees either way; bilinear, zeros beyond the edges."""
    brightness: Fraction | None = None
    """Add up to this fraction of the range of values (255 for integers, 1 for floats)."""
    contrast: Fraction | None = None
    """Scale the distance from the picture's mean by 1 plus or minus up to this."""
    saturation: Fraction | None = None
    """Scale the distance from gray by 1 plus or minus up to this; colour pictures only."""
    hue: Annotated[float, Field(gt=0, le=0.5)] | None = None
    """Turn the hue by up to this fraction of a full turn; colour pictures only."""
    cutout: Count | None = None
    """Set a square of this side to zero, centred anywhere (DeVries & Taylor 2017)."""
    mixup: Positive | None = None
    """Mix each example with another of its batch, in proportions from Beta(a, a) of this a;
    labels become probabilities (Zhang et al. 2018)."""
