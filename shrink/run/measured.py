"""Figures of a finished run, copied as the baseline of runs that go on from its artifacts."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from shrink.base import files
from shrink.base.errors import ResourceError
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.details import Details
from shrink.contract.result import Measurement, StepResult
from shrink.model.reference import report_of
from shrink.recipe.plan import BASELINE, Plan, Step
from shrink.run.keys import measurement_key
from shrink.run.lineage import Splits
from shrink.run.store import Store, StoredStep

_FILES = ("artifact", "scores")


def keep_measurement(
    plan: Plan, step: Step, data_fingerprint: str, splits: Splits, stored: StoredStep, store: Store
) -> None:
    """Keep what a stage with a Keras model measured, in the form of a baseline's result."""
    told = stored.result.measurement
    artifact = stored.files["artifact"]
    if step.kind == BASELINE or told is None or artifact.suffix != ".keras":
        return
    key = measurement_key(plan, artifact.stem, data_fingerprint, splits)
    if not store.contains(key):
        kept = {role: stored.files[role] for role in _FILES}
        with contextlib.suppress(OSError, ResourceError):  # then it is measured again
            store.add(key, _as_baseline(stored.result, told), kept)


def measured_before(
    plan: Plan, step: Step, data_fingerprint: str, splits: Splits, store: Store
) -> StoredStep | None:
    """Return what an earlier run measured of its artifact that this baseline is.

    None where it was measured on other examples or for another task, or elsewhere: then the
    baseline is measured as any model.
    """
    reference = step.inputs["model"].reference
    if step.kind != BASELINE or reference is None or reference.kind != "keras":
        return None
    known = report_of(reference.path)
    if known is None:
        return None
    sha256 = files.sha256(reference.path)
    found = store.find(measurement_key(plan, sha256, data_fingerprint, splits))
    # The task is what the artifact's own run took: without it another would be found out.
    task = to_plain(known[1].told.task)
    details = None if found is None else found.result.details
    same = details is not None and task is not None and to_plain(details.task) == task
    return found if same else None


def _as_baseline(result: StepResult, told: Measurement) -> StepResult:
    """Return a stage's result as that of a baseline: the same figures, and nothing was trained."""
    memory = result.memory.items()
    details = to_plain(result.details)
    return replace(
        result,
        notes=told.notes,
        warnings=told.warnings,
        measurement=None,
        memory={k: None if k.startswith("training_") else v for k, v in memory},
        details=from_plain(Details, {name: details[name] for name in ("task", "layers")}),
        training=None,
        skipped=(),
        duration_s=result.timing.measure_s,
    )
