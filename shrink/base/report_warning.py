"""A warning that a report carries: something is likely wrong, although the run went through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

MAY_HAVE_BEEN_TRAINED_ON = "test-examples-may-have-been-trained-on"
"""The code of the one warning that other sentences of a report depend on."""

_GRAVEST = (
    "baseline-at-chance",
    "stage-at-chance",
    "large-drop",
    "outputs-lost",
    "artifact-larger-than-source",
)
"""Codes of what makes a result useless, above all that only limits what is known of it."""


@dataclass(frozen=True)
class ReportWarning:
    """What stands in report.json under `warnings`, on top of every rendering, and on stderr.

    Attributes:
        code: what kind it is, in kebab case, such as `baseline-at-chance`.
        message: what was seen, with its figures and the likely cause.
        hint: what to do about it, such as a command; None where there is nothing to say.
        stage: the stage that it is about; None for the whole run.
    """

    code: str
    message: str
    hint: str | None = None
    stage: str | None = None

    def to_dict(self) -> dict[str, str | None]:
        """Return the warning as plain data."""
        return asdict(self)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> ReportWarning:
        """Return the warning that `to_dict` made plain."""
        hint, stage = value.get("hint"), value.get("stage")
        return cls(
            str(value.get("code", "")),
            str(value.get("message", "")),
            None if hint is None else str(hint),
            None if stage is None else str(stage),
        )

    def text(self) -> str:
        """Return the warning in one line, with its stage and its hint."""
        where = "" if self.stage is None else f"{self.stage}: "
        what = "" if self.hint is None else f" (hint: {self.hint})"
        return f"{where}{self.message}{what}"


def distinct(found: Iterable[ReportWarning]) -> list[ReportWarning]:
    """Return each warning once, in order."""
    return list(dict.fromkeys(found))


def gravest_first(found: Iterable[ReportWarning]) -> list[ReportWarning]:
    """Return each warning once: those that make a result useless, then the others, in order."""
    rank = {code: place for place, code in enumerate(_GRAVEST)}
    return sorted(distinct(found), key=lambda warning: rank.get(warning.code, len(rank)))
