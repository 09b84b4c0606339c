"""Finished steps in the cache: computed once, measured as needed.

A search chooses by validation examples, and only what it has chosen is measured on test examples.
Both are of the same artifact: it is made once, and kept under a key for each way of measuring it.
"""

from __future__ import annotations

import hashlib

from shrink.contract.job import MeasuredOn
from shrink.recipe.plan import Plan, Step
from shrink.run.store import Store, StoredStep

ARTIFACT = "artifact"


def measured_on(requested: MeasuredOn, step: Step, plan: Plan) -> MeasuredOn:
    """Return what a step is measured on: in a search, the baseline and the last ones alone."""
    needed = requested != "validation" or step.name in (plan.baseline.name, *plan.finals)
    return requested if needed else "nothing"


def entry_key(key: str, on: MeasuredOn, timed: bool = False) -> str:
    """Return the key of a step measured so; measured on the test split it is the step's own."""
    if on == "test":
        return key
    suffix = ":timed" if timed and on == "validation" else ""
    return hashlib.sha256(f"{key}:{on}{suffix}".encode()).hexdigest()


def made_before(key: str, store: Store) -> StoredStep | None:
    """Return a step whose artifact is there, however it was measured."""
    ways: list[tuple[MeasuredOn, bool]] = [("test", False), ("validation", True)]
    ways += [("validation", False), ("nothing", False)]
    for on, timed in ways:
        entry = entry_key(key, on, timed)
        if store.contains(entry) and (found := store.find(entry)) is not None:
            return found
    return None
