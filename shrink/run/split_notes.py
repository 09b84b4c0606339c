"""What a report says of test examples that a model may have been trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shrink.base.report_warning import MAY_HAVE_BEEN_TRAINED_ON, ReportWarning
from shrink.run.lineage import Splits

LEFT_OUT = "trained-examples-left-out"
_HINT = (
    "give a test split of its own: x_test and y_test in an .npz file, a folder test beside train, "
    "or a file of examples that were kept apart"
)


def describe_splits(
    splits: Splits, told: Mapping[str, Any]
) -> tuple[ReportWarning | None, str | None]:
    """Return a warning, or a note, or neither.

    Args:
        splits: how the data was divided, and what is known of the models.
        told: what a worker said of it: whether the test split was given, how many examples were
            left out of each part (`left_out`), and whether all could be compared (`comparable`).
    """
    if splits.lineage is None:  # nothing came trained
        return None, None
    left_out = told.get("left_out") or {}
    if count := left_out.get("test"):
        runs = ", ".join(dict.fromkeys(link.run for link in splits.lineage.links))
        message = (
            f"{count:,} test examples were left out, for the model was trained on them ({runs}); "
            f"{told['test']:,} are left"
        )
        return ReportWarning(LEFT_OUT, message, _HINT), None
    if splits.lineage.outside:
        return _unknown("the model came trained, and on what is not known", told)
    if splits.earlier and not told.get("comparable"):
        return _unknown("the model was trained on other data, in another form than this", told)
    if splits.earlier:
        return _unknown(
            "the model was trained on other data; none of its "
            f"{told['trained_on']:,} examples is a test example here, byte for byte",
            told,
        )
    if splits.same:
        return None, "test split: that of the run that made the model, which did not train on it"
    return None, None


def _unknown(why: str, told: Mapping[str, Any]) -> tuple[ReportWarning | None, str | None]:
    if told.get("test_given"):
        return None, f"test split: as the data gives it; {why}"
    message = f"the test examples may have been trained on: {why}, and they were drawn at random"
    return ReportWarning(MAY_HAVE_BEEN_TRAINED_ON, message, _HINT), None
