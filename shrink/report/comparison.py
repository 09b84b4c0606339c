"""The page of a comparison of runs, for the terminal, Markdown, HTML and notebooks."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args
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
from shrink.contract.details import FigureDelta
from shrink.report import page
from shrink.report.comparison_rows import AnyRow, shown_rows
from shrink.report.content import (
    Column,
    change_text,
    change_word,
    figure_head,
    filled_table,
    metric_head,
)
from shrink.report.deltas import figure_delta
from shrink.report.page import (
    NULL,
    Alert,
    Beside,
    Block,
    Fold,
    Lines,
    Medium,
    Page,
    Table,
    Tone,
    capital,
    sections_of,
)
from shrink.report.slices import compared_slices_table

if TYPE_CHECKING:
    from rich.console import Console

COMPARE_MARKDOWN = "compare.md"
COMPARE_HTML = "compare.html"
COMPARE_NAMES = (COMPARE_MARKDOWN, COMPARE_HTML, COMPARE_NAME)
_TONES: dict[RowStatus, Tone] = {
    "passed": "good",
    "missed": "bad",
    "failed": "bad",
    "stopped": "careful",
}
_BEST_LINK = "Report of the best, on the test split"
_BEST = "★ "
"""What the name of the chosen row begins with."""
_ROWS = {"search": "Trials", "sweep": "Combinations", "comparison": "Runs"}
_RATIO = "ratio"
_SEEDS = "- "
"""What the runs of a combination begin with, below it."""
_MOST_SLICES = 20
_MOST_COLUMNS = 9
"""As many as fit beside each other on a page; the others can be opened."""


def _runs(found: Comparison) -> dict[str, ComparedRow]:
    """Return the row of each run's worst branch, by the run's name."""
    rows: dict[str, list[ComparedRow]] = {}
    for row in found.rows:
        rows.setdefault(row.run, []).append(row)
    runs, order = {}, get_args(RowStatus)
    for first, *others in rows.values():
        name = first.name.removesuffix(f" / {first.stage}") if others else first.name
        runs[name] = max([first, *others], key=lambda row: order.index(row.status))
    return runs


def comparison_table(found: Comparison) -> Table:
    """Return the table: a row for each branch; with repeats one for each combination, runs below.

    Columns without a value are left out.
    """
    table = filled_table(list(_columns(found)), list(ordered_rows(found)), titled=False)
    needed = table.heads.index(_RATIO) + 2 if _RATIO in table.heads else 2
    return replace(table, caption=caption_of(found), left=2, needed=needed)


def status_text(status: RowStatus) -> str:
    """Return an outcome for people."""
    return "GATE MISSED" if status == "missed" else status.upper()


def ordered_rows(found: Comparison) -> Iterator[AnyRow]:
    """Yield the rows as they are shown: each combination before its runs."""
    by_name = {row.name: row for row in found.rows}
    shown: set[str] = set()
    for group in found.repeats:
        yield group
        yield from (by_name[name] for name in group.rows if name not in shown)
        shown |= {*group.rows}
    yield from (row for row in found.rows if row.name not in shown)


def _kind(found: Comparison) -> str:
    """Return what a comparison is of: trials are measured on validation examples."""
    if not found.sweep:
        return "comparison"
    return "search" if found.split == "validation" else "sweep"


def _best_of(found: Comparison) -> Iterator[str]:
    """Yield the smallest and the most accurate result."""
    if not found.fronts:
        return
    front = found.fronts[0]
    rows: dict[str, AnyRow] = {row.name: row for row in found.rows}
    rows |= {row.name: row for row in found.repeats}
    names: dict[str, list[str]] = {}
    sentences = []
    for name, best in ((front.x, front.rows[0]), (front.y, front.rows[-1])):
        figure = figure_of(name)
        title = f"{'highest' if figure.larger_is_better else 'lowest'} {figure.title or name}"
        names.setdefault(best, []).append(title)
    for best, titles in names.items():
        row = rows[best]
        texts = [_figure_text(row, name) for name in (front.x, front.y)]
        texts += ["gate missed"] if isinstance(row, ComparedRow) and row.gates_missed else []
        sentences.append(f"{capital(' and '.join(titles))}: {best} ({', '.join(texts)}).")
    yield " ".join(sentences)


def _head(found: Comparison) -> str:
    return "settings" if found.sweep else "run"


def _columns(found: Comparison) -> Iterator[Column[AnyRow]]:
    yield Column(_head(found), lambda row: _row_name(found, row))
    yield Column("outcome", _outcome)
    if (name := found.metric) is not None:
        yield Column(metric_head(name), lambda row: _figure_text(row, name, interval=True))
        yield Column(f"{change_word(name)} [95 %]", lambda row: _change_text(row, name))
    rows = [row for row in ordered_rows(found) if row.figures]
    others = [one for one in _figure_names(found) if one != found.metric]
    for one in sorted(others, key=lambda one: one != COSTS[0] and not _differs(rows, one)):
        yield Column(figure_head(one), functools.partial(_figure_text, name=one))
        if one == COSTS[0]:
            yield Column(_RATIO, _ratio_text)


def _figure_names(found: Comparison) -> list[str]:
    """Return the main metric, costs, and all other metrics."""
    known = dict.fromkeys(name for row in found.rows for name in row.figures)
    metrics = (one for one in known if figure_of(one).group == "metrics" and one != DURATION)
    first = [] if found.metric is None else [found.metric]
    return list(dict.fromkeys((*first, *COSTS, *metrics)))


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
    return status_text(row.status)


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
    if isinstance(row, ComparedRow) and row.stage is not None and row.stage == row.baseline:
        return "baseline"
    return change_text(name, row.delta.get(name))


def _ratio_text(row: AnyRow) -> str:
    delta = row.delta.get("tflite_bytes")
    return format_ratio(delta.ratio) if isinstance(delta, FigureDelta) else NULL


def difference_table(found: Comparison) -> Table:
    """Return the differences of every row to the first one, of figures that are not the same."""
    rows = [row for row in found.rows if row.figures]
    first = rows[0].figures if rows else {}
    names = [name for name in _figure_names(found) if name in first and _differs(rows, name)]
    cells = (
        (row.name, *(_difference(name, row.figures.get(name), first[name]) for name in names))
        for row in rows[1:]
    )
    return Table((_head(found), *map(figure_head, names)), tuple(cells) if names else ())


def _differs(rows: Sequence[AnyRow], name: str) -> bool:
    return len({row.figures.get(name) for row in rows}) > 1


def _difference(name: str, value: float | None, first: float) -> str:
    figure, delta = figure_of(name), figure_delta(value, first)
    if delta is None or not delta.value:
        return NULL if delta is None else "same"
    ratio = "" if figure.group == "metrics" else f" ({format_ratio(delta.ratio)})"
    return format_change(delta.value, figure.unit) + ratio


def settings_table(found: Comparison) -> Table:
    """Return a row for each setting that differs, and a column for each run."""
    runs = _runs(found)
    rows = (
        (key, *(row.settings.get(key, NULL) for row in runs.values()))
        for key in dict.fromkeys(key for row in found.rows for key in row.settings)
    )
    return Table(("setting", *runs), tuple(rows))


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
    within = "within the limits " if found.split == "validation" else ""
    return (
        f"On the Pareto front of {front.y} against {front.x}: {names}. No other {within}is "
        "better in one figure and no worse in the other."
    )


def failures_of(found: Comparison) -> list[tuple[str, str]]:
    """Return name and reason, with the hint, of every row that failed, was stopped or never ran."""
    texts = []
    for row in found.rows:
        if row.status == "missed":
            texts.append((row.name, f"missed: {', '.join(row.gates_missed)}"))
        elif row.error is not None:
            first = (row.error.message or "no reason was recorded").partition("\n")[0]
            hint = f" (hint: {row.error.hint})" if row.error.hint else ""
            texts.append((row.name, f"{row.status}: {first}{hint}"))
        elif row.status in ("failed", "stopped", "not run"):
            texts.append((row.name, row.status))
    return texts


def summary_of(found: Comparison) -> str:
    """Return how many runs ended in which way: `2 passed, 1 missed a gate`."""
    statuses = [row.status for row in _runs(found).values()]
    counts = {name: statuses.count(name) for name in get_args(RowStatus)}
    words = {"missed": "missed a gate"}
    return ", ".join(f"{n} {words.get(name, name)}" for name, n in counts.items() if n)


# ---- renderings ----


def render_comparison_terminal(
    found: Comparison, console: Console, more: str = f"in {COMPARE_HTML}"
) -> None:
    """Print a comparison, with where to find `more`; warnings are for stderr."""
    page.print_page(replace(comparison_page(found, "terminal"), more=more), console)


def render_comparison_markdown(found: Comparison) -> str:
    """Return a comparison as Markdown."""
    return page.to_markdown(comparison_page(found, "markdown"))


def notebook_comparison_html(found: Comparison, folder: Path | None) -> str:
    """Return a comparison's table as a fragment of HTML; `folder` has its page, None without."""
    path = "" if folder is None else str(folder / COMPARE_HTML)
    return page.to_fragment(comparison_page(found, "notebook"), path)


