"""A measured figure, or the reason why it is missing, with the sentences of a report for both."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from shrink.base.figures import FIGURES, LOSS
from shrink.base.metrics import is_known_name

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
DOES_NOT_APPLY = "does not apply"
NOTHING_TO_PLAN_FOR = "there is no training.memory_limit"
_NAME = re.compile(r"\S+")
_EXPECTED = (DOES_NOT_APPLY, "not planned: there is no", "not predicted: a function builds")


@dataclass(frozen=True)
class Measured(Generic[T_co]):
    """A figure as whoever measured it gives it.

    Attributes:
        value: None where there is none.
        reason: why there is none; beside a value, what its reader must know; else empty.
    """

    value: T_co | None
    reason: str = ""


class Note(str):
    """A sentence of a report; one about figures begins with their names: `p50_ms, p90_ms: why`.

    Attributes:
        figures: names of figures and metrics: why they are null, or how they were measured.
    """

    figures: tuple[str, ...] = ()

    @classmethod
    def about(cls, figures: Iterable[str], why: str) -> Note:
        """Return the note that says `why` of these figures."""
        names = tuple(figures)
        note = cls(f"{', '.join(names)}: {why}")
        note.figures = names
        return note

    @classmethod
    def read(cls, text: str) -> Note:
        """Return the note that was written as this text.

        Of figures that another version of shrink names, it has those that this one knows, too.
        """
        note, names = cls(text), text.partition(": ")[0].split(", ")
        if ": " in text and all(map(_NAME.fullmatch, names)):
            note.figures = tuple(n for n in names if n in FIGURES or n == LOSS or is_known_name(n))
        return note

    @property
    def why(self) -> str:
        """The sentence without the names of its figures."""
        return self.partition(": ")[2] if self.figures else str(self)

    @property
    def is_expected(self) -> bool:
        """Whether no such stage has these figures: it trains nothing, or keeps within no limit."""
        return bool(self.figures) and self.why.startswith(_EXPECTED)


def figure_values(figures: Mapping[str, Measured[T]]) -> dict[str, T | None]:
    """Return the values of figures, without why some are None."""
    return {name: figure.value for name, figure in figures.items()}


def reasons(figures: Mapping[str, Measured[object]]) -> list[Note]:
    """Return what there is to say of figures, once for those in a row that have one reason."""
    groups = itertools.groupby(figures.items(), key=lambda item: item[1].reason)
    return [Note.about((name for name, _ in found), why) for why, found in groups if why]
