"""A comparison of runs as files and texts: its table, Markdown, page, and what a terminal shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from shrink.base import files
from shrink.base.errors import RecipeError
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
from shrink.contract.codec import ContractError, from_plain, to_plain
from shrink.contract.comparison import (
    COMPARE_NAME,
    ComparedRow,
    Comparison,
    Front,
    RepeatedRow,
    RowStatus,
    Spread,
)
from shrink.contract.details import FigureDelta, MetricDelta
from shrink.report.compared import AnyRow, shown_rows
from shrink.report.content import NULL, Table, figure_head, metric_head, short_change
from shrink.report.deltas import change_texts
from shrink.report.slices import compared_slices_table
from shrink.report.text import Printer, escape, table

if TYPE_CHECKING:
    from rich.console import Console

MARKDOWN_NAME = "compare.md"
HTML_NAME = "compare.html"
COMPARE_NAMES = (MARKDOWN_NAME, HTML_NAME, COMPARE_NAME)
STATUS: dict[RowStatus, str] = {
    "passed": "PASSED",
    "missed": "GATE MISSED",
    "finished": "FINISHED",
    "failed": "FAILED",
    "stopped": "STOPPED",
    "not run": "NOT RUN",
}
"""The outcomes for people, the worst last."""
_TONES = {"passed": "pass", "missed": "fail", "failed": "fail", "stopped": "warn"}
_BEST = "★ "
"""What the name of the chosen row begins with."""
_SEEDS = "- "
"""What the runs of a combination begin with, below it."""
_LONGEST_SETTINGS = 60
_MOST_SLICES = 20
_MOST_COLUMNS = 9
"""As many as fit beside each other on a page; the others can be opened."""
Cell = Callable[[AnyRow], str]


@dataclass(frozen=True)
class ComparedRun:
    """A run, with a row for each of its branches."""

    rows: tuple[ComparedRow, ...]

    @property
    def name(self) -> str:
        """What it is called, without its branches."""
        first = self.rows[0]
        return first.name.removesuffix(f" / {first.stage}") if self.rows[1:] else first.name

    @property
    def status(self) -> RowStatus:
        """The worst of its branches'."""
        return max((row.status for row in self.rows), key=list(STATUS).index)


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
    columns, rows = list(_columns(found)), list(ordered_rows(found))
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
    yield _head(found), lambda row: _row_name(found, row)
    yield "outcome", _outcome
    if (name := found.metric) is not None:
        unit = "points" if metric_figure(name).unit == "fraction" else "change"
        yield metric_head(name), lambda row: _figure_text(row, name, interval=True)
        yield f"{unit} [95 %]", lambda row: _change_text(row, name)
    for cost in COSTS:
        yield figure_head(cost), _figure_cell(cost)
        if cost == "tflite_bytes":
            yield "ratio", _ratio_text
    others = (n for row in found.rows for n in row.figures if figure_of(n).group == "metrics")
    for other in dict.fromkeys(others):
        if other not in (found.metric, DURATION):
            yield metric_head(other), _figure_cell(other)


def _row_name(found: Comparison, row: AnyRow) -> str:
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
    return lambda row: _figure_text(row, name)


def _figure_text(row: AnyRow, name: str, *, interval: bool = False) -> str:
    figure, value = figure_of(name), row.figures.get(name)
    if not isinstance(value, Spread):
        return figure.text(value)
    text = spread_text(figure, value)
    if not interval or value.low is None or value.high is None:
        return text
    scale = 100 if figure.unit == "fraction" else 1
    return f"{text} [{scale * value.low:.4g}, {scale * value.high:.4g}]"


def spread_text(figure: Figure, spread: Spread | None) -> str:
    """Return a mean with its standard deviation: `97.20 % ± 0.31`."""
    if spread is None or not spread.deviation:
        return figure.text(None if spread is None else spread.mean)
    deviation = format_change(spread.deviation, figure.unit).lstrip("+")
    return f"{figure.text(spread.mean)} ± {deviation}"


