"""Choices that a stage made automatically, with the alternatives that it tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from shrink.contract.record import record


@record
class Option:
    """A value that a key could have had.

    Attributes:
        value: as a recipe would say it.
        figures: what was measured of it, by name; the unit is in the name. Empty where it was not
            tried.
    """

    value: str = "?"
    figures: Mapping[str, float] = field(default_factory=dict)


@record
class Choice:
    """A key of the recipe that was `auto`, what it became, and why.

    Attributes:
        key: as in a recipe, of this stage.
        value: what was taken.
        why: in words.
        options: what was measured, what was taken among them; none where a rule decides.
    """

    key: str = "?"
    value: str = "?"
    why: str = ""
    options: tuple[Option, ...] = ()

    @property
    def sentence(self) -> str:
        """It as a sentence, with the figures of what it was chosen over."""
        measured = []
        for one in self.options:
            figures = (
                f"{name} {value:,.0f}" if abs(value) >= 1000 else f"{name} {value:.4g}"
                for name, value in one.figures.items()
            )
            measured += [f"{one.value} {', '.join(figures)}"] if one.figures else []
        compared = f" ({'; '.join(measured)})" if measured else ""
        return f"{self.key}: {self.value}, chosen automatically: {self.why}{compared}"
