"""Sensitivity curves, and a file for each model, data and settings they were measured with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import PchipInterpolator

from shrink.base import files


@dataclass(frozen=True)
class Curve:
    """What pruning one group does to the validation loss.

    Attributes:
        layers: of the group, joined by "+".
        channels: of the group.
        ratios: fractions of its channels that were removed, from 0 on.
        losses: the mean loss at each of them.
    """

    layers: str
    channels: int
    ratios: tuple[float, ...]
    losses: tuple[float, ...]

    def losses_at(self, counts: np.ndarray) -> np.ndarray:
        """Return the loss where so many channels (n,) are removed, interpolated (n,).

        A piecewise cubic, monotone as the points (Fritsch & Carlson 1980): prices then move a
        group by one channel, not from point to point. The loss is taken to rise, never to fall.
        """
        if len(self.ratios) == 1:
            return np.full(len(counts), self.losses[0])
        rising = np.maximum.accumulate(np.array(self.losses))
        found: np.ndarray = PchipInterpolator(self.ratios, rising)(counts / self.channels)
        return found


def remembered(
    folder: Path, identity: Mapping[str, Any], measure: Callable[[], Sequence[Curve]]
) -> tuple[list[Curve], bool]:
    """Return curves and whether they were there; else they are measured and written.

    A file that cannot be read, or is of something else, is measured again and replaced.

    Args:
        folder: of all such files; made where it is missing.
        identity: everything that decides the curves, plain data.
        measure: how to find them out.
    """
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    path = folder / f"{key}.json"
    known = _read(path, key)
    if known is not None:
        path.touch()  # used now: what was not for long is swept away
        return known, True
    curves = list(measure())
    body = [asdict(curve) for curve in curves]
    files.write_json(path, {"key": key, "digest": _digest(body), "curves": body})
    return curves, False


def _read(path: Path, key: str) -> list[Curve] | None:
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        if entry["key"] != key or entry["digest"] != _digest(entry["curves"]):
            return None
        return [
            Curve(one["layers"], one["channels"], tuple(one["ratios"]), tuple(one["losses"]))
            for one in entry["curves"]
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _digest(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
