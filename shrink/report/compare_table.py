"""The table of compared runs, and what is said of them in words, for every rendering."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from shrink.base.figures import (
    COSTS,
    DURATION,
    Figure,
    figure_of,
    format_change,
    format_ratio,
    metric_figure,
)
from shrink.base.settings import SEED
from shrink.contract.comparison import (
    ComparedRow,
    Comparison,
    Front,
    RepeatedRow,
    RowStatus,
    Spread,
)
from shrink.contract.details import FigureDelta
from shrink.report.content import NULL, Table, figure_head, metric_head
from shrink.report.deltas import change_texts
from shrink.report.fronts import change_of, single_rows

STATUS: dict[RowStatus, str] = {
    "passed": "PASSED",
    "missed": "GATE MISSED",
    "finished": "FINISHED",
    "failed": "FAILED",
    "stopped": "STOPPED",
    "not run": "NOT RUN",
}
"""The outcomes in words, the worst last."""
_BEST = "★ "
"""What the name of the chosen row begins with."""
_SEEDS = "- "
"""What the runs of a combination begin with, below it."""
AnyRow = ComparedRow | RepeatedRow
Cell = Callable[[AnyRow], str]


@dataclass(frozen=True)
class ComparedRun:
    """A run, whatever its branches: one or more rows of a comparison.

    Attributes:
        rows: one for each branch.
    """

    rows: tuple[ComparedRow, ...]

    @property
    def name(self) -> str:
        """What it is called, without its branches."""
        first = self.rows[0]
        return first.name.removesuffix(f" / {first.stage}") if self.rows[1:] else first.name

    @property
    def place(self) -> str:
        """Its folder, as compare.json names it."""
        return self.rows[0].run

    @property
    def settings(self) -> Mapping[str, str]:
        """What was set of it, or what differs."""
        return self.rows[0].settings

    @property
    def status(self) -> RowStatus:
        """The worst of its branches'."""
        return max((row.status for row in self.rows), key=list(STATUS).index)

    @property
    def has_report(self) -> bool:
        """Whether there is a page of its own."""
        return self.rows[0].stage is not None


def runs_of(found: Comparison) -> list[ComparedRun]:
    """Return the runs in the order of their rows."""
    rows: dict[str, list[ComparedRow]] = {}
    for row in found.rows:
        rows.setdefault(row.run, []).append(row)
    return [ComparedRun(tuple(one)) for one in rows.values()]


def comparison_table(found: Comparison) -> Table:
    """Return the table: a row for each branch; with repeats one for each combination, runs below.

    Columns without a value are left out.
    """
    columns = list(_columns(found))
    rows = list(ordered_rows(found))
    cells = [[cell(row) for row in rows] for _, cell in columns]
    kept = [n for n, column in enumerate(cells) if n == 0 or set(column) - {NULL, ""}]
    heads = tuple(columns[n][0] for n in kept)
    return Table(heads, tuple(zip(*(cells[n] for n in kept), strict=True)))


def ordered_rows(found: Comparison) -> Iterator[AnyRow]:
    """Yield the rows as they are shown: each combination before its runs."""
    by_name = {row.name: row for row in found.rows}
    shown: set[str] = set()
    for group in found.repeats:
        yield group
        yield from (by_name[name] for name in group.rows if name not in shown)
        shown |= {*group.rows}
    yield from (row for row in found.rows if row.name not in shown)


def _head(found: Comparison) -> str:
    return "settings" if found.sweep else "run"


def _columns(found: Comparison) -> Iterator[tuple[str, Cell]]:
    yield _head(found), lambda row: row_name(found, row)
    yield "outcome", _outcome
    if (name := found.metric) is not None:
        unit = "points" if metric_figure(name).unit == "fraction" else "change"
        yield metric_head(name), _metric_cell(name)
        yield f"{unit} [95 %]", _change_cell(name)
    for cost in COSTS:
        yield figure_head(cost), _figure_cell(cost)
        if cost == "tflite_bytes":
            yield "ratio", _ratio_cell(cost)
    others = (n for row in found.rows for n in row.figures if figure_of(n).group == "metrics")
    for name in dict.fromkeys(others):
        if name not in (found.metric, DURATION):
            yield metric_head(name), _figure_cell(name)


def row_name(found: Comparison, row: AnyRow) -> str:
    """Return what a row is called: a repeat by its seed, below its combination."""
    if isinstance(row, ComparedRow) and found.repeats and row.combination is not None:
        seed = row.settings.get(SEED)
        if seed is not None:
            return f"{_SEEDS}{SEED} = {seed}"
    return f"{_BEST}{row.name}" if row.name == found.best else row.name


def _outcome(row: AnyRow) -> str:
    if isinstance(row, RepeatedRow):
        runs = max((spread.runs for spread in row.figures.values()), default=0)
        return f"{runs} of {len(row.rows)} runs"
    return STATUS[row.status]


def _figure_cell(name: str) -> Cell:
    figure = figure_of(name)

    def cell(row: AnyRow) -> str:
        if isinstance(row, RepeatedRow):
            return spread_text(figure, row.figures.get(name))
        return figure.text(row.figures.get(name))

    return cell


def _metric_cell(name: str) -> Cell:
    figure, plain = figure_of(name), _figure_cell(name)
    scale = 100 if figure.unit == "fraction" else 1

    def cell(row: AnyRow) -> str:
        spread = row.figures.get(name) if isinstance(row, RepeatedRow) else None
        if not isinstance(spread, Spread) or spread.low is None or spread.high is None:
            return plain(row)
        return f"{plain(row)} [{scale * spread.low:.4g}, {scale * spread.high:.4g}]"

    return cell