def _change_text(row: AnyRow, name: str) -> str:
    delta = row.delta.get(name)
    if isinstance(row, ComparedRow) and row.stage is not None and row.stage == row.baseline:
        return "baseline"
    if isinstance(delta, Spread):
        return short_change(name, delta.mean, delta.low, delta.high)
    if isinstance(delta, MetricDelta):
        return short_change(name, delta.value, delta.low, delta.high)
    return NULL


def _ratio_text(row: AnyRow) -> str:
    delta = row.delta.get("tflite_bytes")
    return format_ratio(delta.ratio) if isinstance(delta, FigureDelta) else NULL


def delta_table(found: Comparison) -> Table:
    """Return every difference of every row to its run's baseline."""
    rows = [row for row in ordered_rows(found) if isinstance(row, ComparedRow) and row.delta]
    names = list(dict.fromkeys(name for row in rows for name in row.delta))
    kept = [name for name in names if any(_delta_text(row, name) != NULL for row in rows)]
    cells = ((row.name, *(_delta_text(row, name) for name in kept)) for row in rows)
    return Table((_head(found), *kept), tuple(cells))


def _delta_text(row: ComparedRow, name: str) -> str:
    delta = row.delta.get(name)
    if delta is None or row.stage == row.baseline:
        return NULL
    if isinstance(delta, FigureDelta):
        ratio = "" if delta.ratio is None else f" ({format_ratio(delta.ratio)})"
        return format_change(delta.value, figure_of(name).unit) + ratio
    text, limits = change_texts(name, delta)
    return f"{text} [{limits}]" if limits else text


def settings_table(found: Comparison) -> Table:
    """Return a row for each setting that differs, and a column for each run."""
    runs = runs_of(found)

    def settings(run: ComparedRun) -> Mapping[str, str]:
        return run.rows[0].settings

    rows = ((key, *(settings(one).get(key, NULL) for one in runs)) for key in found.setting_names)
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
    """Return which rows are on a front."""
    is_all = len(front.rows) == len(shown_rows(found.rows, found.repeats))
    names = "all of them" if is_all and len(front.rows) > 1 else "; ".join(front.rows)
    return (
        f"On the Pareto front of {front.y} against {front.x}, where nothing is better in one and "
        f"no worse in the other: {names}."
    )


def failures_of(found: Comparison) -> list[tuple[str, str]]:
    """Return name and reason, with the hint, of every row that failed, was stopped or never ran."""
    texts = []
    for row in found.rows:
        status = STATUS[row.status].lower()
        if row.status == "missed":
            texts.append((row.name, f"missed: {', '.join(row.gates_missed)}"))
        elif row.error is not None:
            first = (row.error.message or "no reason was recorded").partition("\n")[0]
            hint = f" (hint: {row.error.hint})" if row.error.hint else ""
            texts.append((row.name, f"{status}: {first}{hint}"))
        elif row.status in ("failed", "stopped", "not run"):
            texts.append((row.name, status))
    return texts


def summary_of(found: Comparison) -> str:
    """Return how many runs ended in which way: `2 passed, 1 missed a gate`."""
    statuses = [one.status for one in runs_of(found)]
    counts = {name: statuses.count(name) for name in STATUS}
    words = {"missed": "missed a gate"}
    return ", ".join(f"{n} {words.get(name, name)}" for name, n in counts.items() if n)


# ---- renderings ----


def render_comparison_terminal(found: Comparison, console: Console) -> None:
    """Print a comparison; warnings are not printed, they are for stderr."""
    printer = Printer(console)
    printer.wrapped(f"{found.title}: {summary_of(found)}", "", "bold")
    printer.line("")
    shown = comparison_table(found)
    cells = [list(column) for column in zip(shown.heads, *shown.rows, strict=True)]
    count = printer.table(cells, left=2, longest=_LONGEST_SETTINGS)
    printer.wrapped(caption_of(found), "", "dim")
    if count < len(cells):
        missing = ", ".join(column[0] for column in cells[count:])
        printer.wrapped(f"more in compare.html: {missing}", "", "dim")
    printer.line("")
    for front in found.fronts[:1]:
        printer.wrapped(front_sentence(found, front), "")
        printer.line("")
    printer.section("not passed", [f"{name}: {text}" for name, text in failures_of(found)])


