"""Every error that shrink raises on purpose, and the exit code that each one means.

ShrinkError
├── RecipeError        2   the recipe or the flags: unknown key, wrong unit, illegal order
├── InputError         3   a named input: missing, unreadable, refused, or not matching
│   ├── ModelError     3
│   └── DataError      3
├── StageError         4   a stage failed: NaN loss, unsupported operator, nothing changed
│   └── ConversionError 4  the TFLite converter refused the model; the log has all of its words
├── ResourceError      5   the environment: memory past recovery, disk full, missing extra
├── InternalError      70  a bug in shrink
├── Interrupted        130 SIGINT
└── Terminated         143 SIGTERM

Exit code 1 is no error: the run is complete, its report is written, and a gate was missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar


@dataclass(frozen=True)
class Position:
    """Where in a text file something stands; line and column count from 1, 0 means nowhere."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class ShrinkError(Exception):
    """An error that a user can act on.

    Args:
        message: what went wrong and why, one sentence.
        position: where in a recipe, when there is such a place.
        subject: the file, layer, stage or key it is about.
        hint: the next thing to do, ideally a command.
    """

    exit_code: ClassVar[int] = 70

    def __init__(
        self,
        message: str,
        *,
        position: Position | None = None,
        subject: str | Path | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.subject = None if subject is None else str(subject)
        self.hint = hint

    def __str__(self) -> str:
        where = self.position or self.subject
        text = f"{where}: {self.message}" if where else self.message
        return f"{text}\n  hint: {self.hint}" if self.hint else text

    def to_dict(self) -> dict[str, Any]:
        """Return the error as plain data, to cross a process boundary or to be printed as JSON."""
        return {
            "type": type(self).__name__,
            "exit_code": self.exit_code,
            "message": self.message,
            "position": asdict(self.position) if self.position else None,
            "subject": self.subject,
            "hint": self.hint,
        }

    @staticmethod
    def from_dict(data: dict[str, Any]) -> ShrinkError:
        """Rebuild an error from `to_dict`; an unknown type becomes an `InternalError`."""
        cls = _BY_NAME.get(data.get("type", ""), InternalError)
        position = Position(**data["position"]) if data.get("position") else None
        return cls(
            str(data.get("message", "")),
            position=position,
            subject=data.get("subject"),
            hint=data.get("hint"),
        )


class RecipeError(ShrinkError):
    """The recipe or the flags are wrong; `others` are further problems of the same recipe."""

    exit_code = 2
    others: tuple[RecipeError, ...] = ()


def together(problems: Sequence[RecipeError]) -> RecipeError:
    """Return several problems as one error that names each of them once, in order."""
    each = {id(one): one for problem in problems for one in (problem, *problem.others)}
    first, *others = each.values()
    first.others = tuple(others)
    return first


class InputError(ShrinkError):
    """A named model or data set is missing, unreadable, refused, or does not match."""

    exit_code = 3


class ModelError(InputError):
    """A model cannot be used."""


class DataError(InputError):
    """A data set cannot be used."""


class StageError(ShrinkError):
    """A stage ran and failed, or was asked to change the model and changed nothing."""

    exit_code = 4


class ConversionError(StageError):
    """The TFLite converter refused a model in more words than a message holds: they are logged."""


class ResourceError(ShrinkError):
    """The environment gave out: memory past recovery, disk full, a missing extra."""

    exit_code = 5


class InternalError(ShrinkError):
    """A bug in shrink."""

    exit_code = 70


class Interrupted(ShrinkError):
    """The user pressed Ctrl-C (SIGINT)."""

    exit_code = 130


class Terminated(ShrinkError):
    """Somebody asked the process to end (SIGTERM)."""

    exit_code = 143


def first_line(error: Exception, most: int = 300) -> str:
    """Return the first line of an error's text, at most so many characters; empty without text."""
    return "".join(str(error).strip().splitlines()[:1])[:most]


_BY_NAME: dict[str, type[ShrinkError]] = {
    cls.__name__: cls
    for cls in (
        RecipeError,
        InputError,
        ModelError,
        DataError,
        StageError,
        ConversionError,
        ResourceError,
        InternalError,
        Interrupted,
        Terminated,
    )
}
