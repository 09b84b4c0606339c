"""A synthesised series with a daily and a weekly season, such as an hourly load.

`python recipes/data/season.py` writes season.csv beside this file.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

HOURS = 24 * 7 * 26
"""Rows: half a year of hours."""

_SEED = 2_103
_DAY = ((9.0, 0.3), (4.0, 1.9), (1.5, 0.7))
"""Amplitude and phase of the day's harmonics."""
_DAYS = (0.0, 1.0, 1.5, 1.0, -0.5, -6.0, -8.0)
"""What each day of the week adds."""
_MEMORY, _SHOCK = 0.9, 0.8
"""The noise is a first-order autoregression with these."""


def season(hours: int = HOURS) -> np.ndarray:
    """Return the series, float32 (hours, 1), about 50 with a standard deviation about 8."""
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([_SEED])))
    time = np.arange(hours)
    angle = 2 * np.pi * time / 24
    day = sum(a * np.sin((n + 1) * angle + phase) for n, (a, phase) in enumerate(_DAY))
    week = np.array(_DAYS)[time // 24 % 7]
    slow = 3 * np.sin(2 * np.pi * time / (24 * 120))
    noise = np.zeros(hours)
    for hour, shock in enumerate(random.normal(0, _SHOCK, hours)):
        noise[hour] = _MEMORY * noise[hour - 1] + shock
    return (50 + day + week + slow + noise).astype(np.float32)[:, None]


def write(path: Path) -> None:
    """Write the series as a CSV file of one column, in digits that float32 has exactly."""
    rows = [np.format_float_positional(value) for value in season()[:, 0]]
    path.write_text("\n".join(("load", *rows, "")))


if __name__ == "__main__":
    write(Path(__file__).with_suffix(".csv"))
