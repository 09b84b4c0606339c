"""What is going on, and the one line of it on a terminal: steady columns, and a clock that runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shrink.base.figures import LOSS

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType


@dataclass(frozen=True)
class Phase:
    """A part of the work begins, of which no share is known."""

    name: str


@dataclass(frozen=True)
class Share:
    """So much of something counted is done."""

    name: str
    done: int
    total: int


@dataclass(frozen=True)
class Progress:
    """How far a training is; epochs and steps count from 1.

    Attributes:
        epoch: that is under way, or at its end.
        epochs: of the run.
        step: that was made last.
        steps: of an epoch.
        examples_per_s: None before the second step.
        metrics: of the epoch so far, with the loss.
        epoch_end: whether the epoch is complete; metrics of the validation split are there then.
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    examples_per_s: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    epoch_end: bool = False


@dataclass(frozen=True)
class Printed:
    """Lines that the worker and its libraries printed, into its log."""

    lines: tuple[str, ...]


Activity = Phase | Share | Progress | Printed


_LEAST_BAR, _LONGEST_BAR = 10, 30
_LEAST_LABEL = 12
_LEAST_METRIC = 10
_VALUE_WIDTH = 6
_VALIDATION = "val_"
_LEAST_WITH_RUN = 79
_RUN_WIDTH = len("ETA 00:00 run 00:00")
_HOURS_AS_DAYS = 72
_PULSE = 3
_PULSES_PER_S = 2


