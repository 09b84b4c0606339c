"""What is said of a point: where its runs lie, what became of it, and what it took."""

from __future__ import annotations

import time
from dataclasses import replace

from shrink.base.errors import ShrinkError
from shrink.contract.report import Figures
from shrink.contract.searched import Rung, Trial, TrialStatus
from shrink.search.goal import UNTRAINED
from shrink.search.space import CHAIN, Settings
from shrink.search.study import Asked

TRIALS = "trials"
"""The folder of the points' runs, in the search's."""


def place_of(asked: Asked) -> str:
    """Return the folder of a point, relative to the search's."""
    return f"{TRIALS}/{asked.number:04d}"


def place_of_rung(asked: Asked, before: int) -> str:
    """Return the folder of a point's next rung, where it has reached so many before."""
    return f"{place_of(asked)}.rung{before + 1}"


def rung_of(asked: Asked, before: int, share: float, figures: Figures, began: float) -> Rung:
    """Return a rung that ends now.

    Args:
        asked: the point.
        before: how many rungs it has reached before.
        share: of the epochs.
        figures: that it has there; none where it failed.
        began: when, by `time.monotonic`.
    """
    place = place_of_rung(asked, before)
    return Rung(share=share, figures=figures, duration_s=_since(began), run=place)


def untrained(asked: Asked, status: TrialStatus, figures: Figures, started: float) -> Trial:
    """Return a point that was not trained to its end, with what is known of it all the same."""
    known = {k: v for k, v in figures.items() if v is not None and k in UNTRAINED}
    return Trial(
        number=asked.number,
        settings=asked.settings,
        figures=known,
        feasible=False,
        status=status,
        duration_s=_since(started),
    )


def failed(asked: Asked, error: ShrinkError, started: float, run: str | None = None) -> Trial:
    """Return a point that has failed, in a run's folder if it came so far."""
    return replace(untrained(asked, "failed", {}, started), run=run, error=error.message)


def worth(trial: Trial) -> float:
    """Return how many whole points' training went into one, at the most."""
    shares = {rung.run: rung.share for rung in trial.rungs}
    is_whole = trial.run is not None and trial.run not in shares
    return 1.0 if is_whole else sum(shares.values())


def in_words(settings: Settings) -> str:
    """Return a point for people: `distill-quantize, distill.student.width = 0.35`."""
    rest = [f"{key} = {value}" for key, value in settings.items() if key != CHAIN]
    return ", ".join([*([str(settings[CHAIN])] if CHAIN in settings else []), *rest]) or "as it is"


def _since(began: float) -> float:
    return round(time.monotonic() - began, 1)