def comparison_page(found: Comparison, medium: Medium) -> Page:
    """Return the page of a comparison."""
    tones = {_TONES.get(row.status, "neutral") for row in found.rows}
    order: tuple[Tone, ...] = ("bad", "careful", "neutral", "good")
    is_html = medium == "html"
    return Page(
        kicker=f"shrink {_kind(found)}",
        title=found.title,
        verdict=summary_of(found),
        tone=next((one for one in order if one in tones), "neutral") if is_html else "neutral",
        link=(_BEST_LINK, quote(f"{found.best_run}/report.html")) if found.best_run else ("", ""),
        lead=() if medium in ("terminal", "notebook") else found.headline or tuple(_best_of(found)),
        alerts=tuple(Alert("careful", "Warning", text) for text in found.warnings),
        sections=sections_of(_blocks(found, medium)),
    )


def _blocks(found: Comparison, medium: Medium) -> Iterator[tuple[str, Iterable[Block]]]:
    is_html, document = medium == "html", medium in ("markdown", "html")
    shown = comparison_table(found)
    if is_html:
        kept = shown.columns(1, _MOST_COLUMNS)
        rest = replace(shown.columns(_MOST_COLUMNS), caption="")
        others = [Fold("All other figures", (rest,))] if len(rest.heads) > 1 else []
        yield _ROWS[_kind(found)], [kept, *others]
        if not found.sweep and len(found.rows) > 1:
            yield f"Differences to {found.rows[0].name}", [difference_table(found)]
        yield from _plots(found)
    else:
        if not document and len({row[1] for row in shown.rows}) == 1:
            shown = replace(shown.columns(2), left=1)  # the verdict above says how all ended
        yield "", [shown]
        if medium != "notebook":
            yield "", [front_sentence(found, front) for front in found.fronts[:1]]
    failures = Lines(tuple(failures_of(found)))
    if medium != "notebook":
        yield "Not passed" if document else "not passed", [failures]
    if not document:
        return
    if (slices := compared_slices_table(found)) is not None:
        yield "Slices", [slices]
    if not found.sweep:
        yield "Settings that differ", [settings_table(found)]
    if is_html:
        yield "Reports", [_reports(found)]


