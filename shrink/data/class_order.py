"""Which label is which class: by name in sorted order, unless `data.classes` says otherwise."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from shrink.errors import DataError
from shrink.recipe.suggest import did_you_mean


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

    Raises:
        DataError: there are more classes than `data.classes` names.
    """
    if wanted is None or count is None:
        return names
    if set(names) & set(wanted) == set(names):
        return names  # the source has put them into this order
    if len(wanted) < count:
        raise DataError(
            f"data.classes has {len(wanted)} names, and the labels go up to {count - 1}",
            subject=path,
        )
    return tuple(wanted)