def spread_text(figure: Figure, spread: Spread | None) -> str:
    """Return a mean with its standard deviation: `97.20 % ± 0.31`."""
    if spread is None:
        return NULL
    mean = figure.text(spread.mean)
    if not spread.deviation:
        return mean
    return f"{mean} ± {_unsigned(spread.deviation, figure)}"


def _unsigned(value: float, figure: Figure) -> str:
    return format_change(value, figure.unit).lstrip("+")


def _change_cell(name: str) -> Cell:
    figure = metric_figure(name)
    is_fraction = figure.unit == "fraction"

    def number(value: float, decimals: int) -> str:
        return f"{100 * value:+.{decimals}f}" if is_fraction else f"{value:+.3g}"

    def cell(row: AnyRow) -> str:
        if isinstance(row, RepeatedRow):
            spread = row.delta.get(name)
            change = None if spread is None else (spread.mean, spread.low, spread.high)
        else:
            if row.stage is not None and row.stage == row.baseline:
                return "baseline"
            delta = change_of(row, name)
            change = None if delta is None else (delta.value, delta.low, delta.high)
        if change is None:
            return NULL
        value, low, high = change
        if low is None or high is None:
            return number(value, 2)
        return f"{number(value, 2)} [{number(low, 1)}, {number(high, 1)}]"

    return cell


def _ratio_cell(name: str) -> Cell:
    def cell(row: AnyRow) -> str:
        if isinstance(row, RepeatedRow):
            return NULL
        delta = row.delta.get(name)
        return format_ratio(delta.ratio) if isinstance(delta, FigureDelta) else NULL

    return cell


def delta_table(found: Comparison) -> Table:
    """Return every difference of every row to its run's baseline."""
    rows = [row for row in ordered_rows(found) if isinstance(row, ComparedRow) and row.delta]
    names = list(dict.fromkeys(name for row in rows for name in row.delta))
    kept = [name for name in names if any(_delta_text(row, name) != NULL for row in rows)]
    cells = ((row.name, *(_delta_text(row, name) for name in kept)) for row in rows)
    return Table((_head(found), *kept), tuple(cells))


def _delta_text(row: ComparedRow, name: str) -> str:
    delta, unit = row.delta.get(name), figure_of(name).unit
    if delta is None or row.stage == row.baseline:
        return NULL
    if isinstance(delta, FigureDelta):
        ratio = "" if delta.ratio is None else f" ({format_ratio(delta.ratio)})"
        return format_change(delta.value, unit) + ratio
    text, limits = change_texts(name, delta)
    return f"{text} [{limits}]" if limits else text


def settings_table(found: Comparison) -> Table:
    """Return a row for each setting that differs, and a column for each run."""
    runs = runs_of(found)
    rows = ((key, *(one.settings.get(key, NULL) for one in runs)) for key in found.setting_names)
    return Table(("setting", *(one.name for one in runs)), tuple(rows))


def caption_of(found: Comparison) -> str:
    """Return what the table's numbers mean."""
    examples = {row.examples for row in found.rows} - {None}
    baselines = {row.baseline for row in found.rows} - {None}
    on = f" on {found.split} examples"
    if len(examples) == 1:
        on = f" on {examples.pop():,} {found.split} examples"
    base = baselines.pop() if len(baselines) == 1 else "baseline"
    texts = [f"{found.metric}{on}"] if found.metric else []
    if found.repeat:
        texts.append(
            "mean ± standard deviation over seeds [95 % interval of the mean by Student's t over "
            f"the runs], the change against {base} likewise; below, each run's own 95 % interval "
            f"on the {found.split} examples"
        )
    else:
        texts.append(f"change with its 95 % interval, and ratio, against each run's own {base}")
    if found.best is not None:
        texts.append(f"{_BEST.strip()} is the best")
    return "; ".join(texts)


def front_sentence(found: Comparison, front: Front) -> str:
    """Return which rows are on a front, in words."""
    singles = single_rows(found.rows, found.repeats)
    is_all = len(front.rows) == len(found.repeats) + len(singles)
    names = "all of them" if is_all and len(front.rows) > 1 else "; ".join(front.rows)
    return (
        f"On the Pareto front of {front.y} against {front.x}, where nothing is better in one and "
        f"no worse in the other: {names}."
    )


def failures_of(found: Comparison) -> list[tuple[str, str, str]]:
    """Return name, reason and hint of every row that failed, was stopped or never ran."""
    told = []
    for row in found.rows:
        if row.status == "missed":
            told.append((row.name, f"missed: {', '.join(row.gates_missed)}", ""))
        elif row.error is not None:
            first = (row.error.message or "no reason was recorded").partition("\n")[0]
            told.append((row.name, f"{STATUS[row.status].lower()}: {first}", row.error.hint or ""))
        elif row.status in ("failed", "stopped", "not run"):
            told.append((row.name, STATUS[row.status].lower(), ""))
    return told


def summary_of(found: Comparison) -> str:
    """Return how many runs ended in which way: `2 passed, 1 missed a gate`."""
    statuses = [one.status for one in runs_of(found)]
    counts = {name: statuses.count(name) for name in STATUS}
    words = {"missed": "missed a gate"}
    return ", ".join(f"{n} {words.get(name, name)}" for name, n in counts.items() if n)
