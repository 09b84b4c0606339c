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

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from shrink.base.foreign import JsonObject


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

    Attributes:
        folder: the run folder with the report, where it ended a run that Python code asked for.
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
        self.folder: Path | None = None

    def __str__(self) -> str:
        where = self.position or self.subject
        text = f"{where}: {self.message}" if where else self.message
        return f"{text}\n  hint: {self.hint}" if self.hint else text

    def to_dict(self) -> JsonObject:
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
    def from_dict(data: JsonObject) -> ShrinkError:
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
    """A stage ran and failed, or changed nothing."""

    exit_code = 4


class ConversionError(StageError):
    """The TFLite converter refused the model; the stage's log has its words."""


class ResourceError(ShrinkError):
    """The environment lacks memory, disk space or a package."""

    exit_code = 5


class InternalError(ShrinkError):
    """A bug in shrink."""

    exit_code = 70


class Interrupted(ShrinkError):
    """The user pressed Ctrl-C (SIGINT)."""

    exit_code = 130


class Terminated(ShrinkError):
    """The process received SIGTERM."""

    exit_code = 143


def first_line(error: Exception, most: int = 300) -> str:
    """Return the first line of an error's text, at most so many characters; empty without text."""
    return "".join(str(error).strip().splitlines()[:1])[:most]


_ABOVE: tuple[type[ShrinkError], ...] = (ShrinkError, InputError, StageError)
_BY_NAME: dict[str, type[ShrinkError]] = {
    cls.__name__: cls for above in _ABOVE for cls in (above, *above.__subclasses__())
}


_LONGEST_WORD = 100
_MOST_LISTED = 12


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate nearest to `word`, or None where none is near.

    Case does not count, and underscores and hyphens are equal. The measure is difflib's ratio
    (Ratcliff & Obershelp 1988), at least 0.6.
    """
    # Imported late: difflib costs every command 10 ms, and only mistakes need it.
    from difflib import get_close_matches

    if len(word) > _LONGEST_WORD:  # its time is quadratic, and no known word is as long
        return None
    known: dict[str, str] = {}
    for candidate in candidates:
        known.setdefault(_folded(candidate), candidate)
    near = get_close_matches(_folded(word), known, n=1)
    return known[near[0]] if near else None


def near_file(name: str, beside: Iterable[str]) -> str | None:
    """Return the file that `name` is likely meant for, or None where none is near.

    Endings do not count, by which any two model files look alike; between files that differ in
    nothing else they decide.
    """
    by_stem: dict[str, list[str]] = {}
    for one in beside:
        by_stem.setdefault(_stem(one), []).append(one)
    stem = did_you_mean(_stem(name), by_stem)
    if stem is None:
        return None
    return did_you_mean(name, by_stem[stem]) or by_stem[stem][0]


def _stem(name: str) -> str:
    return name.rpartition(".")[0] or name


def hint_for(word: str, candidates: Iterable[str]) -> str:
    """Return `did you mean X?`, or what there is to choose from; empty if there is nothing."""
    names = list(dict.fromkeys(candidates))
    near = did_you_mean(word, names)
    if near is not None:
        return f"did you mean {near}?"
    if not names:
        return ""
    return f"choose one of {listed(sorted(names), _MOST_LISTED)}"


def listed(names: Sequence[str], most: int) -> str:
    """Return the first names as one text, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def _folded(word: str) -> str:
    return word.casefold().replace("_", "-")


VALIDATION_FIGURES = "validation-figures"
"""The code of the warning that a report's metrics are of validation examples."""
MAY_HAVE_BEEN_TRAINED_ON = "test-examples-may-have-been-trained-on"
OVERLAP = "split-overlap"
"""The codes of warnings that other sentences of a report depend on."""

_GRAVEST = (
    "baseline-at-chance",
    "stage-at-chance",
    "large-drop",
    "coarse-operators",
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
