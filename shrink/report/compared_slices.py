"""What slices of the test examples lost in each of several runs, slice by slice."""

from __future__ import annotations

from collections.abc import Iterator

from shrink.base.figures import metric_figure
from shrink.contract.comparison import ComparedRow, ComparedSlice, Comparison
from shrink.contract.report import Stage
from shrink.contract.slices import slice_text
from shrink.report.content import NULL, Table
from shrink.report.deltas import change_texts

_MOST_ROWS = 40
_WORDS = {"worse": "lost", "better": "gained", "no proven difference": ""}
Key = tuple[str, str, str]
"""By what examples are divided, the slice's name, and the metric."""


def compared_slices(stage: Stage) -> Iterator[ComparedSlice]:
    """Yield the slices of a stage's report."""
    for slicing in stage.slices:
        for one in slicing.slices:
            yield ComparedSlice(
                by=slicing.by,
                name=one.name,
                metric=slicing.metric,
                examples=one.examples,
                value=one.metrics.get(slicing.metric),
                delta=one.delta,
                adjusted_p=None if one.test is None else one.test.adjusted_p,
                verdict=None if one.test is None else one.test.verdict,
            )


def slices_table(found: Comparison, most: int = _MOST_ROWS) -> Table | None:
    """Return a row for each slice and a column for each run, that which lost most first.

    Args:
        found: the comparison.
        most: rows.

    Returns:
        The table; None where no two rows have a slice in common.
    """
    columns = [(row, {_key(one): one for one in row.slices}) for row in found.rows if row.slices]
    keys = dict.fromkeys(key for _, slices in columns for key in slices)
    shared = [key for key in keys if sum(key in slices for _, slices in columns) > 1]
    if not shared:
        return None
    worst = {
        key: max(_worsening(slices[key]) for _, slices in columns if key in slices)
        for key in shared
    }
    shown = sorted(shared, key=lambda key: -worst[key])[:most]
    rows = (
        (
            f"{slice_text(by, name)}: {metric}",
            *(_cell(row, of.get((by, name, metric))) for row, of in columns),
        )
        for by, name, metric in shown
    )
    rest = f" {len(shared) - most} more in compare.json." if len(shared) > most else ""
    caption = (
        "The metric on the slice's test examples, and its change against the same slice of each "
        "run's own baseline; lost or gained where that is proven at 0.05, adjusted for the slices "
        f"of the run (Holm). The slice with the largest loss comes first.{rest}"
    )
    return Table(("slice", *(row.name for row, _ in columns)), tuple(rows), "", caption)


def _key(one: ComparedSlice) -> Key:
    return one.by, one.name, one.metric


def _worsening(one: ComparedSlice) -> float:
    if one.delta is None:
        return float("-inf")
    return -one.delta.value if metric_figure(one.metric).larger_is_better else one.delta.value


def _cell(row: ComparedRow, one: ComparedSlice | None) -> str:
    if one is None or one.value is None:
        return NULL
    value = metric_figure(one.metric).text(one.value)
    if one.delta is None or row.stage == row.baseline:
        return value
    change = change_texts(one.metric, one.delta)[0].removesuffix(" points")
    told = _WORDS.get(one.verdict or "", "")
    return f"{value} ({change}{', ' + told if told else ''})"
