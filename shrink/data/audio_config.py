"""Settings of the audio front end; imports nothing heavy."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from shrink.base.fields import Config, Count, NonNegative, Positive


class AudioConfig(Config):
    """How a clip becomes the model's input; what stands here is kept beside the artifact.

    docs/audio.md defines every step.
    """

    features: Literal["log_mel", "mfcc", "waveform"] = "log_mel"
    """log_mel: logarithms of energies in mel bands; mfcc: their cosine transform; waveform: the
    samples themselves."""
    sample_rate: Count = 16_000
    """Of the clips, Hz; a file of another rate is refused, or brought to it with `resample`."""
    seconds: Positive = 1.0
    """Length of a clip: a shorter one is continued with zeros, of a longer one the rest is left
    out."""
    resample: bool = False
    """Whether files of another rate are resampled (polyphase filter, Kaiser window)."""
    channel: Literal["mean"] | NonNegative | None = None
    """Of several channels: their mean, or one by its number; by default such files are refused."""
    window_ms: Positive = 30.0
    """Length of a frame (Hann window), ms."""
    stride_ms: Positive = 20.0
    """From the start of a frame to that of the next, ms."""
    fft_size: Count | None = None
    """Samples of the Fourier transform; by default the next power of two of a frame."""
    bands: Count = 40
    """Triangular mel bands."""
    low_hz: Annotated[float, Field(ge=0)] = 20.0
    """Where the lowest band begins, Hz."""
    high_hz: Positive | None = None
    """Where the highest band ends, Hz; by default half the sample rate."""
    log_offset: Positive = 1e-6
    """Added to an energy before its logarithm."""
    coefficients: Count = 10
    """Of features mfcc: how many coefficients are kept, the first among them."""
    flatten: bool = False
    """Whether an example is one row of numbers, frame after frame, in place of (frames, bands,
    1)."""

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
