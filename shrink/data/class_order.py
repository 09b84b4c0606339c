"""Which label is which class: by name in sorted order, unless `data.classes` says otherwise."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from shrink.base.errors import DataError
from shrink.base.suggest import did_you_mean


def class_order(
    found: Collection[str], wanted: Sequence[str] | None, path: Path
) -> tuple[str, ...]:
    """Return the class names by label.

    Args:
        found: the names that the data has.
        wanted: `data.classes`; it may name classes that the data has no example of.
        path: of the data, for messages.

    Raises:
        DataError: a class of the data is not in `wanted`, or one is there twice.
    """
    if wanted is None:
        return tuple(sorted(found))
    if len(set(wanted)) < len(wanted):
        raise DataError("data.classes names a class twice", subject=path)
    for name in sorted(set(found) - set(wanted)):
        near = did_you_mean(name, list(wanted))
        raise DataError(
            f"the class {name!r} is not in data.classes",
            subject=path,
            hint=f"is {near} of data.classes meant? The data has {', '.join(sorted(found))}"
            if near
            else f"the data has {', '.join(sorted(found))}",
        )
    return tuple(wanted)


def named_classes(
    names: tuple[str, ...], count: int | None, wanted: Sequence[str] | None, path: str | None
) -> tuple[str, ...]:
    """Return the names of classes that the data itself only counts: `data.classes`, else `names`.

    Args:
        names: by label, as the source has them: numbers, where it only counts.
        count: how many there are; None where targets are real.
        wanted: `data.classes`.
        path: of the data, for messages.

    Raises:
        DataError: there are more classes than `data.classes` names, or the data has names of its
            own for the labels that it stores, in another order.
    """
    if wanted is None or count is None or names == tuple(wanted):
        return names
    if len(wanted) < count:
        raise DataError(
            f"data.classes has {len(wanted)} names, and the labels go up to {count - 1}",
            subject=path,
        )
    _check_order(names, wanted, path)
    return tuple(wanted)


def _check_order(names: Sequence[str], wanted: Sequence[str], path: str | None) -> None:
    """Raise `DataError` where labels that the data stores have names in another order."""
    moved = any(name in wanted and list(wanted).index(name) != i for i, name in enumerate(names))
    numbers = list(names) == [str(label) for label in range(len(names))]
    if moved and (not numbers or set(names) == set(wanted)):  # 1, 2, 3 may be what 0, 1, 2 mean
        raise DataError(
            f"data.classes has another order than the labels, which are {', '.join(names)}",
            subject=path,
            hint="leave data.classes out, and give the model's outputs the order of the labels: "
            "only words and folders are numbered by data.classes",
        )
