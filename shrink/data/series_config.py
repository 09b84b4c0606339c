"""Settings of windows of time series; imports nothing heavy."""

from __future__ import annotations

from shrink.base.fields import Config, Count


class SeriesConfig(Config):
    """Windows of a time series: `window` rows are the input, the `horizon` rows behind the target.

    A window lies wholly in one split: no row of the test split is seen in training, not even as a
    target.
    """

    window: Count = 48
    """Rows of the input."""
    horizon: Count = 1
    """Rows behind the window that are predicted."""
    stride: Count = 1
    """Rows from the start of a window to that of the next."""
    group: str | None = None
    """Column of a CSV file that tells several series apart; the rows of each stand together."""
    time: str | None = None
    """Column of a CSV file that has to rise from row to row of a series: numbers, or text such as
    2024-05-01T10:00 that sorts by time."""

    @property
    def rows(self) -> int:
        """Rows of a window with its target."""
        return self.window + self.horizon
