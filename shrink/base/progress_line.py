"""The line of progress on a terminal: stage, bar, epoch, main metric, and the time left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rich.console import Console, RenderableType
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from shrink.base.figures import LOSS
from shrink.base.progress import Phase, Progress, Share


class ProgressLine(Bars):
    """One line of a stage, which goes when it is stopped.

    Args:
        console: a terminal.
        label: the stage with its number, such as `[1/4] train`.
        above: returns a line to stand above; None for no such line.
    """

    def __init__(
        self,
        console: Console,
        label: str,
        above: Callable[[], str] | None = None,
    ) -> None:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[part]}{task.fields[metrics]}", markup=False),
            TimeLeft(Column(no_wrap=True)),
        )
        self._above = above  # read by `get_renderables` at once
        super().__init__(*columns, console=console, transient=True, refresh_per_second=5)
        self._line = self.add_task(label, total=None, part="starting", metrics="")

    def show(self, activity: Phase | Share | Progress) -> None:
        """Show a part without a share, how much of something is done, or a training's epoch."""
        (task,) = self.tasks
        if isinstance(activity, Phase):
            self.reset(self._line, total=None, part=activity.name, metrics="")
            return
        if isinstance(activity, Share):
            total, done, metrics = activity.total, activity.done, task.fields["metrics"]
            part = f"{activity.name} {done:,}/{total:,}"
        else:
            steps, part = activity.steps, f"epoch {activity.epoch}/{activity.epochs}"
            total, done = activity.epochs * steps, (activity.epoch - 1) * steps + activity.step
            metrics = _metrics(activity.metrics) or task.fields["metrics"]
        if task.total != total or done < task.completed:
            self.reset(self._line, total=total, completed=done)
        self.update(self._line, completed=done, part=part, metrics=metrics)

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the lines as they are drawn."""
        if self._above is not None:
            yield Text(self._above(), no_wrap=True, overflow="ellipsis")
        yield self.make_tasks_table(self.tasks)


class TimeLeft(ProgressColumn):
    """The time left for the stage; how long a part of unknown length has taken."""

    def render(self, task: Task) -> Text:
        """Return the text of the column."""
        if task.total is None:
            return Text(duration(task.elapsed or 0))
        left = task.time_remaining
        return Text("ETA -:--" if left is None else f"ETA {duration(left)}")


def _metrics(values: Mapping[str, float]) -> str:
    """Return the main metric, and that of the validation split."""
    name = next((n for n in values if n != LOSS and not n.startswith("val_")), LOSS)
    shown = [one for one in (name, f"val_{name}") if one in values]
    return "".join(f" {one} {values[one]:.4g}" for one in shown)


def duration(seconds: float) -> str:
    """Return a time of at most five columns: 0:17, 59:59, 1h05, 23h59, 4d."""
    whole = max(0, int(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours >= 72:
        return f"{hours // 24}d"
    return f"{hours}h{minutes:02d}" if hours else f"{minutes}:{whole % 60:02d}"