def render_comparison_markdown(found: Comparison) -> str:
    """Return a comparison as Markdown; every text that comes from outside is escaped."""
    parts = [f"# {escape(found.title)}: {escape(summary_of(found))}"]
    parts += [escape(line) for line in found.headline]
    if found.best_run is not None:
        parts.append(
            f"[Report of the best, on the test split]({quote(found.best_run)}/report.html)"
        )
    parts += [f"> **Warning**: {escape(text)}" for text in found.warnings]
    shown = comparison_table(found)
    parts += [table(shown.heads, shown.rows), escape(caption_of(found))]
    parts += [escape(front_sentence(found, front)) for front in found.fronts[:1]]
    if (slices := compared_slices_table(found, _MOST_SLICES)) is not None:
        parts += ["## Slices", table(slices.heads, slices.rows), escape(slices.caption)]
    if not found.sweep and (settings := settings_table(found)).rows:
        parts += ["## Settings that differ", table(settings.heads, settings.rows)]
    if failures := failures_of(found):
        lines = [f"- **{escape(name)}**: {escape(text)}" for name, text in failures]
        parts += ["## Not passed", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def render_comparison_html(found: Comparison) -> str:
    """Return a comparison as a self-contained page; every text is escaped."""
    from shrink.report.html import template
    from shrink.report.scatter import compared_plot

    shown, tones = comparison_table(found), {_TONES.get(row.status, "plain") for row in found.rows}
    others = _some_columns(shown, _MOST_COLUMNS, len(shown.heads))
    plots = [compared_plot(found, front) for front in found.fronts]
    reports = [
        (
            run.name,
            quote(f"{run.rows[0].run}/report.html", errors="replace") if run.rows[0].stage else "",
            STATUS[run.status],
        )
        for run in runs_of(found)
    ]
    return template("compare.html").render(
        title=found.title,
        sweep=found.sweep,
        summary=summary_of(found),
        tone=next((t for t in ("fail", "warn", "plain", "pass") if t in tones), "plain"),
        warnings=found.warnings,
        headline=found.headline,
        best_link=quote(f"{found.best_run}/report.html") if found.best_run else "",
        failures=failures_of(found),
        table=_some_columns(shown, 1, _MOST_COLUMNS),
        others=others if len(others.heads) > 1 else None,
        caption=caption_of(found),
        plots=plots,
        slices=compared_slices_table(found),
        deltas=delta_table(found),
        settings=None if found.sweep else settings_table(found),
        reports=reports,
    )


def _some_columns(table: Table, begin: int, end: int) -> Table:
    """Return some columns of a table behind its first one."""
    rows = tuple((row[0], *row[begin:end]) for row in table.rows)
    return Table((table.heads[0], *table.heads[begin:end]), rows)


def render_comparison(found: Comparison) -> dict[str, str]:
    """Return compare.md, compare.html and compare.json, each made from the comparison alone."""
    return {
        MARKDOWN_NAME: render_comparison_markdown(found),
        HTML_NAME: render_comparison_html(found),
        COMPARE_NAME: files.json_text(to_plain(found)),
    }


def check_overwritten(folder: Path, hint: str) -> None:
    """Raise `RecipeError` where a file that a comparison would overwrite is not shrink's.

    Args:
        folder: that the comparison will lie in.
        hint: what to do instead.
    """
    there = [name for name in COMPARE_NAMES if (folder / name).exists()]
    if not there:
        return
    try:
        from_plain(Comparison, files.read_mapping(folder / COMPARE_NAME), unknown="drop")
    except ContractError:
        raise RecipeError(
            f"it is not shrink's ({COMPARE_NAME} there is no comparison), and would be overwritten",
            subject=folder / there[0],
            hint=hint,
        ) from None