def _plots(found: Comparison) -> Iterator[tuple[str, Iterable[Block]]]:
    from shrink.report.scatter import compared_plot

    plots = [compared_plot(found, front) for front in found.fronts]
    if plots:
        others = Fold("Against other costs", (Beside(tuple(plots[1:])),))
        yield capital(plots[0].title), [plots[0], others]


def _reports(found: Comparison) -> Lines:
    runs = _runs(found)
    links = {
        name: quote(f"{row.run}/report.html", errors="replace")
        for name, row in runs.items()
        if row.stage
    }
    return Lines(tuple((name, status_text(row.status)) for name, row in runs.items()), links)


def render_comparison_html(found: Comparison) -> str:
    """Return a comparison as a self-contained page."""
    return page.to_html(comparison_page(found, "html"))


def render_comparison(found: Comparison) -> dict[str, str]:
    """Return compare.json, compare.md and compare.html, each made from the comparison alone.

    They are written in this order: compare.json shows `check_overwritten` whose files these are.
    """
    return {
        COMPARE_NAME: files.json_text(to_plain(found)),
        COMPARE_MARKDOWN: render_comparison_markdown(found),
        COMPARE_HTML: render_comparison_html(found),
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
        from_plain(Comparison, files.read_mapping(folder / COMPARE_NAME))
    except ContractError:
        raise RecipeError(
            f"it is not shrink's ({COMPARE_NAME} there is no comparison), and would be overwritten",
            subject=folder / there[0],
            hint=hint,
        ) from None