class ProgressLine:
    """What is going on, as one line: stage, bar, epoch, main metric, and the time.

    The time is what is left while a share of the work is known to be done, and otherwise how long
    this part has taken so far.

    Args:
        label: the stage with its number, such as `[1/4] train`.
        clock: seconds that only rise.
        later_s: seconds that the stages after this one are expected to take; None: not known.
    """

    def __init__(
        self,
        label: str,
        clock: Callable[[], float] = time.monotonic,
        later_s: float | None = None,
    ) -> None:
        self._label = label
        self._clock = clock
        self._later_s = later_s
        self._metrics: dict[str, float] = {}
        self._awaits_validation = True
        self._begin("starting", len("starting"))

    def _begin(self, activity: str, width: int) -> None:
        """Begin another part of the work, whose activity takes `width` columns at most."""
        self._activity, self._width = activity, width
        self._since = self._clock()
        self._first: tuple[float, float] | None = None
        self._share: float | None = None

    def show(self, activity: Phase | Share | Progress) -> None:
        """Show a part without a share, how much of something is done, or a training's epoch."""
        if isinstance(activity, Phase):
            self._metrics = {}
            self._begin(activity.name, len(activity.name))
        elif isinstance(activity, Share):
            name, done, total = activity.name, activity.done, activity.total
            width = len(f"{name} {total:,}/{total:,}")
            self._advance(f"{name} {done:,}/{total:,}", width, done / max(total, 1))
        else:
            self._training(activity)

    def _training(self, progress: Progress) -> None:
        epochs, steps = progress.epochs, progress.steps
        self._metrics |= progress.metrics
        if progress.epoch_end or (progress.epoch, progress.step) == (1, 1):
            self._awaits_validation = not progress.epoch_end
        share = ((progress.epoch - 1) * steps + progress.step) / max(epochs * steps, 1)
        width = len(f"epoch {epochs}/{epochs}")
        self._advance(f"epoch {progress.epoch}/{epochs}", width, share)

    def _advance(self, activity: str, width: int, share: float) -> None:
        if self._share is None or width != self._width or share < self._share:
            self._begin(activity, width)
            self._first = (self._clock(), share)
        self._activity, self._share = activity, min(share, 1.0)

    def text(self, width: int, drawn: bool = True) -> str:
        """Return the line, of at most `width` columns.

        Args:
            width: of the terminal, in columns.
            drawn: whether the bar may be drawn with characters beyond ASCII.
        """
        with_run = width >= _LEAST_WITH_RUN and bool(self._later_s)
        clock = self._time(with_run=with_run).ljust(_RUN_WIDTH if with_run else 0)
        fixed = len(clock) + _LEAST_BAR + 3
        room = width - fixed - self._width
        label = _shortened(self._label, max(_LEAST_LABEL, min(len(self._label), room)), drawn)
        metrics = self._metric_texts(room - len(label), drawn)
        used = fixed + self._width + len(label) + sum(len(text) + 1 for text in metrics)
        bar = self._bar(min(_LEAST_BAR + max(0, width - used), _LONGEST_BAR), drawn)
        parts = [label, bar, self._activity.ljust(self._width), *metrics, clock]
        return " ".join(parts)[:width]

    def _metric_texts(self, room: int, drawn: bool) -> list[str]:
        """Return the main metric, and that of the validation split where there is room.

        Until the first epoch ends the second is blank, so that nothing moves when it comes.
        """
        own = [name for name in self._metrics if not name.startswith(_VALIDATION)]
        name = next((n for n in own if n != LOSS), LOSS if own else None)
        found: list[str] = []
        for shown in (name, f"{_VALIDATION}{name}"):
            value = self._metrics.get(shown or "")
            left = room - sum(len(text) + 1 for text in found) - 1
            is_awaited = bool(found) and value is None and self._awaits_validation
            if (value is None and not is_awaited) or shown is None or left < _LEAST_METRIC:
                break
            name_room = left - _VALUE_WIDTH - 1
            if found and name_room < len(shown):
                break
            short = _shortened(shown, name_room, drawn)
            blank = " " * (len(short) + 1 + _VALUE_WIDTH)
            found.append(blank if value is None else f"{short} {_number(value)}")
        return found

    def _time(self, *, with_run: bool) -> str:
        """Return the time left for the stage, and for the run where there is room."""
        now = self._clock()
        if self._first is None or self._share is None:
            return _duration(now - self._since).rjust(len("ETA 00:00"))
        began, share = self._first
        if self._share <= share:
            return "ETA  -:--"
        rate = (self._share - share) / max(now - began, 1e-9)
        left = (1 - self._share) / rate
        stage = f"ETA {_duration(left).rjust(5)}"
        return (
            f"{stage} run {_duration(left + (self._later_s or 0)).rjust(5)}" if with_run else stage
        )

    def _bar(self, width: int, drawn: bool) -> str:
        full, empty = ("━", "─") if drawn else ("#", "-")
        if self._share is not None:
            done = int(width * self._share)
            return full * done + empty * (width - done)
        steps = width - _PULSE
        turn = int((self._clock() - self._since) * _PULSES_PER_S) % (2 * steps)
        at = turn if turn <= steps else 2 * steps - turn
        return empty * at + full * _PULSE + empty * (steps - at)

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Yield the line for a terminal as wide as it is now."""
        from rich.text import Text

        # A line that fills the last column makes some terminals go to the next one.
        drawn = console.encoding.lower().startswith("utf")
        yield Text(self.text(options.max_width - 1, drawn), no_wrap=True, end="")


@dataclass(frozen=True)
class UnderLine:
    """Progress under a line that says what it is a part of.

    Attributes:
        above: returns that line, asked each time it is drawn.
        progress: the line below.
    """

    above: Callable[[], str]
    progress: ProgressLine

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Yield both lines for a terminal as wide as it is now."""
        from rich.text import Text

        drawn = console.encoding.lower().startswith("utf")
        yield Text(_shortened(self.above(), options.max_width - 1, drawn), no_wrap=True)
        yield self.progress


def _shortened(text: str, width: int, drawn: bool) -> str:
    if len(text) <= width:
        return text
    return f"{text[: width - 1]}…" if drawn else text[:width]


def _number(value: float) -> str:
    """Return a number in six columns, or more where it is large or tiny."""
    size = abs(value)
    text = f"{value:.4f}" if 0.001 <= size < 10 or value == 0 else f"{value:.3g}"
    return text[:_VALUE_WIDTH].ljust(_VALUE_WIDTH) if "e" not in text else text


def _duration(seconds: float) -> str:
    """Return a time of at most five columns: 0:17, 59:59, 1h05, 23h59, 4d."""
    whole = max(0, int(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours >= _HOURS_AS_DAYS:
        return f"{hours // 24}d"
    return f"{hours}h{minutes:02d}" if hours else f"{minutes}:{whole % 60:02d}"
