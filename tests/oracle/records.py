"""What was compared: each figure with both values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Record:
    """One figure of a report beside the oracle's.

    Attributes:
        where: the run and the stage.
        figure: its name, as a path in the report.
        reported: what the report says.
        expected: what the oracle computed, or the pair that the value has to lie between.
        agrees: whether the two are the same within what the method allows.
        note: why it does not agree, or how it was compared.
    """

    where: str
    figure: str
    reported: Any
    expected: Any
    agrees: bool
    note: str = ""

    def __str__(self) -> str:
        said = f"{self.where} {self.figure}: reported {self.reported}, oracle {self.expected}"
        return f"{said} ({self.note})" if self.note else said


@dataclass
class Ledger:
    """All records of a run."""

    where: str
    records: list[Record] = field(default_factory=list)

    def add(
        self, figure: str, reported: Any, expected: Any, agrees: bool, note: str = "", at: str = ""
    ) -> None:
        """Write down one comparison; `at` is the stage."""
        place = f"{self.where}/{at}" if at else self.where
        self.records.append(Record(place, figure, reported, expected, bool(agrees), note))

    def same(
        self,
        figure: str,
        reported: Any,
        expected: Any,
        *,
        relative: float = 0.0,
        absolute: float = 0.0,
        at: str = "",
        note: str = "",
    ) -> None:
        """Compare two values; numbers within a tolerance, anything else (None too) exactly."""
        numbers = all(
            isinstance(v, int | float) and not isinstance(v, bool) for v in (reported, expected)
        )
        agrees = reported == expected
        if numbers and not agrees:
            agrees = math.isclose(reported, expected, rel_tol=relative, abs_tol=absolute)
        self.add(figure, reported, expected, agrees, note, at)

    def between(
        self, figure: str, reported: float | None, low: float, high: float, *, at: str = ""
    ) -> None:
        """Compare a value with the range that rounding leaves open."""
        inside = reported is not None and low - 1e-9 <= reported <= high + 1e-9
        expected = low if low == high else (low, high)
        self.add(figure, reported, expected, inside, at=at)

    @property
    def disagreements(self) -> list[Record]:
        """Records where report and oracle differ."""
        return [r for r in self.records if not r.agrees]


def summary(records: Iterable[Record]) -> str:
    """Return how many figures were compared and a line for each that differs."""
    found = list(records)
    wrong = [r for r in found if not r.agrees]
    kinds = Counter(r.figure.split("[")[0].split(".")[0] for r in found)
    counted = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
    lines = [f"{len(found)} figures compared ({counted}); {len(wrong)} disagreements"]
    return "\n".join([*lines, *(f"  {r}" for r in wrong)])
